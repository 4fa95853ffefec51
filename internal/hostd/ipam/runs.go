package ipam

import (
	"net/netip"
	"slices"
)

// runs is a set of addresses of one family, stored as sorted, disjoint and not
// adjacent runs of consecutive addresses. So the next address outside the set is found
// in O(log n) even if the set is dense. Inserting a run moves those behind it, which
// for the thousands on a host costs less than a tree.
type runs []run

type run struct{ first, last netip.Addr }

// search returns the index of the first run that ends at or after a.
func (s runs) search(a netip.Addr) int {
	i, _ := slices.BinarySearchFunc(s, a, func(r run, a netip.Addr) int { return r.last.Compare(a) })
	return i
}

// next returns the first address from a on that is not in the set, or the zero Addr.
func (s runs) next(a netip.Addr) netip.Addr {
	if i := s.search(a); i < len(s) && !a.Less(s[i].first) {
		return s[i].last.Next()
	}
	return a
}

// add adds a, which must not be in the set.
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

// remove removes a, which must be in the set.
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
