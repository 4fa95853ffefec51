package hotplug

import "unnest.io/unnest/internal/hostd/attachment"

// Deficit is how many more warm NICs are wanted and could be plugged now, in addition
// to those being plugged: that many Refills have an effect.
func (s State) Deficit() int {
	if s.drain {
		return 0
	}
	free, wanted := 0, s.config.Pool
	for i := range s.slots {
		switch slot := &s.slots[i]; {
		case slot.Status == Free:
			free++
		case slot.Status == Warm, slot.Status == Plugging && slot.Key == attachment.Key{}:
			wanted--
		}
	}
	return max(0, min(free, wanted))
}

// Draining reports whether a Drain still has NICs to unplug. One that the guest does
// not give up is quarantined and then no longer counts.
func (s State) Draining() bool {
	for i := range s.slots {
		slot := &s.slots[i]
		if s.drain && slot.Key == (attachment.Key{}) && (slot.Status == Plugging || slot.Status == Unplugging) {
			return true
		}
	}
	return false
}

func (Refill) apply(m *machine) {
	if m.Deficit() > 0 {
		m.plug(m.nextFree())
	}
}

func (Drain) apply(m *machine) {
	m.drain = true
	for i := range m.slots {
		if m.slots[i].Status == Warm {
			m.unplug(&m.slots[i])
		}
	}
}

// pool puts a plugged NIC that has no key into the pool, or unplugs it when the pool
// is being drained.
func (m *machine) pool(s *Slot) {
	s.Status, s.since = Warm, m.nextTurn()
	if m.drain {
		m.unplug(s)
	}
}

// returnToPool ends the slot's attachment and keeps the NIC for the pool.
func (m *machine) returnToPool(s *Slot) {
	m.disconnect(s)
	m.release(s)
	m.clearOwner(s)
	m.pool(s)
}

// clearOwner separates the slot's NIC from its key.
func (m *machine) clearOwner(s *Slot) {
	m.replyDetach(s, nil)
	s.Key, s.Record, s.pending, s.reset = attachment.Key{}, attachment.Record{}, attachment.Record{}, false
}

func (m *machine) nextTurn() uint64 {
	m.turn++
	return m.turn
}

// oldest returns the slot without key that has had the status for longest, or
// nil.
func (m *machine) oldest(status Status) *Slot {
	var oldest *Slot
	for i := range m.slots {
		s := &m.slots[i]
		if s.Status == status && s.Key == (attachment.Key{}) && (oldest == nil || s.since < oldest.since) {
			oldest = s
		}
	}
	return oldest
}
