package ipam

import (
	"net/netip"
	"time"

	"github.com/google/btree"
)

// rests are the cooling addresses of one range, by time. Each guest has at most a
// number of them: when it releases more, its oldest end their cool-down.
type rests struct {
	most    int // of one guest
	of      map[netip.Addr]Cooling
	all     *btree.BTreeG[Cooling]
	byGuest map[string]*btree.BTreeG[Cooling] // of guests that have some
	less    btree.LessFunc[Cooling]
}

// byTime orders by time and address.
func byTime(a, b Cooling) bool {
	if c := a.Until.Compare(b.Until); c != 0 {
		return c < 0
	}
	return a.Addr.Less(b.Addr)
}

func newRests(most int, less btree.LessFunc[Cooling]) *rests {
	return &rests{
		most: most, of: map[netip.Addr]Cooling{}, all: btree.NewG(treeDegree, less),
		byGuest: map[string]*btree.BTreeG[Cooling]{}, less: less,
	}
}

// add adds an address that does not rest. It returns the address that ends its rest in
// return, if one does.
func (s *rests) add(c Cooling) (oldest netip.Addr, full bool) {
	s.of[c.Addr] = c
	s.all.ReplaceOrInsert(c)
	own := s.byGuest[c.Guest]
	if own == nil {
		own = btree.NewG(treeDegree, s.less)
		s.byGuest[c.Guest] = own
	}
	own.ReplaceOrInsert(c)
	if own.Len() <= s.most {
		return netip.Addr{}, false
	}
	first, _ := own.Min()
	s.remove(first.Addr)
	return first.Addr, true
}

// remove removes an address, and reports whether it rested.
func (s *rests) remove(a netip.Addr) (Cooling, bool) {
	c, ok := s.of[a]
	if !ok {
		return c, false
	}
	delete(s.of, a)
	s.all.Delete(c)
	own := s.byGuest[c.Guest]
	if own.Delete(c); own.Len() == 0 {
		delete(s.byGuest, c.Guest)
	}
	return c, true
}

// expired removes the first address that has rested until now and returns it, if there
// is one.
func (s *rests) expired(now time.Time) (netip.Addr, bool) {
	first, ok := s.all.Min()
	if !ok || first.Until.After(now) {
		return netip.Addr{}, false
	}
	s.remove(first.Addr)
	return first.Addr, true
}

// limit lets no address rest beyond a time: the clock may have been set back.
func (s *rests) limit(until time.Time) {
	for c, ok := s.all.Max(); ok && c.Until.After(until); c, ok = s.all.Max() {
		s.remove(c.Addr)
		c.Until = until
		s.add(c)
	}
}

// list returns the addresses by time.
func (s *rests) list() []Cooling {
	list := make([]Cooling, 0, s.all.Len())
	s.all.Ascend(func(c Cooling) bool {
		list = append(list, c)
		return true
	})
	return list
}
