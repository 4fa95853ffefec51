package hotplug

// connect begins to make the slot's NIC its key's, with a note.
func (m *machine) connect(s *Slot, note string) {
	s.Status, s.pending = Connecting, note
	c := Connect{Attachment: m.attachment(s), Owner: Owner(s.Key, note), Change: s.changing()}
	c.Note = note
	if c.Change {
		c.Was = s.Note
	}
	m.do(c)
}

// serve answers those who wait for the slot's attachment, until one of them
// wants another note.
func (m *machine) serve(s *Slot) {
	s.Status = Plugged
	for len(s.attach) > 0 {
		w := s.attach[0]
		if w.note != "" && w.note != s.Note {
			m.connect(s, w.note)
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
	s.Note = s.pending
	switch {
	case s.reset && !s.bound:
		m.retire(s)
	case s.reset, len(s.detach) > 0:
		m.unplug(s)
	default:
		m.serve(s)
	}
}

// A new attachment's NIC is unplugged, not put back into the pool: who knows what
// is wrong with it.
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
	for len(s.attach) > 0 && s.attach[0].note == s.pending {
		m.fail(s, s.attach[0], err)
		s.attach = s.attach[1:]
	}
	m.serve(s)
}

// retire ends the slot's attachment and leaves the NIC to the pool.
func (m *machine) retire(s *Slot) {
	m.disconnect(s)
	m.release(s)
	m.disown(s)
	m.pool(s)
}

func (m *machine) disconnect(s *Slot) {
	d := Disconnect{Attachment: m.attachment(s), Owner: WarmOwner}
	if s.bound {
		d.Owner = ""
	}
	m.do(d)
}

// disown takes the slot's NIC from its key.
func (m *machine) disown(s *Slot) {
	m.replyDetach(s, nil)
	s.Key, s.Note, s.pending, s.reset = Key{}, "", "", false
}
