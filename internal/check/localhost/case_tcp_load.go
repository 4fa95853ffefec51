package localhost

import (
	"errors"
	"time"

	"unnest/internal/check/localhost/agent"
)

func tcpChurn(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	return t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: 300, Message: 200})
}

func tcpSimultaneous(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	return t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: 64, AtOnce: true, Message: 200})
}

// muteCall is a connect to a server that accepts nothing: only connecting counts.
func (t *trial) muteCall(s *server, times int) agent.Hold {
	return agent.Hold{Network: t.tcp, Address: s.address, Times: times}
}

// tcpFullBacklog has one client fill the backlog of 0, which holds one connection.
// Others may wait until they give up, but nobody may be refused.
func tcpFullBacklog(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Mute)
	if err != nil {
		return err
	}
	if _, _, err := t.hold(t.fraction(2), t.muteCall(s, 1)); err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error {
		attempts, err := do(t, f, agent.Connect{Network: t.tcp, Address: s.address, Times: 3, AtOnce: true, Message: 1, Patience: 2 * t.patience})
		if err != nil {
			return err
		}
		return t.all(f, "connect to a server whose backlog is full", attempts, agent.Timeout)
	})
}

// tcpLateAccept has the server accept while more clients wait than its backlog holds.
func tcpLateAccept(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Mute)
	if err != nil {
		return err
	}
	if _, _, err := t.hold(t.fraction(2), t.muteCall(s, 1)); err != nil {
		return err
	}
	resumed := make(chan error, 1)
	go func() {
		time.Sleep(t.patience / 2) // so that they wait
		_, err := do(t, s.fraction, agent.Resume{Handle: s.handle})
		resumed <- err
	}()
	err = t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: 3, AtOnce: true, Message: 5})
	return errors.Join(err, <-resumed)
}

// tcpSideBySide holds a connection from every fraction to every fraction.
func tcpSideBySide(t *trial) error {
	var held []*running
	for _, f := range t.fractions {
		s, err := t.tcpServer(f, agent.Echo)
		if err != nil {
			return err
		}
		for _, client := range t.fractions {
			c, err := t.holdOne(client, s)
			if err != nil {
				return err
			}
			held = append(held, c)
		}
	}
	for range 2 {
		for _, c := range held {
			if err := t.exchange(c, 1); err != nil {
				return err
			}
		}
	}
	return nil
}
