package hotplug

import (
	"slices"

	"unnest.io/unnest/internal/hostd/attachment"
)

// serveQueue plugs the devices that wait for a slot, unplugs as many warm NICs as
// have to make room, and refuses requests for which no slot will become free.
func (m *machine) serveQueue() {
	for i := m.served(); i >= 0; i = m.served() {
		e := m.queue[i]
		m.queue = slices.Delete(m.queue, i, i+1)
		e.apply(m)
	}
	coming := m.coming()
	for coming < len(m.queue) {
		warm := m.oldest(Warm)
		if warm == nil {
			break
		}
		m.unplug(warm)
		coming++
	}
	for len(m.queue) > coming {
		last := m.queue[len(m.queue)-1]
		m.queue = m.queue[:len(m.queue)-1]
		m.refuseFull(last)
	}
}

// served returns the index of the first request that need not wait any longer, because
// a slot is free or its key has a device by now, or -1.
func (m *machine) served() int {
	free := slices.ContainsFunc(m.slots, func(s Slot) bool { return s.Status == Free })
	return slices.IndexFunc(m.queue, func(e Attach) bool { return free || m.holder(e.Key) != nil })
}

// coming counts the slots that may become free soon. A NIC that is being plugged for
// the pool counts, because serveQueue unplugs it once it is warm.
func (m *machine) coming() int {
	n := 0
	for _, s := range m.slots {
		if s.Status == Unplugging || s.Status == Cooling || s.Status == Plugging && s.Key == (attachment.Key{}) {
			n++
		}
	}
	return n
}

// cooling counts the slots that are free in a few seconds. A daemon that starts has all of them.
func (m *machine) cooling() int {
	n := 0
	for _, s := range m.slots {
		if s.Status == Cooling {
			n++
		}
	}
	return n
}

// failQueue fails the matching queued requests.
func (m *machine) failQueue(err error, match func(Attach) bool) {
	m.queue = slices.DeleteFunc(m.queue, func(e Attach) bool {
		if match(e) {
			m.refuse(e, err)
		}
		return match(e)
	})
}
