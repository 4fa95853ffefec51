package daemon

import (
	"net/netip"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/bridge"
)

// All bridges of a tenant take part in its isolation.
func TestNetworks(t *testing.T) {
	p := testQuotas()
	p.Tenants[0].Bridges = []string{"br0-db", "br0-web"}
	p.Tenants[1].Gateways, p.Tenants[1].NAT = []netip.Prefix{netip.MustParsePrefix("10.8.0.1/24")}, true
	p.Tenants[1].Limits.Flows, p.Tenants[1].Metadata = 640, true
	guard := &bridge.Guard{Bridges: []string{"br1"}, Daemon: p.Listen, Metadata: true, Connections: 640}
	want := []bridge.Network{
		{Bridge: "br0", Further: []string{"br0-db", "br0-web"}, MTU: 1400},
		{Bridge: "br1", MTU: 1400, Gateways: p.Tenants[1].Gateways, NAT: true, Guard: guard},
	}
	if got := networks(p); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	p.Tenants[0].HostPorts = []quota.HostPort{"tcp/53", "udp/67"}
	want[0].Guard = &bridge.Guard{
		Bridges: []string{"br0", "br0-db", "br0-web"}, Daemon: p.Listen,
		Ports: []bridge.HostPort{{Protocol: unix.IPPROTO_TCP, Number: 53}, {Protocol: unix.IPPROTO_UDP, Number: 67}},
	}
	p.Tenants[1].HostPorts, guard.AllPorts = []quota.HostPort{quota.AnyPort}, true
	if got := networks(p); !reflect.DeepEqual(got, want) {
		t.Errorf("with ports of the host: got %+v, want %+v", got, want)
	}
	p.Tenants[0].HostPorts = []quota.HostPort{quota.NoPort}
	if got := networks(p)[0].Guard; got == nil || got.AllPorts || len(got.Ports) > 0 || len(got.Bridges) != 3 {
		t.Errorf("with no port of the host: got %+v", got)
	}
	p.Tenants[0].HostPorts = nil
	if p.Tenants = p.Tenants[:1]; networks(p) != nil {
		t.Errorf("one tenant without gateways: got %+v, want nothing", networks(p))
	}
}
