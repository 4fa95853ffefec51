package hotplug

// plug begins to plug a NIC in the next free slot. Slots are taken in turn, so
// that one that keeps failing does not fail every Attach.
func (m *machine) plug(e Attach) {
	s := m.nextFree()
	if s == nil {
		m.refuse(e, m.noFreeSlot())
		for i := range m.slots {
			m.askAgain(&m.slots[i])
		}
		return
	}
	s.last = following(s.last)
	s.Generation = s.last
	s.Status, s.Device, s.Key = Plugging, s.DeviceID(), e.Key
	s.attach = []RequestID{e.Request}
	a := m.attachment(s)
	m.do(
		AddTAP{Occupant: s.Occupant, Name: a.TAP, Owner: Owner(e.Key)},
		NetdevAdd{Occupant: s.Occupant, ID: s.NetdevID(), TAP: a.TAP},
		DeviceAdd{Occupant: s.Occupant, ID: s.Device, Netdev: s.NetdevID(), Bus: Port(s.Slot), MAC: a.MAC},
	)
}

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
		case Unplugging:
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
	s.Status = Plugged
	m.replyAttach(s, nil)
	if len(s.detach) > 0 {
		m.unplug(s)
	}
}

func (e PlugFailed) apply(m *machine) {
	s := m.occupied(e.Occupant, Plugging)
	if s == nil {
		return
	}
	err := &PlugError{Occupant: e.Occupant, Step: e.Step, Err: e.Err}
	if e.Step == StepDevice && e.Uncertain {
		m.replyAttach(s, err)
		m.unplug(s)
		return
	}
	if e.Step > StepNetdev || e.Step == StepNetdev && e.Uncertain {
		m.do(NetdevDel{ID: s.NetdevID()})
	}
	if e.Step > StepTAP || e.Uncertain {
		m.do(DelTAP{Name: s.TAP(m.config.Prefix)})
	}
	m.replyAttach(s, err)
	m.free(s)
}
