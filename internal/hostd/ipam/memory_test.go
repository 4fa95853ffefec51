package ipam

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// A pool keeps no state of addresses that were released and have cooled down.
func TestMemory(t *testing.T) {
	p, err := New([]Range{{Subnet: netip.MustParsePrefix("fd00::/64")}}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	for range 10_000 {
		now = now.Add(time.Second)
		if _, err := p.Allocate("a", now); err != nil {
			t.Fatal(err)
		}
		p.Use("a")
		p.Release("a", now)
	}
	s := p.spans[0]
	if n := s.taken.tree.Len(); len(p.owners) > 0 || len(p.holders) > 0 || n > 1 || s.count > 10 || len(s.cooling.of) > 10 || s.cooling.all.Len() > 10 || len(s.cooling.byGuest) > 1 {
		t.Errorf("%d owners, %d holders, %d runs of %d addresses, %d, %d and %d cooling",
			len(p.owners), len(p.holders), n, s.count, len(s.cooling.of), s.cooling.all.Len(), len(s.cooling.byGuest))
	}
}

// counted returns an order that counts its comparisons.
func counted[T any](n *int, less func(a, b T) bool) func(a, b T) bool {
	return func(a, b T) bool {
		*n++
		return less(a, b)
	}
}

// An operation on a set of a hundred thousand addresses takes a few comparisons per
// level of the tree, wherever the addresses are.
func TestOperationCounts(t *testing.T) {
	const all, most = 30_000, 100
	var n, worst int
	taken := newRuns(counted(&n, byFirst))
	cooling := newRests(all/4, counted(&n, byTime))
	count := func(f func()) {
		n = 0
		f()
		worst = max(worst, n)
	}
	addr := func(i, step int) netip.Addr { // spread over a /64
		x := uint64(i) * 0x9e3779b97f4a7c15
		var b [16]byte
		b[0] = 0xfd
		binary.BigEndian.PutUint64(b[8:], x&^0xff+uint64(step))
		return netip.AddrFrom16(b)
	}
	begin := time.Unix(1e9, 0)
	for i := range all {
		a := addr(i, 7)
		count(func() { taken.add(a) })
		c := Cooling{Addr: a, Until: begin.Add(time.Duration(uint32(i)*2654435761) * time.Microsecond), Guest: fmt.Sprint(i % 5)}
		count(func() { cooling.add(c) })
	}
	for i := range all {
		a := addr(i, 7)
		count(func() { taken.next(a) })
		count(func() { taken.remove(a) })
		count(func() { taken.add(a.Next()) })
		count(func() { cooling.remove(a) })
	}
	// One run that covers nearly everything, and holes in it.
	full := newRuns(counted(&n, byFirst))
	a := netip.MustParseAddr("10.0.0.1")
	for range all {
		count(func() { full.add(a) })
		a = a.Next()
	}
	for b := netip.MustParseAddr("10.0.0.2"); b.Less(a); b = b.Next().Next() {
		count(func() { full.remove(b) })
		count(func() { full.next(b.Prev()) })
	}
	if worst > most {
		t.Errorf("an operation took %d comparisons, want at most %d", worst, most)
	}
	t.Logf("at most %d comparisons", worst)
}
