package hotplug

import (
	"maps"
	"slices"

	"unnest.io/unnest/internal/hostd/attachment"
)

// sighting is what was seen of one slot, by generation.
type sighting struct {
	devices map[uint32]bool
	taps    map[uint32]ObservedTAP
	share   attachment.Key // in the port, if it has a device of ours
	foreign []string       // devices in the slot that are not ours
}

func (e Observed) apply(m *machine) {
	sightings := m.sightings(e)
	numbers := slices.Sorted(maps.Keys(sightings))
	for i := range m.slots {
		m.observe(&m.slots[i], sightings[i+1])
	}
	for _, n := range numbers {
		if n > len(m.slots) { // of an earlier run of the guest, with more slots
			m.removeLeftovers(&Slot{Occupant: Occupant{Slot: n}}, sightings[n])
		}
	}
	if !m.known {
		m.known = true
		m.coolUnknown(sightings)
	}
}

// coolUnknown cools down every empty slot of a guest that has devices when it is first
// seen: whoever plugged them may have asked for others just before.
func (m *machine) coolUnknown(sightings map[int]*sighting) {
	used := false
	for _, seen := range sightings {
		used = used || len(seen.devices) > 0
	}
	for i := range m.slots {
		if s := &m.slots[i]; used && s.Status == Free {
			m.coolDown(s)
		}
	}
}

// sightings sorts what was seen by slot. Every slot of the state has one.
func (m *machine) sightings(e Observed) map[int]*sighting {
	sightings := map[int]*sighting{}
	at := func(slot int) *sighting {
		if sightings[slot] == nil {
			sightings[slot] = &sighting{devices: map[uint32]bool{}, taps: map[uint32]ObservedTAP{}}
		}
		return sightings[slot]
	}
	for i := range m.slots {
		at(i + 1)
	}
	for _, d := range e.Devices {
		seen := at(d.Slot)
		if generation := m.generation(d); generation > 0 {
			seen.devices[generation], seen.share = true, d.Key
		} else {
			seen.foreign = append(seen.foreign, d.ID)
		}
	}
	for _, t := range e.TAPs {
		if o, ours := parseOccupant(t.Name, m.config.Prefix); ours && !m.config.Shares {
			at(o.Slot).taps[o.Generation] = t
		}
	}
	return sightings
}

// generation returns which of its slot's occupants a device is, 0 for a foreign one. A
// NIC's ID says it. A share's ID names the key: a key that the slot does not have
// is the next occupant's.
func (m *machine) generation(d ObservedDevice) uint32 {
	if !m.config.Shares {
		if o, ours := parseOccupant(d.ID, devicePrefix); ours && o.Slot == d.Slot {
			return o.Generation
		}
		return 0
	}
	if d.Key == (attachment.Key{}) || d.Slot > len(m.slots) {
		return 0
	}
	s := &m.slots[d.Slot-1]
	if s.Key == d.Key && s.Device != "" {
		return s.Generation
	}
	return following(s.last)
}

// observe brings one slot in line with what was seen of it.
func (m *machine) observe(s *Slot, seen *sighting) {
	before := s.last
	for _, g := range seen.generations() {
		s.last = max(s.last, g)
	}
	switch {
	case s.Device == "" || s.Status == Plugging:
	case !seen.has(s):
		delete(seen.taps, s.Generation)
		m.deleted(s)
	case m.config.Shares:
	case (s.Status == Plugged || s.Status == Warm) && !seen.hasTAP(s):
		m.reportLost(s, false)
		m.unplug(s)
	case s.Status == Warm:
		m.disconnect(s)
	}
	if s.Device == "" && len(seen.devices)+len(seen.foreign) > 0 {
		m.adopt(s, seen, before)
	}
	if !m.config.Shares {
		m.removeLeftovers(s, seen)
	}
}

// adopt takes over a device seen in a free slot: plugged when its owner is
// known, warm when its TAP is marked so, else to be unplugged. This state has already
// removed the generations up to used.
func (m *machine) adopt(s *Slot, seen *sighting, used uint32) {
	if len(seen.devices) == 0 {
		s.Status, s.Device = Foreign, seen.foreign[0]
		return
	}
	s.Generation = slices.Max(slices.Collect(maps.Keys(seen.devices)))
	s.Device = s.DeviceID()
	tap := seen.taps[s.Generation] // zero without TAP
	s.endpoint = tap.Key.Kind == attachment.Endpoint
	s.Record = tap.Record // an unplug ends its service addresses
	switch {
	case m.config.Shares:
		s.Device = seen.share.String()
		m.take(s, seen.share, attachment.Record{})
	case s.Generation <= used:
		m.unplug(s)
	case tap.Warm && !s.endpoint:
		m.disconnect(s)
		m.pool(s)
	case tap.Key.Owner != "" && m.holder(tap.Key) == nil:
		m.take(s, tap.Key, tap.Record)
	default:
		m.unplug(s)
	}
}

// take takes over an attachment that this state did not make.
func (m *machine) take(s *Slot, key attachment.Key, record attachment.Record) {
	s.Status, s.Key, s.Record = Plugged, key, record
	m.do(Adopted{Attachment: m.attachment(s)})
}

// removeLeftovers removes what was seen of a slot and does not belong to its occupant:
// NICs that a plug or an unplug left behind.
func (m *machine) removeLeftovers(s *Slot, seen *sighting) {
	for _, g := range seen.generations() {
		o := Occupant{Slot: s.Slot, Generation: g}
		t, hasTAP := seen.taps[g]
		present := o == s.Occupant
		if present && !(s.Status == Quarantined && hasTAP) {
			continue
		}
		if seen.devices[g] && !present {
			m.rescan()
			m.do(DeviceDel{ID: o.DeviceID()})
		}
		if hasTAP && (seen.devices[g] || len(t.Record.Services) > 0) { // see deleteNIC
			m.do(CutTAP{TAP: o.TAP(m.config.Prefix)})
		}
		m.do(NetdevDel{ID: o.NetdevID()})
		if hasTAP && !seen.devices[g] {
			m.do(DelTAP{TAP: o.TAP(m.config.Prefix)})
		}
	}
}

// generations lists those seen of the slot, in their order.
func (v *sighting) generations() []uint32 {
	all := maps.Clone(v.devices)
	for g := range v.taps {
		all[g] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// has reports whether the device of a slot that is not free was seen.
func (v *sighting) has(s *Slot) bool {
	return v.devices[s.Generation] || s.Generation == 0 && slices.Contains(v.foreign, s.Device)
}

func (v *sighting) hasTAP(s *Slot) bool {
	_, ok := v.taps[s.Generation]
	return ok
}
