package hotplug

import (
	"fmt"
	"slices"
)

// Step returns the state after e and the actions that e calls for, to be
// performed in their order.
func Step(s State, e Event) (State, []Action) {
	s.slots = slices.Clone(s.slots)
	s.queue = slices.Clone(s.queue)
	m := machine{State: s}
	e.apply(&m)
	m.serveQueue()
	return m.State, m.actions
}

// machine is a state in the middle of a step.
type machine struct {
	State
	actions []Action
}

func (m *machine) do(a ...Action) { m.actions = append(m.actions, a...) }

// holder returns the slot that key has or is losing. A key whose slot is
// quarantined holds none.
func (m *machine) holder(key Key) *Slot {
	for i := range m.slots {
		s := &m.slots[i]
		if s.Key == key && s.Device != "" && s.Status != Quarantined {
			return s
		}
	}
	return nil
}

// occupied returns the slot in which o is with the given status, or nil.
func (m *machine) occupied(o Occupant, status Status) *Slot {
	if o.Slot < 1 || o.Slot > len(m.slots) {
		return nil
	}
	s := &m.slots[o.Slot-1]
	if s.Occupant != o || s.Status != status {
		return nil
	}
	return s
}

// holding returns the slot that the device is in, or nil. Nameless inner parts
// of devices (QEMU's "") are in none.
func (m *machine) holding(device string) *Slot {
	for i := range m.slots {
		if device != "" && m.slots[i].Device == device {
			return &m.slots[i]
		}
	}
	return nil
}

func (e Attach) apply(m *machine) {
	err := validateOwner(e.Key, e.Note)
	s := m.holder(e.Key)
	switch {
	case err != nil:
		m.do(Reply{Request: e.Request, Key: e.Key, Err: fmt.Errorf("attach: %w", err)})
	case s == nil:
		m.give(e)
	case !s.mayWait():
		m.refuse(e, ErrDetaching)
	default:
		s.attach = with(s.attach, waiter{request: e.Request, note: e.Note})
		if s.Status == Plugged {
			m.serve(s)
		}
	}
}

func (m *machine) refuse(e Attach, err error) {
	m.do(Reply{Request: e.Request, Key: e.Key, Err: fmt.Errorf("attach %s: %w", e.Key, err)})
}

// with returns list with v added; states before this step keep theirs.
func with[T any](list []T, v T) []T { return append(slices.Clip(list), v) }

func (e Detach) apply(m *machine) {
	if err := e.Key.Validate(); err != nil {
		m.do(Reply{Request: e.Request, Key: e.Key, Err: fmt.Errorf("detach: %w", err)})
		return
	}
	s := m.holder(e.Key)
	if s == nil {
		m.failQueue(ErrDetached, func(a Attach) bool { return a.Key == e.Key })
		m.do(Reply{Request: e.Request, Key: e.Key})
		return
	}
	s.detach = with(s.detach, e.Request)
	switch s.Status {
	case Plugging, Connecting: // its end begins the unplug
		m.failAttach(s, ErrDetached)
	case Plugged:
		m.unplug(s)
	}
}

// A reset makes QEMU complete the unplugs that it knows of; the guest that
// starts forgets the others, so they are asked for once more. The tries are not
// counted anew: a guest that resets for ever is quarantined like any other.
//
// Who waits for an attachment is gone with the guest. A plug on its way goes on,
// for the pool, or to be undone; a connect has to end before it can be undone.
func (GuestReset) apply(m *machine) {
	m.failQueue(ErrGuestReset, anyAttach)
	var asked, ended []*Slot
	for i := range m.slots {
		s := &m.slots[i]
		m.lose(s)
		switch {
		case s.Status == Plugging && !s.bound:
			m.release(s)
			m.failAttach(s, ErrGuestReset)
			m.disown(s)
		case s.Status == Connecting || s.Status == Plugging:
			m.failAttach(s, ErrGuestReset)
			s.reset = true
		case s.Status == Plugged && s.bound:
			ended = append(ended, s)
		case s.Status == Plugged:
			m.retire(s)
		case s.Status == Unplugging || s.Status == Quarantined:
			if s.tries > 0 {
				asked = append(asked, s)
			}
		case s.Status == Resting: // the guest has forgotten its notes
			m.free(s)
		}
	}
	for _, s := range asked {
		s.crowded = len(asked) > 1
		m.do(DeviceDel{ID: s.Device})
	}
	for _, s := range ended {
		m.unplug(s)
	}
}

// free empties a slot.
func (m *machine) free(s *Slot) {
	m.replyDetach(s, nil)
	*s = Slot{Occupant: Occupant{Slot: s.Slot}, last: s.last}
}

// lose tells that the slot's attachment ends unasked, if it has one.
func (m *machine) lose(s *Slot) {
	if s.connected() {
		m.do(Lost{Attachment: m.attachment(s)})
	}
}

// release tells that the host's side of the slot's attachment has gone.
func (m *machine) release(s *Slot) {
	if s.Key != (Key{}) {
		m.do(Released{Key: s.Key, Note: s.Note})
	}
}

// failAttach answers all who wait for the plug or the connect.
func (m *machine) failAttach(s *Slot, err error) {
	for _, w := range s.attach {
		m.fail(s, w, err)
	}
	s.attach = nil
}

func (m *machine) fail(s *Slot, w waiter, err error) {
	m.do(Reply{Request: w.request, Key: s.Key, Err: fmt.Errorf("attach %s: %w", s.Key, err)})
}

// replyDetach answers all who wait for the unplug.
func (m *machine) replyDetach(s *Slot, err error) {
	for _, r := range s.detach {
		m.do(Reply{Request: r, Key: s.Key, Err: err})
	}
	s.detach = nil
}
