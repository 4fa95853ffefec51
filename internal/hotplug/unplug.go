package hotplug

import "fmt"

// unplug begins to take the NIC away.
func (m *machine) unplug(s *Slot) {
	s.Status = Unplugging
	m.ask(s)
}

// ask asks the guest to give the NIC up, and begins to wait.
func (m *machine) ask(s *Slot) {
	s.tries++
	m.do(
		DeviceDel{ID: s.Device},
		StartTimer{Timer: Timer{Occupant: s.Occupant, Try: s.tries}, After: m.config.UnplugTimeout},
	)
}

// askAgain asks for the NIC of a quarantined slot once more, without waiting.
func (m *machine) askAgain(s *Slot) {
	if s.Status == Quarantined && s.Generation > 0 {
		m.do(DeviceDel{ID: s.Device})
	}
}

func (e UnplugTimedOut) apply(m *machine) {
	s := m.occupied(e.Timer.Occupant, Unplugging)
	switch {
	case s == nil || s.tries != e.Timer.Try:
	case s.tries < m.config.UnplugTries:
		m.ask(s)
	default:
		m.quarantine(s)
	}
}

// quarantine gives up on the guest: the NIC stays in the port, cut off.
func (m *machine) quarantine(s *Slot) {
	m.tearDown(s)
	s.Status = Quarantined
	err := fmt.Errorf("detach %s: %w", s.Key, ErrQuarantined)
	if s.refusal != nil {
		err = fmt.Errorf("%w: %w", err, s.refusal)
	}
	m.replyDetach(s, err)
}

func (e UnplugRefused) apply(m *machine) {
	if s := m.holding(e.Device); s != nil && s.Status == Unplugging {
		s.refusal = e.Err
	}
}

func (e DeviceDeleted) apply(m *machine) {
	if s := m.holding(e.Device); s != nil {
		m.deleted(s)
	}
}

// deleted cleans up after the device of a slot that is not free.
func (m *machine) deleted(s *Slot) {
	m.lose(s)
	if s.Status != Quarantined {
		m.tearDown(s)
	}
	m.failAttach(s, ErrDeviceLost)
	m.free(s)
}

// tearDown deletes the host's part of a NIC.
func (m *machine) tearDown(s *Slot) {
	m.do(NetdevDel{ID: s.NetdevID()}, DelTAP{Name: s.TAP(m.config.Prefix)})
	m.release(s)
}
