package hotplug

import (
	"cmp"

	"unnest.io/unnest/internal/hostd/attachment"
)

// assign finds a slot for a key that has no device, and begins to plug or connect one.
func (m *machine) assign(e Attach) {
	s := m.choose(e)
	switch {
	case s == nil && (e.Key.Kind == attachment.Endpoint || m.config.Shares || m.cooling() > len(m.queue)):
		m.queue = append(m.queue, e)
		return
	case s == nil:
		m.refuseFull(e)
		return
	}
	s.Key, s.Record, s.endpoint = e.Key, e.Record, e.Key.Kind == attachment.Endpoint
	s.attach = []waiter{{request: e.Request, record: e.Record}}
	switch s.Status {
	case Free:
		m.plug(s)
	case Warm:
		m.connect(s, s.Record)
	}
}

// refuseFull refuses a request because no slot is free, and asks again for the
// devices in quarantined slots.
func (m *machine) refuseFull(e Attach) {
	m.refuse(e, m.noFreeSlot())
	for i := range m.slots {
		m.askAgain(&m.slots[i])
	}
}

// choose returns the slot for a new attachment, or nil. A slot in which a NIC is
// being plugged for the pool comes last: the pool keeps no slot from an
// attachment.
func (m *machine) choose(e Attach) *Slot {
	if e.Key.Kind == attachment.Endpoint {
		return m.nextFree()
	}
	warm := m.oldest(Warm)
	if warm != nil && !e.Cold {
		return warm
	}
	return cmp.Or(m.nextFree(), warm, m.oldest(Plugging))
}

// plug begins to plug a device in a free slot.
func (m *machine) plug(s *Slot) {
	s.last = following(s.last)
	s.Generation = s.last
	s.Status, s.since = Plugging, m.nextTurn()
	m.rescan()
	if m.config.Shares {
		s.Device = s.Key.String()
		m.do(AddShare{Occupant: s.Occupant, Key: s.Key})
		return
	}
	s.Device = s.DeviceID()
	a := m.attachment(s)
	add := AddTAP{Occupant: s.Occupant, TAP: a.TAP}
	device := DeviceAdd{Occupant: s.Occupant, ID: s.Device, Netdev: s.NetdevID(), MAC: a.MAC}
	if s.endpoint {
		add.Key, add.Record, device.Record = s.Key, s.Record, s.Record
	}
	m.do(add, NetdevAdd{Occupant: s.Occupant, ID: s.NetdevID(), TAP: a.TAP}, device)
}

// nextFree returns the next free slot, or nil. The slots take turns, so that
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
	err := &NoFreeSlotError{Slots: len(m.slots), Shares: m.config.Shares}
	for _, s := range m.slots {
		switch s.Status {
		case Unplugging, Cooling:
			err.Unplugging++
		case Quarantined:
			err.Quarantined++
		case Foreign:
			err.Foreign++
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
	case s.Key == attachment.Key{}:
		m.pool(s)
	case len(s.detach) > 0, s.reset:
		m.unplug(s)
	case m.config.Shares:
		m.serve(s)
	default:
		m.connect(s, s.Record)
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
	if !m.config.Shares { // a share that fails leaves nothing
		m.undoPlug(s, e)
	}
	m.release(s)
	m.failAttach(s, err)
	m.free(s)
}

// undoPlug deletes what the steps before the failed one have made.
func (m *machine) undoPlug(s *Slot, e PlugFailed) {
	if e.Step > StepNetdev || e.Step == StepNetdev && e.Uncertain {
		m.do(NetdevDel{ID: s.NetdevID()})
	}
	if e.Step > StepTAP || e.Uncertain {
		m.do(DelTAP{TAP: s.TAP(m.config.Prefix)})
	}
}
