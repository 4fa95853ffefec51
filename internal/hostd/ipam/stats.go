package ipam

import "time"

// Stats counts addresses.
type Stats struct {
	InUse   int // held by owners, also outside the ranges
	Cooling int
	Ranges  []RangeStats // in the order of New
}

// RangeStats counts the addresses of one range.
type RangeStats struct {
	Range   Range
	InUse   int
	Cooling int
	Free    uint64 // can be allocated now; at most math.MaxUint64
}

// Stats counts the addresses by their state.
func (p *Pool) Stats(now time.Time) Stats {
	p.expire(now)
	stats := Stats{InUse: len(p.holders)}
	for _, s := range p.spans {
		stats.Cooling += len(s.cooling.of)
		stats.Ranges = append(stats.Ranges, RangeStats{Range: s.Range, InUse: s.held, Cooling: len(s.cooling.of), Free: size(s.first, s.last) - s.count})
	}
	return stats
}

// Cooling returns the cooling addresses, for Restore.
func (p *Pool) Cooling(now time.Time) []Cooling {
	p.expire(now)
	var all []Cooling
	for _, s := range p.spans {
		all = append(all, s.cooling.list()...)
	}
	return all
}

// Restore continues the cool-downs of an earlier pool, none for longer than this pool's
// cool-down: the clock may have been set back. It ignores addresses that are taken or
// in no range. If an address is cooling already, the later time counts.
func (p *Pool) Restore(cooling []Cooling, now time.Time) {
	for _, c := range cooling {
		c.Addr = c.Addr.Unmap()
		// The result is relative to now's monotonic clock, if now has one.
		c.Until = now.Add(min(c.Until.Sub(now), p.cooldown))
		s := p.span(c.Addr)
		_, held := p.holders[c.Addr]
		_, reserved := p.reserved[c.Addr]
		if s == nil || held || reserved || !c.Until.After(now) || s.cooling.of[c.Addr].Until.After(c.Until) {
			continue
		}
		s.warm(c.Addr)
		s.cool(c)
	}
}
