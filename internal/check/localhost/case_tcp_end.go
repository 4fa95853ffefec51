package localhost

import (
	"fmt"
	"time"

	"unnest/internal/check/localhost/agent"
)

// deadPort has every fraction call an address where nobody listens, first one after
// the other, then all at the same time.
func (t *trial) deadPort(network string, times int) error {
	address, err := t.dead(t.loopback)
	if err != nil {
		return err
	}
	for _, f := range t.fractions {
		if err := t.refused(f, network, address, times); err != nil {
			return err
		}
	}
	return each(t.fractions, func(f *fraction) error { return t.refused(f, network, address, times) })
}

func tcpStopped(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	return t.refusedOnceStopped(s)
}

// refusedOnceStopped stops a server that all reach, whose port then refuses all.
func (t *trial) refusedOnceStopped(s *server) error {
	if err := t.reach(t.fractions, s); err != nil {
		return err
	}
	if err := t.stop(&s.running); err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error { return t.refused(f, t.tcp, s.address, 5) })
}

func tcpLateServer(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	address := at(t.loopback, port)
	if err := each(t.fractions, func(f *fraction) error { return t.refused(f, t.tcp, address, 5) }); err != nil {
		return err
	}
	s, err := t.serve(t.fraction(2), t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo})
	if err != nil {
		return err
	}
	return t.reach(t.fractions, s)
}

// tcpMoves has a server go round all fractions, and its client follow behind.
func tcpMoves(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	address := at(t.loopback, port)
	for k := 1; k <= max(6, len(t.fractions)); k++ {
		s, err := t.serve(t.fraction(k), t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo})
		if err != nil {
			return err
		}
		client := t.fraction(k + 1)
		if err := t.reaches(client, s); err != nil {
			return fmt.Errorf("move %d: %w", k, err)
		}
		if err := t.stop(&s.running); err != nil {
			return err
		}
		if err := t.refused(client, t.tcp, address, 1); err != nil {
			return fmt.Errorf("after move %d: %w", k, err)
		}
	}
	return nil
}

// mortal starts a server in a process of its own, which stop kills.
func (t *trial) mortal() (*server, error) {
	port, err := t.ports.take()
	if err != nil {
		return nil, err
	}
	return t.serve(t.fraction(1), t.loopback, agent.Serve{Network: t.tcp, Address: at(t.loopback, port), Kind: agent.Echo, Process: true})
}

// tcpKilled kills a server whose clients wait for it to say something.
func tcpKilled(t *trial) error {
	s, err := t.mortal()
	if err != nil {
		return err
	}
	var clients []*running
	for _, f := range t.others(s.fraction) {
		c, err := t.holdOne(f, s)
		if err != nil {
			return err
		}
		if err := t.exchange(c, 1); err != nil {
			return err
		}
		clients = append(clients, c)
	}
	if err := t.stop(&s.running); err != nil {
		return err
	}
	for _, c := range clients {
		end, err := do(t, c.fraction, agent.AwaitEnd{Handle: c.handle})
		if err != nil {
			return err
		}
		if end.Code != agent.End && end.Code != "ECONNRESET" || end.Took > t.patience {
			return fmt.Errorf("%s: when its server was killed, the client saw %s after %v", c.fraction, word(end.Code), end.Took.Round(time.Millisecond))
		}
	}
	return nil
}

func tcpKilledPort(t *trial) error {
	s, err := t.mortal()
	if err != nil {
		return err
	}
	return t.refusedOnceStopped(s)
}

func tcpReset(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	c, err := t.holdOne(t.fraction(2), s)
	if err != nil {
		return err
	}
	if err := t.exchange(c, 1); err != nil {
		return err
	}
	if _, err := do(t, c.fraction, agent.Abort{Handle: c.handle}); err != nil {
		return err
	}
	return t.eventually(func() error {
		seen, err := do(t, s.fraction, agent.Report{Handle: s.handle})
		if err != nil {
			return err
		}
		if len(seen.Conns) != 1 || seen.Conns[0].End != "ECONNRESET" {
			return fmt.Errorf("the client has reset its connection, the server saw %+v", seen.Conns)
		}
		return nil
	})
}
