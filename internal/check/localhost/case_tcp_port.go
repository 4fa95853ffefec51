package localhost

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"unnest/internal/check/localhost/agent"
)

// tcpOutgoing holds many connections of all fractions to one server. Were their
// ports chosen from one range without regard to each other, some would be equal.
func tcpOutgoing(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	clients := make([]*running, len(t.fractions))
	locals := make([][]string, len(t.fractions))
	if err := each(t.fractions, func(f *fraction) error {
		var err error
		i := f.number - 1
		clients[i], locals[i], err = t.hold(f, agent.Hold{Network: t.tcp, Address: s.address, Times: 200})
		return err
	}); err != nil {
		return err
	}
	return errors.Join(distinct("the client's address", byFraction(t.fractions, locals)),
		each(t.fractions, func(f *fraction) error { return t.exchange(clients[f.number-1], 1) }))
}

func byFraction(fractions []*fraction, values [][]string) map[*fraction][]string {
	m := map[*fraction][]string{}
	for i, f := range fractions {
		m[f] = values[i]
	}
	return m
}

// givenPorts binds many sockets to ports that the kernel chooses. Were those chosen
// without regard to other fractions, some would be equal.
func (t *trial) givenPorts(network string) error {
	addresses := make([][]string, len(t.fractions))
	if err := each(t.fractions, func(f *fraction) error {
		bound, err := do(t, f, agent.Bind{Network: network, Address: at(t.loopback, 0), Times: 600})
		if err != nil {
			return err
		}
		t.keep(&running{fraction: f, handle: bound.Handle})
		addresses[f.number-1] = bound.Addresses
		return nil
	}); err != nil {
		return err
	}
	return distinct("the address", byFraction(t.fractions, addresses))
}

// ephemeralServer listens on a port out of the range from which another fraction's
// kernel chooses. Those that clients used a while ago are not free.
func (t *trial) ephemeralServer(f, of *fraction) (s *server, err error) {
	low, high := int(of.about.Ephemeral[0]), int(of.about.Ephemeral[1])
	for range 20 {
		address := at(t.loopback, low+rand.IntN(high-low+1))
		s, err = t.serve(f, t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo})
		if why := (*agent.Error)(nil); !errors.As(err, &why) || why.Code != inUse {
			return s, err
		}
	}
	return s, err
}

// tcpEphemeralListener has each fraction listen on a port that the next one's kernel
// might choose for its clients.
func tcpEphemeralListener(t *trial) error {
	for k, f := range t.fractions {
		s, err := t.ephemeralServer(f, t.fraction(k+2))
		if err != nil {
			return err
		}
		if err := t.reach(t.fractions, s); err != nil {
			return err
		}
	}
	return nil
}

// tcpClientOnListenersPort has fraction 1 listen on a port that fraction 2 binds a
// client to. One loopback would not allow that bind; where it is allowed, both have
// to work.
func tcpClientOnListenersPort(t *trial) error {
	listener, err := t.ephemeralServer(t.fraction(1), t.fraction(2))
	if err != nil {
		return err
	}
	other, err := t.tcpServer(t.fraction(3), agent.Echo)
	if err != nil {
		return err
	}
	attempts, err := do(t, t.fraction(2), agent.Connect{Network: t.tcp, Address: other.address, Local: listener.address, Times: 1, Message: 5})
	if err != nil {
		return err
	}
	if attempts[0].Code != inUse {
		if err := t.all(t.fraction(2), "connect from the port where fraction 1 listens", attempts, ""); err != nil {
			return err
		}
	}
	return t.reach(t.fractions, listener)
}

// tcpSameClientPort has two fractions connect from the same port to the same server.
// Whatever becomes of the second, the first goes on.
func tcpSameClientPort(t *trial) error {
	_, err := t.twoOnOnePort()
	return err
}

// twoOnOnePort returns how the second of two clients ended that share address and
// port. An error says that the first did not go on.
func (t *trial) twoOnOnePort() (string, error) {
	s, err := t.tcpServer(t.fraction(3), agent.Echo)
	if err != nil {
		return "", err
	}
	local, err := t.dead(t.loopback)
	if err != nil {
		return "", err
	}
	first, _, err := t.hold(t.fraction(1), agent.Hold{Network: t.tcp, Address: s.address, Local: local, Times: 1})
	if err != nil {
		return "", err
	}
	if err := t.exchange(first, 1); err != nil {
		return "", err
	}
	// It may have to be given up: no address tells it from the first.
	second, err := do(t, t.fraction(2), agent.Connect{Network: t.tcp, Address: s.address, Local: local, Times: 1, Message: 5, Patience: 2 * t.patience})
	if err != nil {
		return "", err
	}
	if err := t.exchange(first, 3); err != nil {
		return "", fmt.Errorf("after a second client on %s ended with %s: %w", local, word(second[0].Code), err)
	}
	// From a port of its own the second fraction reaches the server.
	c, err := t.connect(t.fraction(2), t.tcp, s.address, 1)
	if err != nil {
		return "", err
	}
	return second[0].Code, t.all(t.fraction(2), "connect from a port of its own", c, "")
}
