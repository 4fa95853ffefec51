package hotplug

import "cmp"

// give finds a NIC for a key that has none, and begins to make it the key's.
func (m *machine) give(e Attach) {
	s := m.choose(e)
	switch {
	case s == nil && e.Bound:
		m.queue = append(m.queue, e)
		return
	case s == nil:
		m.refuseFull(e)
		return
	}
	s.Key, s.Note, s.bound = e.Key, e.Note, e.Bound
	s.attach = []waiter{{request: e.Request, note: e.Note}}
	switch s.Status {
	case Free:
		m.plug(s)
	case Warm:
		m.connect(s, s.Note)
	}
}

// refuseFull refuses for want of a slot, and asks once more for those that are lost.
func (m *machine) refuseFull(e Attach) {
	m.refuse(e, m.noFreeSlot())
	for i := range m.slots {
		m.askAgain(&m.slots[i])
	}
}

// choose returns the slot for a new attachment, or nil. A slot in which a NIC is
// being plugged for the pool is the last resort: the pool keeps no slot from an
// attachment.
func (m *machine) choose(e Attach) *Slot {
	if e.Bound {
		return m.nextFree()
	}
	warm := m.oldest(Warm)
	if warm != nil && !e.Cold {
		return warm
	}
	return cmp.Or(m.nextFree(), warm, m.oldest(Plugging))
}

// plug begins to plug a NIC in a free slot.
func (m *machine) plug(s *Slot) {
	s.last = following(s.last)
	s.Generation = s.last
	s.Status, s.Device = Plugging, s.DeviceID()
	s.since = m.nextTurn()
	m.crowd()
	a := m.attachment(s)
	add := AddTAP{Occupant: s.Occupant, Name: a.TAP, Owner: WarmOwner}
	if s.bound {
		add = AddTAP{Occupant: s.Occupant, Name: a.TAP, Bound: true, Key: s.Key, Note: s.Note}
	}
	m.do(
		add,
		NetdevAdd{Occupant: s.Occupant, ID: s.NetdevID(), TAP: a.TAP},
		DeviceAdd{Occupant: s.Occupant, ID: s.Device, Netdev: s.NetdevID(), MAC: a.MAC},
	)
}

// nextFree returns the next free slot, or nil. They are taken in turn, so that
// one that keeps failing does not fail every plug.
func (m *machine) nextFree() *Slot {
	for i := range m.slots {
		at := (m.next + i) % len(m.slots)
		if m.slots[at].Status == Free {
			m.next = at + 1
			return &m.slots[at]
		}
	}
	return nil
}

func (m *machine) noFreeSlot() error {
	err := &NoFreeSlotError{Slots: len(m.slots)}
	for _, s := range m.slots {
		switch s.Status {
		case Unplugging, Resting:
			err.Unplugging++
		case Quarantined:
			err.Quarantined++
		}
	}
	return err
}

func (e PlugSucceeded) apply(m *machine) {
	s := m.occupied(e.Occupant, Plugging)
	if s == nil {
		return
	}
	switch {
	case s.Key == Key{}:
		m.pool(s)
	case len(s.detach) > 0, s.reset:
		m.unplug(s)
	default:
		m.connect(s, s.Note)
	}
}

func (e PlugFailed) apply(m *machine) {
	s := m.occupied(e.Occupant, Plugging)
	if s == nil {
		return
	}
	err := &PlugError{Occupant: e.Occupant, Step: e.Step, Err: e.Err}
	if e.Step == StepDevice && e.Uncertain {
		m.failAttach(s, err)
		m.unplug(s)
		return
	}
	if e.Step > StepNetdev || e.Step == StepNetdev && e.Uncertain {
		m.do(NetdevDel{ID: s.NetdevID()})
	}
	if e.Step > StepTAP || e.Uncertain {
		m.do(DelTAP{Name: s.TAP(m.config.Prefix)})
	}
	m.release(s)
	m.failAttach(s, err)
	m.free(s)
}
