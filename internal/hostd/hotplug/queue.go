package hotplug

import "slices"

// serveQueue plugs the bound NICs that wait for a slot, has as many warm NICs make
// room as are needed, and refuses those for which no slot is on its way.
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

// served returns the index of the first who need not wait any longer, because there
// is a slot or the key has got one by now, or -1.
func (m *machine) served() int {
	free := slices.ContainsFunc(m.slots, func(s Slot) bool { return s.Status == Free })
	return slices.IndexFunc(m.queue, func(e Attach) bool { return free || m.holder(e.Key) != nil })
}

// coming counts the slots that may become free soon, or could by an unplug that
// serveQueue begins when their NIC is warm.
func (m *machine) coming() int {
	n := 0
	for _, s := range m.slots {
		switch s.Status {
		case Unplugging, Resting:
			n++
		case Plugging:
			if s.Key == (Key{}) {
				n++
			}
		}
	}
	return n
}

// failQueue answers those who wait for a slot and are meant.
func (m *machine) failQueue(err error, meant func(Attach) bool) {
	m.queue = slices.DeleteFunc(m.queue, func(e Attach) bool {
		if meant(e) {
			m.refuse(e, err)
		}
		return meant(e)
	})
}

func anyAttach(Attach) bool { return true }
