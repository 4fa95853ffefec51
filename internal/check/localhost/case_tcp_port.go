package localhost

import (
	"fmt"
	"math/rand/v2"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// tcpOutgoing holds many connections of all fractions to one server. Some of their clients
// have the same port if fractions choose ports independently; the server must not see that.
func tcpOutgoing(t *trial) { t.holdMany(200, false) }

// holdMany has each fraction hold connections to one server, which sees each client at an
// address of its own, and exchanges a message over each connection.
func (t *trial) holdMany(times int, atOnce bool) {
	s := t.tcpEcho()
	clients := make([]*running, len(t.fractions))
	check.Each(len(t.fractions), func(i int) {
		clients[i], _ = t.hold(t.fractions[i], agent.Hold{Network: t.tcp, Address: s.address, Times: times, AtOnce: atOnce})
	})
	remotes := map[string]bool{}
	t.eventually(func() {
		clear(remotes)
		for _, c := range do(t, s.fraction, agent.Report{Handle: s.handle}).Conns {
			remotes[c.Remote] = true
		}
		if want := times * len(t.fractions); len(remotes) != want {
			check.Failf("%d connections are open; the server sees %d clients", want, len(remotes))
		}
	})
	check.Each(len(t.fractions), func(i int) { t.exchange(clients[i], 1) })
}

// givenPorts binds many sockets to ports that the kernel chooses. If fractions chose them
// independently, some would be equal.
func (t *trial) givenPorts(network string) {
	addresses := make([][]string, len(t.fractions))
	check.Each(len(t.fractions), func(i int) {
		bound := do(t, t.fractions[i], agent.Bind{Network: network, Address: at(t.loopback, 0), Times: 600})
		t.keep(&running{fraction: t.fractions[i], handle: bound.Handle})
		addresses[i] = bound.Addresses
	})
	t.distinct("address", addresses)
}

// ephemeralServer listens on a random port of the ephemeral range of another fraction. It
// retries, because clients may have used the port recently.
func (t *trial) ephemeralServer(f, of *fraction) *server {
	low, high := int(of.about.Ephemeral[0]), int(of.about.Ephemeral[1])
	for i := 1; ; i++ {
		address := at(t.loopback, low+rand.IntN(high-low+1))
		s, err := t.tryServe(f, t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo})
		if !hasCode(err, inUse) || i == 20 {
			check.Must(err)
			return s
		}
	}
}

// tcpEphemeralListener has each fraction listen on a port that the kernel of another
// fraction might choose for its clients.
func tcpEphemeralListener(t *trial) {
	for k, f := range t.fractions {
		t.reach(t.fractions, t.ephemeralServer(f, t.fraction(k+2)))
	}
}

// tcpClientOnListenersPort has fraction 1 listen on a port that fraction 2 binds a
// client to. One loopback does not allow that bind. If it is allowed, both must work.
func tcpClientOnListenersPort(t *trial) {
	listener := t.ephemeralServer(t.fraction(1), t.fraction(2))
	other := t.tcpServer(t.fraction(3), agent.Echo)
	attempts := do(t, t.fraction(2), agent.Connect{Network: t.tcp, Address: other.address, Local: listener.address, Times: 1, Message: 5})
	if attempts[0].Code != inUse {
		t.allEnd(t.fraction(2), "connect from the port on which fraction 1 listens", attempts, success)
	}
	t.reach(t.fractions, listener)
}

// twoClientsOnePort has two fractions connect from the same address and port to the same
// server, and returns how the attempt of the second one ended. The connection of the first
// must continue to work.
func (t *trial) twoClientsOnePort() string {
	s := t.tcpServer(t.fraction(3), agent.Echo)
	local := t.newAddress(t.loopback)
	first, _ := t.hold(t.fraction(1), agent.Hold{Network: t.tcp, Address: s.address, Local: local, Times: 1})
	t.exchange(first, 1)
	// The second may time out, because its addresses are those of the first.
	second := do(t, t.fraction(2), agent.Connect{Network: t.tcp, Address: s.address, Local: local, Times: 1, Message: 5, Patience: 2 * t.patience})
	check.Within(fmt.Sprintf("after a second client on %s ended with %s", local, word(second[0].Code)), func() { t.exchange(first, 3) })
	// The second fraction must reach the server from another port.
	t.allEnd(t.fraction(2), "connect from another port", t.attempt(t.fraction(2), t.tcp, s.address, 1), success)
	return second[0].Code
}
