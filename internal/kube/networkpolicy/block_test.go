package networkpolicy

import (
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"

	"unnest.io/unnest/internal/hostapi/iprange"
)

// A block is its addresses without those of its exceptions, by brute force.
func TestBlockAsSpecified(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := networkingv1.IPBlock{CIDR: rapid.SampledFrom(blocks).Draw(t, "block"), Except: rapid.SliceOfN(rapid.SampledFrom(blocks), 0, 6).Draw(t, "except")}
		got, err := parseBlock(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range universe {
			a := netip.MustParseAddr(text)
			want := netip.MustParsePrefix(b.CIDR).Contains(a) && !slices.ContainsFunc(b.Except, func(e string) bool { return netip.MustParsePrefix(e).Contains(a) })
			if has := slices.ContainsFunc(got, func(r iprange.Range) bool { return r.Contains(a) }); has != want {
				t.Fatalf("%+v is %v: it has %s: %t, want %t", b, got, a, has, want)
			}
		}
	})
}

// The API server takes an address of IPv4 in IPv6's form for what it is: so does an exception.
func TestBlockMapped(t *testing.T) {
	got, err := parseBlock(networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"::ffff:10.0.0.0/105"}})
	if err != nil || len(got) != 1 || got[0].String() != "10.128.0.0/9" {
		t.Errorf("got %v, error %v, want 10.128.0.0/9", got, err)
	}
}
