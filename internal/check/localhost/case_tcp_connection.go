package localhost

import (
	"fmt"
	"math/rand/v2"
	"time"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// deadPort has every fraction call an address without a server, first one fraction after
// the other, then all at the same time.
func (t *trial) deadPort(network string, times int) {
	address := t.newAddress(t.loopback)
	for _, f := range t.fractions {
		t.refused(f, network, address, times)
	}
	t.allRefused(network, address, times)
}

func tcpFastOpenRefused(t *trial) {
	r := agent.Connect{Network: t.tcp, Address: t.newAddress(t.loopback), FastOpen: true, Times: 5, Message: 5}
	for _, f := range t.fractions {
		t.allEndAtOnce(f, "send data in a SYN to a dead port", do(t, f, r), refusal)
	}
}

// refusedOnceStopped stops a server that all fractions reach. Its port must then refuse
// all of them.
func (t *trial) refusedOnceStopped(s *server) {
	t.reach(t.fractions, s)
	t.stop(&s.running)
	t.allRefused(t.tcp, s.address, 5)
}

func tcpLateServer(t *trial) {
	address := t.newAddress(t.loopback)
	t.allRefused(t.tcp, address, 5)
	t.reach(t.fractions, t.serve(t.fraction(2), t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo}))
}

// tcpMoves moves a server through all fractions. The client is always in the next one.
func tcpMoves(t *trial) {
	address := t.newAddress(t.loopback)
	for k := 1; k <= max(6, len(t.fractions)); k++ {
		check.Within(fmt.Sprintf("move %d", k), func() {
			s := t.serve(t.fraction(k), t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo})
			client := t.fraction(k + 1)
			t.reach([]*fraction{client}, s)
			t.stop(&s.running)
			t.refused(client, t.tcp, address, 1)
		})
	}
}

// serverInProcess starts a server in its own process, which stop kills.
func (t *trial) serverInProcess() *server {
	return t.serve(t.fraction(1), t.loopback, agent.Serve{Network: t.tcp, Address: t.newAddress(t.loopback), Kind: agent.Echo, Process: true})
}

// tcpKilled kills a server while clients wait for its answer.
func tcpKilled(t *trial) {
	s := t.serverInProcess()
	var clients []*running
	for _, f := range t.others(s.fraction) {
		c := t.holdOne(f, s)
		t.exchange(c, 1)
		clients = append(clients, c)
	}
	t.stop(&s.running)
	for _, c := range clients {
		end := do(t, c.fraction, agent.AwaitEnd{Handle: c.handle})
		if end.Code != agent.End && end.Code != "ECONNRESET" || end.Took > t.patience {
			check.Failf("%s: the server was killed; the client saw %s after %v", c.fraction, word(end.Code), end.Took.Round(time.Millisecond))
		}
	}
}

func tcpReset(t *trial) {
	s := t.tcpEcho()
	c := t.holdOne(t.fraction(2), s)
	t.exchange(c, 1)
	do(t, c.fraction, agent.Abort{Handle: c.handle})
	t.eventually(func() {
		seen := do(t, s.fraction, agent.Report{Handle: s.handle})
		if len(seen.Conns) != 1 || seen.Conns[0].End != "ECONNRESET" {
			check.Failf("the client reset its connection; the server saw %+v", seen.Conns)
		}
	})
}

func tcpChurn(t *trial) {
	s := t.tcpEcho()
	t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: t.size(300, 100_000/len(t.fractions)), Message: 200})
}

func tcpThousands(t *trial) { t.holdMany(t.size(2000, 10_000)/len(t.fractions), true) }

// tcpThousandsRefused calls a port that nobody has more often at once than a limit on
// broadcasts might allow.
func tcpThousandsRefused(t *trial) {
	address := t.newAddress(t.loopback)
	for _, f := range t.fractions {
		attempts := do(t, f, agent.Connect{Network: t.tcp, Address: address, Times: t.size(2500, 10_000), AtOnce: true, Message: 1})
		t.allEnd(f, "connect to a dead port", attempts, refusal)
	}
}

func tcpSimultaneous(t *trial) {
	s := t.tcpEcho()
	t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: 64, AtOnce: true, Message: 200})
}

// fullServer starts a server that accepts nothing. Its backlog of 0 holds one connection,
// which a client has made.
func (t *trial) fullServer() *server {
	s := t.tcpServer(t.fraction(1), agent.Mute)
	t.holdOne(t.fraction(2), s)
	return s
}

// tcpFullBacklog checks that clients time out, and are not refused, while the backlog is
// full.
func tcpFullBacklog(t *trial) {
	s := t.fullServer()
	each(t.fractions, func(f *fraction) {
		attempts := do(t, f, agent.Connect{Network: t.tcp, Address: s.address, Times: 3, AtOnce: true, Message: 1, Patience: 2 * t.patience})
		t.allEnd(f, "connect to a server with a full backlog", attempts, agent.Timeout)
	})
}

// tcpLateAccept has the server accept while more clients wait than its backlog holds.
func tcpLateAccept(t *trial) {
	s := t.fullServer()
	check.Each(2, func(i int) {
		if i == 0 {
			time.Sleep(t.patience / 2) // until the clients wait
			do(t, s.fraction, agent.Resume{Handle: s.handle})
			return
		}
		t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: 3, AtOnce: true, Message: 5})
	})
}

// tcpSideBySide holds a connection from every fraction to every fraction.
func tcpSideBySide(t *trial) {
	var held []*running
	for _, f := range t.fractions {
		s := t.tcpServer(f, agent.Echo)
		for _, client := range t.fractions {
			held = append(held, t.holdOne(client, s))
		}
	}
	for range 2 {
		for _, c := range held {
			t.exchange(c, 1)
		}
	}
}

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

// tcpClientOnItsServersPort has a client bind the address of its server. One loopback does not allow that.
// If it is allowed, the client must reach the server, and not itself.
func tcpClientOnItsServersPort(t *trial) {
	s, client := t.tcpServer(t.fraction(1), agent.Name), t.fraction(2)
	a := do(t, client, agent.Connect{Network: t.tcp, Address: s.address, Local: s.address, Times: 1})[0]
	if a.Code != inUse && (a.Code != success || a.Said != s.fraction.String()) {
		check.Failf("%s: a client on the port of its server ended with %s and heard %q", client, word(a.Code), a.Said)
	}
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
