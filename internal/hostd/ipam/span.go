package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// span is the addresses of one range: which are taken, by whatever, and which of
// these cool down.
type span struct {
	Range
	first, last netip.Addr
	cursor      netip.Addr // where the search for a free address begins
	taken       runs
	held        int       // of taken: by owners
	cooling     []Cooling // of taken: free again at their time; in the order of time and address
	until       map[netip.Addr]time.Time
}

func newSpan(r Range) *span {
	s := &span{Range: r, until: map[netip.Addr]time.Time{}}
	s.first, s.last = r.bounds()
	s.cursor = s.first
	return s
}

func (s *span) contains(a netip.Addr) bool { return between(s.first, a, s.last) }

// free returns the first free address from the cursor on, around the end of the
// range; false when there is none.
func (s *span) free() (netip.Addr, bool) {
	for _, from := range []netip.Addr{s.cursor, s.first} {
		if a := s.taken.next(from); s.contains(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// advance moves the cursor behind an address that is given.
func (s *span) advance(a netip.Addr) {
	s.cursor = a.Next()
	if !s.contains(s.cursor) {
		s.cursor = s.first
	}
}

func byTime(a, b Cooling) int {
	return cmp.Or(a.Until.Compare(b.Until), a.Addr.Compare(b.Addr))
}

// cool keeps an address, which is not taken, until its time has come.
func (s *span) cool(c Cooling) {
	s.taken.add(c.Addr)
	s.until[c.Addr] = c.Until
	i, _ := slices.BinarySearchFunc(s.cooling, c, byTime)
	s.cooling = slices.Insert(s.cooling, i, c)
}

// warm ends the cool-down of an address, if it has one: it is free.
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

// expire ends the cool-downs whose time has come.
func (s *span) expire(now time.Time) {
	n := 0
	for ; n < len(s.cooling) && !s.cooling[n].Until.After(now); n++ {
		delete(s.until, s.cooling[n].Addr)
		s.taken.remove(s.cooling[n].Addr)
	}
	s.cooling = slices.Delete(s.cooling, 0, n)
}

// available is how many addresses of the range are free.
func (s *span) available() uint64 {
	n := size(s.first, s.last)
	for _, r := range s.taken {
		n -= size(r.first, r.last)
	}
	return n
}
