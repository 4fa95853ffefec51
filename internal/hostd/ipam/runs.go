package ipam

import (
	"net/netip"
	"slices"
)

// runs is a set of addresses of one family. It is kept as runs of consecutive
// addresses, so that the next address outside of it is found in O(log n) however
// dense it is. The runs are in order, disjoint, and not adjacent. A run that
// comes or goes moves those behind it, which for the thousands that a host has
// is less than a search in a tree.
type runs []run

type run struct{ first, last netip.Addr }

// search returns the index of the first run that does not end before a.
func (s runs) search(a netip.Addr) int {
	i, _ := slices.BinarySearchFunc(s, a, func(r run, a netip.Addr) int { return r.last.Compare(a) })
	return i
}

// next returns a when it is not in the set, or else the first address behind it
// that is not; the zero Addr when there is none.
func (s runs) next(a netip.Addr) netip.Addr {
	if i := s.search(a); i < len(s) && !a.Less(s[i].first) {
		return s[i].last.Next()
	}
	return a
}

// add puts a, which is not in the set, into it.
func (s *runs) add(a netip.Addr) {
	i := s.search(a)
	before := i > 0 && (*s)[i-1].last.Next() == a
	behind := i < len(*s) && a.Next() == (*s)[i].first
	switch {
	case before && behind:
		(*s)[i-1].last = (*s)[i].last
		*s = slices.Delete(*s, i, i+1)
	case before:
		(*s)[i-1].last = a
	case behind:
		(*s)[i].first = a
	default:
		*s = slices.Insert(*s, i, run{a, a})
	}
}

// remove takes a, which is in the set, out of it.
func (s *runs) remove(a netip.Addr) {
	i := s.search(a)
	r := &(*s)[i]
	switch {
	case r.first == r.last:
		*s = slices.Delete(*s, i, i+1)
	case r.first == a:
		r.first = a.Next()
	case r.last == a:
		r.last = a.Prev()
	default:
		behind := run{a.Next(), r.last}
		r.last = a.Prev()
		*s = slices.Insert(*s, i+1, behind)
	}
}
