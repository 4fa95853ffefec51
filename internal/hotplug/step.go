package hotplug

import (
	"fmt"
	"slices"
)

// Step returns the state after e and the actions that e calls for, to be
// performed in their order.
func Step(s State, e Event) (State, []Action) {
	s.slots = slices.Clone(s.slots)
	m := machine{State: s}
	e.apply(&m)
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
		if s.Key == key && (s.Status == Plugging || s.Status == Plugged || s.Status == Unplugging) {
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
	err := e.Key.Validate()
	s := m.holder(e.Key)
	switch {
	case err != nil:
		m.do(Reply{Request: e.Request, Key: e.Key, Err: fmt.Errorf("attach: %w", err)})
	case m.gone:
		m.refuse(e, ErrGuestGone)
	case s == nil:
		m.plug(e)
	case s.Status == Plugged:
		m.do(Reply{Request: e.Request, Key: e.Key, Attachment: m.attachment(s)})
	case s.Status == Plugging && len(s.detach) == 0:
		s.attach = with(s.attach, e.Request)
	default:
		m.refuse(e, ErrDetaching)
	}
}

func (m *machine) refuse(e Attach, err error) {
	m.do(Reply{Request: e.Request, Key: e.Key, Err: fmt.Errorf("attach %s: %w", e.Key, err)})
}

// with returns list with r added; states before this step keep theirs.
func with(list []RequestID, r RequestID) []RequestID { return append(slices.Clip(list), r) }

func (e Detach) apply(m *machine) {
	if err := e.Key.Validate(); err != nil {
		m.do(Reply{Request: e.Request, Key: e.Key, Err: fmt.Errorf("detach: %w", err)})
		return
	}
	s := m.holder(e.Key)
	if s == nil {
		m.do(Reply{Request: e.Request, Key: e.Key})
		return
	}
	s.detach = with(s.detach, e.Request)
	switch s.Status {
	case Plugging: // its end begins the unplug
		m.replyAttach(s, ErrDetached)
	case Plugged:
		m.unplug(s)
	}
}

// A reset makes QEMU complete the unplugs that it knows of; the guest that
// starts forgets the others, so they are asked for once more. The tries are not
// counted anew: a guest that resets for ever is quarantined like any other.
func (GuestReset) apply(m *machine) {
	for i := range m.slots {
		s := &m.slots[i]
		if s.Status == Unplugging {
			m.do(DeviceDel{ID: s.Device})
		}
		m.askAgain(s)
	}
}

func (GuestGone) apply(m *machine) {
	m.gone = true
	for i := range m.slots {
		s := &m.slots[i]
		if s.Status == Free {
			continue
		}
		if s.Status != Quarantined { // the netdev went with QEMU
			m.do(DelTAP{Name: s.TAP(m.config.Prefix)})
		}
		m.replyAttach(s, ErrGuestGone)
		m.free(s)
	}
}

// free empties a slot.
func (m *machine) free(s *Slot) {
	m.replyDetach(s, nil)
	*s = Slot{Occupant: Occupant{Slot: s.Slot}, last: s.last}
}

// replyAttach answers all who wait for the plug.
func (m *machine) replyAttach(s *Slot, err error) {
	for _, r := range s.attach {
		reply := Reply{Request: r, Key: s.Key}
		if err == nil {
			reply.Attachment = m.attachment(s)
		} else {
			reply.Err = fmt.Errorf("attach %s: %w", s.Key, err)
		}
		m.do(reply)
	}
	s.attach = nil
}

// replyDetach answers all who wait for the unplug.
func (m *machine) replyDetach(s *Slot, err error) {
	for _, r := range s.detach {
		m.do(Reply{Request: r, Key: s.Key, Err: err})
	}
	s.detach = nil
}
