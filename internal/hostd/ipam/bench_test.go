package ipam_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/ipam"
)

// Each benchmark allocates and releases one address while others are taken: none, a
// hundred thousand behind the cursor, every second one, all but one.
func BenchmarkAllocate(b *testing.B) {
	for _, bb := range []struct {
		name  string
		r     ipam.Range
		taken int
		step  int
	}{
		{"v4 empty", ipam.Range{Subnet: prefix("10.0.0.0/8")}, 0, 1},
		{"v6 empty", ipam.Range{Subnet: prefix("fd00::/64")}, 0, 1},
		{"v6 dense", ipam.Range{Subnet: prefix("fd00::/64")}, 100_000, 1},
		{"v4 dense", ipam.Range{Subnet: prefix("10.0.0.0/16")}, 65_533, 1},
		{"v4 holes", ipam.Range{Subnet: prefix("10.0.0.0/16")}, 32_766, 2},
	} {
		b.Run(bb.name, func(b *testing.B) {
			p := mustNew(b, time.Nanosecond, bb.r)
			a := bb.r.Subnet.Addr().Next()
			for i := range bb.taken {
				if err := p.Claim(fmt.Sprint(i), []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, start); err != nil {
					b.Fatal(err)
				}
				for range bb.step {
					a = a.Next()
				}
			}
			now := start
			for b.Loop() {
				now = now.Add(time.Second)
				if _, err := p.Allocate("a", now); err != nil {
					b.Fatal(err)
				}
				p.Use("a")
				p.Release("a", now)
			}
		})
	}
}
