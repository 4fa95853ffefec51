package ipam

import (
	"net/netip"
	"time"
)

// span holds the state of the addresses of one range.
type span struct {
	Range
	first, last netip.Addr
	cursor      netip.Addr // where the search for a free address begins
	taken       runs       // held, reserved or cooling
	count       uint64     // number of taken addresses
	held        int        // number of held addresses
	cooling     *rests
}

func newSpan(r Range) *span {
	s := &span{Range: r, taken: newRuns(byFirst)}
	s.first, s.last = r.bounds()
	s.cursor = s.first
	s.cooling = newRests(guestCooling(size(s.first, s.last)), byTime)
	return s
}

// guestCooling returns how many addresses of a range may cool down because of one
// guest: an eighth of them, at least 1 and at most 4096. So a guest that attaches and
// detaches without end leaves addresses for the other guests of its tenant.
func guestCooling(addresses uint64) int { return int(min(max(addresses/8, 1), 4096)) }

func (s *span) contains(a netip.Addr) bool { return between(s.first, a, s.last) }

// free returns the first free address at or after the cursor, or from the start of the
// range, or false.
func (s *span) free() (netip.Addr, bool) {
	for _, from := range []netip.Addr{s.cursor, s.first} {
		if a := s.taken.next(from); s.contains(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// advance moves the cursor behind an allocated address.
func (s *span) advance(a netip.Addr) {
	s.cursor = a.Next()
	if !s.contains(s.cursor) {
		s.cursor = s.first
	}
}

// take marks an address that is not taken.
func (s *span) take(a netip.Addr) {
	s.taken.add(a)
	s.count++
}

// giveBack marks a taken address as free.
func (s *span) giveBack(a netip.Addr) {
	s.taken.remove(a)
	s.count--
}

// cool marks an address that is not taken as cooling.
func (s *span) cool(c Cooling) {
	s.take(c.Addr)
	if oldest, full := s.cooling.add(c); full {
		s.giveBack(oldest)
	}
}

// warm ends the cool-down of an address. It returns what it ended, if the address was
// cooling.
func (s *span) warm(a netip.Addr) Cooling {
	c, ok := s.cooling.remove(a)
	if ok {
		s.giveBack(a)
	}
	return c
}

// expire ends the cool-downs of which the time has come. None lasts longer than the
// cool-down from now.
func (s *span) expire(now time.Time, cooldown time.Duration) {
	s.cooling.limit(now.Add(cooldown))
	for a, ok := s.cooling.expired(now); ok; a, ok = s.cooling.expired(now) {
		s.giveBack(a)
	}
}
