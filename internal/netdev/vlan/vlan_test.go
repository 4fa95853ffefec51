package vlan_test

import (
	"errors"
	"math/rand/v2"
	"net"
	"testing"

	"unnest.io/unnest/internal/netdev/vlan"
)

// NextVLAN returns every unused VLAN once, in order, before it repeats one.
func TestNextVLAN(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, share := range []float64{0, 0.01, 0.5, 0.99, 1} {
		used := make([]bool, vlan.MaxVLAN+1)
		var free []int
		for v := 1; v < len(used); v++ {
			if used[v] = r.Float64() < share; !used[v] {
				free = append(free, v)
			}
		}
		isUsed := func(v int) bool { return used[v] } // panics outside 0 to 4094
		for last := 0; last <= vlan.MaxVLAN; last++ {
			got, err := vlan.NextVLAN(last, isUsed)
			if len(free) == 0 {
				if !errors.Is(err, vlan.ErrNoVLAN) {
					t.Fatalf("none free after %d: got %d, %v", last, got, err)
				}
				continue
			}
			want := free[0]
			for _, v := range free {
				if v > last {
					want = v
					break
				}
			}
			if err != nil || got != want {
				t.Fatalf("%d free, after %d: got %d, %v; want %d", len(free), last, got, err, want)
			}
		}
	}
}

func TestMAC(t *testing.T) {
	seen := map[string]bool{}
	for v := 1; v <= vlan.MaxVLAN; v++ {
		mac := vlan.MAC([3]byte{0x0a, 1, 2}, v)
		if hw, err := net.ParseMAC(mac); err != nil || hw.String() != mac || hw[3] != 0 || seen[mac] {
			t.Fatalf("VLAN %d: got %q, %v", v, mac, err)
		}
		seen[mac] = true
	}
	if got, want := vlan.MAC([3]byte{0x0a, 1, 2}, 4094), "0a:01:02:00:0f:fe"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
