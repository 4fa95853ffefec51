package networkpolicy

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/netdev/isolation"
)

// Of all addresses of a small network, peersWith changes those of services only, and makes
// them what their pods are.
func TestPeersWith(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}) }
	contains := func(peers []iprange.Range, a netip.Addr) bool {
		return slices.ContainsFunc(peers, func(p iprange.Range) bool { return p.Contains(a) })
	}
	for round := range 5000 {
		var peers []iprange.Range
		for range random.IntN(6) {
			peers = append(peers, iprange.Of(netip.PrefixFrom(address(random.IntN(32)), 26+random.IntN(7))))
		}
		peers = iprange.Union(peers)
		if random.IntN(10) == 0 {
			peers = []iprange.Range{iprange.Of(netip.MustParsePrefix("0.0.0.0/0")), iprange.Of(netip.MustParsePrefix("::/0"))}
		}
		var all []serviceAddress
		pods := map[netip.Addr]netip.Addr{}
		addresses := random.Perm(32)
		for i := range random.IntN(8) {
			s := serviceAddress{address(addresses[2*i]), address(addresses[2*i+1])}
			if random.IntN(8) == 0 {
				s.pod = netip.Addr{}
			}
			all, pods[s.service] = append(all, s), s.pod
		}
		got := peersWith(peers, all)
		for i := range 32 {
			a := address(i)
			want := contains(peers, a)
			if pod, ok := pods[a]; ok {
				want = contains(peers, pod)
			}
			if contains(got, a) != want {
				t.Fatalf("round %d: peers %v with %v are %v: %s is a peer: %t, want %t", round, peers, all, got, a, !want, want)
			}
		}
		if !slices.Equal(got, iprange.Union(got)) {
			t.Fatalf("round %d: %v overlap", round, got)
		}
	}
}

// Without isolation, or without service addresses, nothing changes.
func TestWithServicesUnchanged(t *testing.T) {
	if got := newServices([]serviceAddress{{service: netip.MustParseAddr("10.0.0.1")}}).with(nil); got != nil {
		t.Errorf("a pod that is not isolated gets %v", got)
	}
	d := &isolation.Direction{}
	if newServices(nil).with(d) != d || withPeers(nil, []netip.Addr{netip.IPv6Loopback()}) != nil || withPeers(d, nil) != d {
		t.Error("something changes without service addresses")
	}
}
