package ipam

import (
	"net/netip"

	"github.com/google/btree"
)

// runs is a set of addresses of one family, stored as disjoint and not adjacent runs of
// consecutive addresses in a B-tree. So each operation takes O(log n), also when a
// guest chooses addresses that are far apart or nearly all addresses are in the set.
type runs struct{ tree *btree.BTreeG[run] }

type run struct{ first, last netip.Addr }

// treeDegree is the branching of the B-trees.
const treeDegree = 16

func byFirst(a, b run) bool { return a.first.Less(b.first) }

func newRuns(less btree.LessFunc[run]) runs { return runs{btree.NewG(treeDegree, less)} }

// before returns the last run that begins at or before a.
func (s runs) before(a netip.Addr) (r run, ok bool) {
	s.tree.DescendLessOrEqual(run{first: a}, func(found run) bool {
		r, ok = found, true
		return false
	})
	return r, ok
}

// next returns the first address from a on that is not in the set, or the zero Addr.
func (s runs) next(a netip.Addr) netip.Addr {
	if r, ok := s.before(a); ok && !r.last.Less(a) {
		return r.last.Next()
	}
	return a
}

// add adds a, which must not be in the set.
func (s runs) add(a netip.Addr) {
	joined := run{a, a}
	if r, ok := s.before(a); ok && r.last.Next() == a {
		joined.first = r.first
	}
	if r, ok := s.tree.Delete(run{first: a.Next()}); ok {
		joined.last = r.last
	}
	s.tree.ReplaceOrInsert(joined)
}

// remove removes a, which must be in the set.
func (s runs) remove(a netip.Addr) {
	r, _ := s.before(a)
	if r.first == a {
		s.tree.Delete(r)
	} else {
		s.tree.ReplaceOrInsert(run{r.first, a.Prev()})
	}
	if r.last != a {
		s.tree.ReplaceOrInsert(run{a.Next(), r.last})
	}
}
