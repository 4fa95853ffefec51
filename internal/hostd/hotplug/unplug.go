package hotplug

import "fmt"

// unplug begins to take the device away, or queues it for its turn.
func (m *machine) unplug(s *Slot) {
	s.Status, s.since = Unplugging, m.nextTurn()
	if s.endpoint {
		m.disconnect(s)
	}
	m.askNext()
}

// askNext asks for the device that has waited for longest, unless the guest is busy
// with another. After a try without an answer the guest is no longer busy.
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

// ask asks the guest to give the device up, and starts the timer.
func (m *machine) ask(s *Slot) {
	m.rescan()
	s.tries++
	m.do(
		DeviceDel{ID: s.Device},
		StartTimer{Timer: Timer{Occupant: s.Occupant, Try: s.tries}, After: m.config.UnplugTimeout},
	)
}

// askAgain asks for the device of a quarantined slot again, without a timer.
func (m *machine) askAgain(s *Slot) {
	if s.Status == Quarantined && s.Generation > 0 {
		m.rescan()
		m.do(DeviceDel{ID: s.Device})
	}
}

// rescan records that the guest is about to scan its slots between a request and its
// answer.
func (m *machine) rescan() {
	for i := range m.slots {
		if s := &m.slots[i]; s.tries > 0 {
			s.rescan = true
		}
	}
}

func (Rescan) apply(m *machine) { m.rescan() }

func (e UnplugTimedOut) apply(m *machine) {
	if e.Timer.Try == cooldownTimer {
		m.endCooldown(e.Timer.Occupant)
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

// quarantine stops asking. A NIC stays in the port and is cut off. A share stays as it
// was, until the guest gives it up or the next Detach asks again.
func (m *machine) quarantine(s *Slot) {
	err := ErrKept
	if !m.config.Shares {
		m.cutOff(s)
		err = ErrQuarantined
	}
	s.Status = Quarantined
	err = fmt.Errorf("detach %s: %w", s.Key, err)
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

// deleted cleans up after the device of a slot that is not free. The port of a share
// always cools down: its guest may run longer than the daemon, with requests queued
// that this state never saw.
func (m *machine) deleted(s *Slot) {
	m.reportLost(s, false)
	switch {
	case s.Status == Foreign:
	case s.Status == Quarantined && !m.config.Shares:
		m.deleteNIC(s)
	default:
		m.tearDown(s)
	}
	m.failAttach(s, ErrDeviceLost)
	asked, cool := s.asked, s.rescan || s.tries == 0 || m.config.Shares
	m.free(s)
	m.endEarlierCooldowns(asked)
	if cool {
		m.coolDown(s)
	}
	m.askNext()
}

// cooldownTimer is the Try of the timer that ends a cooldown.
const cooldownTimer = 0

// coolDown keeps an empty slot empty for a while.
func (m *machine) coolDown(s *Slot) {
	if m.config.Cooldown == 0 {
		return
	}
	s.Status, s.since = Cooling, m.nextTurn()
	m.do(StartTimer{Timer: Timer{Occupant: Occupant{Slot: s.Slot, Generation: s.last}, Try: cooldownTimer}, After: m.config.Cooldown})
}

func (m *machine) endCooldown(last Occupant) {
	if s := &m.slots[last.Slot-1]; s.Status == Cooling && s.last == last.Generation {
		m.free(s)
	}
}

// endEarlierCooldowns ends the cooldowns that had begun when the guest was asked, in
// the given turn, for a device that it has now given up: it has worked through the
// ejections queued before that.
func (m *machine) endEarlierCooldowns(asked uint64) {
	for i := range m.slots {
		if s := &m.slots[i]; s.Status == Cooling && s.since < asked {
			m.free(s)
		}
	}
}

// tearDown deletes the host's part of a device that is gone.
func (m *machine) tearDown(s *Slot) {
	if m.config.Shares {
		m.do(DeleteBackend{Key: s.Key})
	} else {
		m.deleteNIC(s)
	}
	m.release(s)
}

// deleteNIC deletes the host's part of a NIC. The VMM is told first: then it has closed the
// TAP. Service addresses end before that, while the TAP's alias names them.
func (m *machine) deleteNIC(s *Slot) {
	if len(s.Record.Services) > 0 {
		m.do(CutTAP{TAP: s.TAP(m.config.Prefix)})
	}
	m.do(NetdevDel{ID: s.NetdevID()}, DelTAP{TAP: s.TAP(m.config.Prefix)})
}

// cutOff ends the attachment of a NIC that the guest keeps. The host acts first: whether the
// VMM obeys, or answers, does not matter.
func (m *machine) cutOff(s *Slot) {
	m.do(CutTAP{TAP: s.TAP(m.config.Prefix)}, NetdevDel{ID: s.NetdevID()})
	m.release(s)
}
