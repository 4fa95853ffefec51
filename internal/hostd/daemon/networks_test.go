package daemon

import (
	"net/netip"
	"reflect"
	"testing"

	"unnest/internal/netdev/bridge"
)

// All bridges of a tenant take part in its isolation.
func TestNetworks(t *testing.T) {
	p := testPolicy()
	p.Tenants[0].Bridges = []string{"br0-db", "br0-web"}
	p.Tenants[1].Gateways, p.Tenants[1].NAT = []netip.Prefix{netip.MustParsePrefix("10.8.0.1/24")}, true
	want := []bridge.Network{
		{Bridge: "br0", Further: []string{"br0-db", "br0-web"}, MTU: 1400},
		{Bridge: "br1", MTU: 1400, Gateways: p.Tenants[1].Gateways, NAT: true},
	}
	if got := networks(p); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if p.Tenants = p.Tenants[:1]; networks(p) != nil {
		t.Errorf("one tenant without gateways: got %+v, want nothing", networks(p))
	}
}
