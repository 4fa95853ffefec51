package hotplug

import "unnest.io/unnest/internal/hostd/attachment"

// connect begins to connect the slot's NIC to its key, with a record.
func (m *machine) connect(s *Slot, record attachment.Record) {
	s.Status, s.pending = Connecting, record
	c := Connect{Attachment: m.attachment(s), Change: s.changing()}
	c.Record = record
	if c.Change {
		c.Was = s.Record
	}
	m.do(c)
}

// serve answers the requests for the slot's attachment, up to one that wants another
// record: then that is set first.
func (m *machine) serve(s *Slot) {
	s.Status = Plugged
	for len(s.attach) > 0 {
		w := s.attach[0]
		if !w.record.IsZero() && !w.record.Equal(s.Record) {
			m.connect(s, w.record)
			return
		}
		m.do(Reply{Request: w.request, Key: s.Key, Attachment: m.attachment(s)})
		s.attach = s.attach[1:]
	}
}

func (e Connected) apply(m *machine) {
	s := m.occupied(e.Occupant, Connecting)
	if s == nil {
		return
	}
	s.Record = s.pending
	switch {
	case s.reset && !s.endpoint:
		m.returnToPool(s)
	case s.reset, len(s.detach) > 0:
		m.unplug(s)
	default:
		m.serve(s)
	}
}

// The NIC of a new attachment is unplugged, not returned to the pool, because the NIC
// may be the cause of the failure.
func (e ConnectFailed) apply(m *machine) {
	s := m.occupied(e.Occupant, Connecting)
	if s == nil {
		return
	}
	err := &ConnectError{Occupant: e.Occupant, Err: e.Err}
	if !s.changing() || s.reset || len(s.detach) > 0 {
		m.failAttach(s, err)
		m.unplug(s)
		return
	}
	for len(s.attach) > 0 && s.attach[0].record.Equal(s.pending) {
		m.fail(s, s.attach[0], err)
		s.attach = s.attach[1:]
	}
	m.serve(s)
}

func (m *machine) disconnect(s *Slot) { m.do(Disconnect{Attachment: m.attachment(s)}) }
