package api

import (
	"net/netip"
	"testing"

	"unnest.io/unnest/internal/hostd/ipam"
)

// A guest is told each subnet of its tenant once, with the gateway.
func TestWireSubnets(t *testing.T) {
	four, six := netip.MustParsePrefix("10.201.0.0/16"), netip.MustParsePrefix("fd00:c9::/64")
	got := wireSubnets([]ipam.Range{
		{Subnet: four, Gateway: netip.MustParseAddr("10.201.0.1"), Last: netip.MustParseAddr("10.201.0.9")},
		{Subnet: six},
		{Subnet: four, Gateway: netip.MustParseAddr("10.201.0.1"), First: netip.MustParseAddr("10.201.1.0")},
	})
	if len(got) != 2 || got[0].GetPrefix() != four.String() || got[0].GetGateway() != "10.201.0.1" ||
		got[1].GetPrefix() != six.String() || got[1].GetGateway() != "" {
		t.Errorf("got %v", got)
	}
}
