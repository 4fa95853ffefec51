package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// span holds the state of the addresses of one range.
type span struct {
	Range
	first, last netip.Addr
	cursor      netip.Addr // where the search for a free address begins
	taken       runs       // held, reserved or cooling
	held        int        // number of held addresses
	cooling     []Cooling  // sorted by time and address
	until       map[netip.Addr]time.Time
}

func newSpan(r Range) *span {
	s := &span{Range: r, until: map[netip.Addr]time.Time{}}
	s.first, s.last = r.bounds()
	s.cursor = s.first
	return s
}

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

func byTime(a, b Cooling) int {
	return cmp.Or(a.Until.Compare(b.Until), a.Addr.Compare(b.Addr))
}

// cool marks an address that is not taken as cooling.
func (s *span) cool(c Cooling) {
	s.taken.add(c.Addr)
	s.until[c.Addr] = c.Until
	i, _ := slices.BinarySearchFunc(s.cooling, c, byTime)
	s.cooling = slices.Insert(s.cooling, i, c)
}

// warm ends the cool-down of an address, if it is cooling.
func (s *span) warm(a netip.Addr) {
	until, ok := s.until[a]
	if !ok {
		return
	}
	i, _ := slices.BinarySearchFunc(s.cooling, Cooling{a, until}, byTime)
	s.cooling = slices.Delete(s.cooling, i, i+1)
	delete(s.until, a)
	s.taken.remove(a)
}

// expire ends the cool-downs of which the time has come.
func (s *span) expire(now time.Time) {
	n := 0
	for ; n < len(s.cooling) && !s.cooling[n].Until.After(now); n++ {
		delete(s.until, s.cooling[n].Addr)
		s.taken.remove(s.cooling[n].Addr)
	}
	s.cooling = slices.Delete(s.cooling, 0, n)
}

// available returns how many addresses of the range are free.
func (s *span) available() uint64 {
	n := size(s.first, s.last)
	for _, r := range s.taken {
		n -= size(r.first, r.last)
	}
	return n
}
