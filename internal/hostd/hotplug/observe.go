package hotplug

import (
	"maps"
	"slices"
)

// sight is what was seen of one slot, by generation.
type sight struct {
	devices map[uint32]bool
	taps    map[uint32]ObservedTAP
	foreign []string // devices in the slot that are none of ours
}

func (e Observed) apply(m *machine) {
	sights := m.sights(e)
	numbers := slices.Sorted(maps.Keys(sights))
	for i := range m.slots {
		m.observe(&m.slots[i], sights[i+1])
	}
	for _, n := range numbers {
		if n > len(m.slots) { // of a run of the guest with more slots
			m.removeRest(&Slot{Occupant: Occupant{Slot: n}}, sights[n])
		}
	}
	if !m.known {
		m.known = true
		m.restUnknown(sights)
	}
}

// restUnknown has every empty slot rest when a guest is taken over that has NICs:
// who made them may have asked for others just before.
func (m *machine) restUnknown(sights map[int]*sight) {
	used := false
	for _, seen := range sights {
		used = used || len(seen.devices) > 0
	}
	for i := range m.slots {
		if s := &m.slots[i]; used && s.Status == Free {
			m.rest(s)
		}
	}
}

// sights sorts what was seen by slot. Every slot of the state has one.
func (m *machine) sights(e Observed) map[int]*sight {
	sights := map[int]*sight{}
	at := func(slot int) *sight {
		if sights[slot] == nil {
			sights[slot] = &sight{devices: map[uint32]bool{}, taps: map[uint32]ObservedTAP{}}
		}
		return sights[slot]
	}
	for i := range m.slots {
		at(i + 1)
	}
	for _, d := range e.Devices {
		if o, ours := parseOccupant(d.ID, devicePrefix); ours && o.Slot == d.Slot {
			at(d.Slot).devices[o.Generation] = true
		} else {
			at(d.Slot).foreign = append(at(d.Slot).foreign, d.ID)
		}
	}
	for _, t := range e.TAPs {
		if o, ours := parseOccupant(t.Name, m.config.Prefix); ours {
			at(o.Slot).taps[o.Generation] = t
		}
	}
	return sights
}

// observe brings one slot in line with what was seen of it.
func (m *machine) observe(s *Slot, seen *sight) {
	before := s.last
	for _, g := range seen.generations() {
		s.last = max(s.last, g)
	}
	switch {
	case s.Device == "" || s.Status == Plugging:
	case !seen.has(s):
		if s.Status != Quarantined { // its TAP should be gone: removeRest sees to it
			delete(seen.taps, s.Generation)
		}
		m.deleted(s)
	case (s.Status == Plugged || s.Status == Warm) && !seen.hasTAP(s):
		m.lose(s)
		m.unplug(s)
	case s.Status == Warm:
		m.disconnect(s)
	}
	if s.Device == "" && !seen.empty() {
		m.adopt(s, seen, before)
	}
	m.removeRest(s, seen)
}

// adopt takes over a device seen in a free slot: plugged when its owner is
// known, warm when it has none, else to be unplugged. A generation up to used is
// one that this state has given up already.
func (m *machine) adopt(s *Slot, seen *sight, used uint32) {
	if len(seen.devices) == 0 {
		s.Status, s.Device = Quarantined, seen.foreign[0]
		return
	}
	s.Generation = slices.Max(slices.Collect(maps.Keys(seen.devices)))
	s.Device = s.DeviceID()
	tap := seen.taps[s.Generation] // empty without TAP
	key, note, known := ParseOwner(tap.Owner)
	s.bound = tap.Bound
	switch {
	case s.Generation <= used:
		m.unplug(s)
	case tap.Owner == WarmOwner && !s.bound:
		m.disconnect(s)
		m.pool(s)
	case known && m.holder(key) == nil:
		s.Status, s.Key, s.Note = Plugged, key, note
		m.do(Adopted{Attachment: m.attachment(s)})
	default:
		m.unplug(s)
	}
}

// removeRest removes what was seen of a slot beside its occupant: NICs that a
// plug or an unplug left behind.
func (m *machine) removeRest(s *Slot, seen *sight) {
	for _, g := range seen.generations() {
		o := Occupant{Slot: s.Slot, Generation: g}
		_, hasTAP := seen.taps[g]
		present := o == s.Occupant
		if present && !(s.Status == Quarantined && hasTAP) {
			continue
		}
		if seen.devices[g] && !present {
			m.crowd()
			m.do(DeviceDel{ID: o.DeviceID()})
		}
		m.do(NetdevDel{ID: o.NetdevID()})
		if hasTAP {
			m.do(DelTAP{Name: o.TAP(m.config.Prefix)})
		}
	}
}

// generations lists those seen of the slot, in their order.
func (v *sight) generations() []uint32 {
	all := maps.Clone(v.devices)
	for g := range v.taps {
		all[g] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// has reports whether the device of a slot that is not free was seen.
func (v *sight) has(s *Slot) bool {
	return v.devices[s.Generation] || s.Generation == 0 && slices.Contains(v.foreign, s.Device)
}

// empty reports whether there was no device in the slot.
func (v *sight) empty() bool { return len(v.devices)+len(v.foreign) == 0 }

func (v *sight) hasTAP(s *Slot) bool {
	_, ok := v.taps[s.Generation]
	return ok
}
