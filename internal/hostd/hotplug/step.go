package hotplug

import (
	"fmt"
	"slices"

	"unnest.io/unnest/internal/hostd/attachment"
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

// holder returns the slot that key has or is losing. The key of a quarantined NIC has
// none: the NIC is cut off, and the key may have another. A quarantined share keeps
// its key, because it is still in use and the VMM has its ID only once.
func (m *machine) holder(key attachment.Key) *Slot {
	for i := range m.slots {
		s := &m.slots[i]
		if s.Key == key && s.Device != "" && (s.Status != Quarantined || m.config.Shares) {
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
	err := attachment.Check(e.Key, e.Record)
	s := m.holder(e.Key)
	switch {
	case err != nil:
		m.do(Reply{Request: e.Request, Key: e.Key, Err: fmt.Errorf("attach: %w", err)})
	case s == nil:
		m.assign(e)
	case !s.mayWait():
		m.refuse(e, ErrDetaching)
	default:
		s.attach = with(s.attach, waiter{request: e.Request, record: e.Record})
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
	case Plugging, Connecting: // the unplug begins when this ends
		m.failAttach(s, ErrDetached)
	case Plugged:
		m.unplug(s)
	case Quarantined: // a share, which is asked for again
		s.tries = 0
		m.unplug(s)
	}
}

// A reset makes QEMU complete the unplugs that it knows of. The guest loses the
// others, so they are requested again. The tries are not reset: a guest that resets
// for ever is quarantined like any other.
//
// Requests for an attachment fail, because whoever made them is gone with the guest. A
// plug under way goes on, for the pool, or to be undone; a connect has to end before
// it can be undone.
//
// Shares do not change: the next try asks again for those that are being unplugged.
func (GuestReset) apply(m *machine) {
	if m.config.Shares {
		return
	}
	var asked []*Slot
	for i := range m.slots {
		if s := &m.slots[i]; s.tries > 0 && (s.Status == Unplugging || s.Status == Quarantined) {
			asked = append(asked, s)
		}
	}
	endpoints := m.endAttachments()
	for _, s := range asked {
		s.rescan = len(asked) > 1
		m.do(DeviceDel{ID: s.Device})
	}
	for _, s := range endpoints {
		m.unplug(s)
	}
}

// endAttachments ends the attachments of a guest that was reset. It returns the
// endpoints to unplug.
func (m *machine) endAttachments() (endpoints []*Slot) {
	m.failQueue(ErrGuestReset, func(Attach) bool { return true })
	for i := range m.slots {
		s := &m.slots[i]
		m.reportLost(s, true)
		switch {
		case s.Status == Plugging && !s.endpoint:
			m.release(s)
			m.failAttach(s, ErrGuestReset)
			m.clearOwner(s)
		case s.Status == Connecting || s.Status == Plugging:
			m.failAttach(s, ErrGuestReset)
			s.reset = true
		case s.Status == Plugged && s.endpoint:
			endpoints = append(endpoints, s)
		case s.Status == Plugged:
			m.returnToPool(s)
		case s.Status == Cooling: // the guest has forgotten its queue of ejections
			m.free(s)
		}
	}
	return endpoints
}

// free empties a slot.
func (m *machine) free(s *Slot) {
	m.replyDetach(s, nil)
	*s = Slot{Occupant: Occupant{Slot: s.Slot}, last: s.last}
}

// reportLost reports that the slot's attachment ends unasked, if it has one. reset says
// that the guest was reset.
func (m *machine) reportLost(s *Slot, reset bool) {
	if s.connected() {
		m.do(Lost{Attachment: m.attachment(s), Reset: reset})
	}
}

// release reports that the host's side of the slot's attachment is gone.
func (m *machine) release(s *Slot) {
	if s.Key != (attachment.Key{}) {
		m.do(Released{Key: s.Key, Record: s.Record})
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
