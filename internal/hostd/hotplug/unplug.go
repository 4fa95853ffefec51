package hotplug

import "fmt"

// unplug begins to take the NIC away, or has it wait for its turn.
func (m *machine) unplug(s *Slot) {
	s.Status, s.since = Unplugging, m.nextTurn()
	if s.bound {
		m.disconnect(s)
	}
	m.askNext()
}

// askNext asks for the NIC that has waited for longest, unless the guest is busy
// with another. One that it has let wait for a whole try is no longer waited for.
func (m *machine) askNext() {
	var next *Slot
	for i := range m.slots {
		switch s := &m.slots[i]; {
		case s.Status == Unplugging && s.tries == 1:
			return
		case s.Status == Unplugging && s.tries == 0 && (next == nil || s.since < next.since):
			next = s
		}
	}
	if next != nil {
		next.asked = m.nextTurn()
		m.ask(next)
	}
}

// ask asks the guest to give the NIC up, and begins to wait.
func (m *machine) ask(s *Slot) {
	m.crowd()
	s.tries++
	m.do(
		DeviceDel{ID: s.Device},
		StartTimer{Timer: Timer{Occupant: s.Occupant, Try: s.tries}, After: m.config.UnplugTimeout},
	)
}

// askAgain asks for the NIC of a quarantined slot once more, without waiting.
func (m *machine) askAgain(s *Slot) {
	if s.Status == Quarantined && s.Generation > 0 {
		m.crowd()
		m.do(DeviceDel{ID: s.Device})
	}
}

// crowd notes that a plug or a request is about to come between other requests
// and their answers.
func (m *machine) crowd() {
	for i := range m.slots {
		if s := &m.slots[i]; s.tries > 0 {
			s.crowded = true
		}
	}
}

func (Crowded) apply(m *machine) { m.crowd() }

func (e UnplugTimedOut) apply(m *machine) {
	if e.Timer.Try == restTimer {
		m.rested(e.Timer.Occupant)
		return
	}
	s := m.occupied(e.Timer.Occupant, Unplugging)
	switch {
	case s == nil || s.tries != e.Timer.Try:
		return
	case s.tries < m.config.UnplugTries:
		m.ask(s)
	default:
		m.quarantine(s)
	}
	m.askNext()
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
	asked, noted := s.asked, s.crowded || s.tries == 0
	m.free(s)
	m.awaken(asked)
	if noted {
		m.rest(s)
	}
	m.askNext()
}

// restTimer is the Try of the timer that ends a rest.
const restTimer = 0

// rest keeps an empty slot empty.
func (m *machine) rest(s *Slot) {
	if m.config.Rest == 0 {
		return
	}
	s.Status, s.since = Resting, m.nextTurn()
	m.do(StartTimer{Timer: Timer{Occupant: Occupant{Slot: s.Slot, Generation: s.last}, Try: restTimer}, After: m.config.Rest})
}

func (m *machine) rested(last Occupant) {
	if s := &m.slots[last.Slot-1]; s.Status == Resting && s.last == last.Generation {
		m.free(s)
	}
}

// awaken ends the rests that had begun when the guest was asked for a NIC that it
// has given up now: its notes before that are done.
func (m *machine) awaken(asked uint64) {
	for i := range m.slots {
		if s := &m.slots[i]; s.Status == Resting && s.since < asked {
			m.free(s)
		}
	}
}

// tearDown deletes the host's part of a NIC.
func (m *machine) tearDown(s *Slot) {
	m.do(NetdevDel{ID: s.NetdevID()}, DelTAP{Name: s.TAP(m.config.Prefix)})
	m.release(s)
}
