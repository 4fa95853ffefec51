package guestrun

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/networkpolicy"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/isolation"
	"unnest.io/unnest/internal/netdev/link"
	"unnest.io/unnest/internal/netdev/tap"
)

// keptFilter is a packet filter of connections that refuses to end the filters of an address.
type keptFilter struct {
	networkpolicy.Filter
	address netip.Addr
	refuse  error // nil: it obeys
}

func (*keptFilter) Prepare(func(), ...isolation.Port) (func() error, error) {
	return func() error { return nil }, nil
}

func (*keptFilter) Set(...isolation.Port) error { return nil }

func (f *keptFilter) Remove(all ...isolation.Port) error {
	for _, p := range all {
		if p.Address == f.address {
			return f.refuse
		}
	}
	return nil
}

// A VLAN whose service addresses do not end stays, on no bridge and with the alias by which the next daemon finds them. The next repair
// tries again.
func TestVLANThatStays(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	host, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	g, _ := fakeGuest(t)
	service := netip.MustParseAddr("10.9.0.77")
	filter := &keptFilter{address: service, refuse: errors.New("the kernel refuses")}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	g.host.Ports.Policies = networkpolicy.New(t.TempDir(), log)
	g.host.Ports.Policies.Open = func([]isolation.Port) (networkpolicy.Filter, error) { return filter, nil }
	key := attachment.Key{Owner: "c1", Name: "eth0"}
	err = host.Do(func(ns.NetNS) error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}); err != nil {
			return err
		}
		q := runTenant()
		q.NetworkPolicy = quota.PolicyRequired
		if _, err := g.host.Ports.Policies.Configure([]quota.Tenant{q}); err != nil {
			return err
		}
		own := ports.OwnGuard{MAC: "52:54:00:00:00:01", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.9")}, Pods: []string{g.Record.VLANPrefix()}}
		if err := g.host.Ports.GuardOwn("tap0", own); err != nil {
			return err
		}
		f, err := tap.Open(tap.Device{Name: "u1n1-1", MTU: 1400, Alias: attachment.WarmAlias})
		if err != nil {
			return err
		}
		defer f.Close()
		trunk := g.nics.trunk
		if err := trunk.open("u1n1-1"); err != nil {
			return err
		}
		defer trunk.close()
		r := attachment.Record{Bridge: "br0", MTU: 1400, Services: []netip.Addr{service}}
		nic, err := trunk.add(t.Context(), key, r)
		if err != nil {
			return err
		}
		port := trunk.ports[key].port
		trunk.remove(t.Context(), key)
		l, err := link.Find(port)
		if err != nil || l.Master != 0 || !strings.HasPrefix(l.Alias, attachment.WarmAlias+"c1/eth0 ") || !trunk.taken(int(nic.GetVlan())) {
			t.Errorf("the port is %+v, error %v; want it on no bridge, with its alias, and its VLAN taken", l, err)
		}
		filter.refuse = nil
		if err := g.deleteLeft(); err != nil {
			return err
		}
		if _, err := link.Find(port); !link.IsGone(err) || len(trunk.left) != 0 {
			t.Errorf("the port is still there after a repair: %v, %v", err, trunk.left)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
