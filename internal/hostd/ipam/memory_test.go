package ipam

import (
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
		p.Release("a", now)
	}
	s := p.spans[0]
	if len(p.owners) > 0 || len(p.holders) > 0 || len(s.taken) > 1 || len(s.cooling) > 10 || len(s.until) > 10 || cap(s.cooling) > 100 {
		t.Errorf("%d owners, %d holders, %d runs, %d and %d cooling, room for %d",
			len(p.owners), len(p.holders), len(s.taken), len(s.cooling), len(s.until), cap(s.cooling))
	}
}
