package daemon

import (
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
)

// drawQuotas draws a valid configuration: up to three tenants, with bridges, limits and guests.
func drawQuotas(t *rapid.T, name string) quota.Config {
	flag := func(what string) bool { return rapid.Bool().Draw(t, name+" "+what) }
	p := quota.Config{Listen: netip.MustParseAddrPort("127.0.0.1:7443"), Trunk: flag("trunk"), Pool: rapid.IntRange(0, 4).Draw(t, "pool")}
	further := []string{"fbr0", "fbr1", "fbr2"}
	for i := range 3 {
		if i > 0 && flag("without tenant") {
			continue
		}
		x := quota.Tenant{
			Name: fmt.Sprint("t", i), Bridge: fmt.Sprint("br", i), MTU: 1400, Limits: quota.DefaultLimits, Metadata: flag("metadata"),
			Ranges: []ipam.Range{{Subnet: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", i+1))}},
		}
		x.NetworkPolicy = []string{"", quota.PolicyOptional, quota.PolicyRequired}[i]
		x.Limits.Flows, x.Limits.Multicasts = rapid.IntRange(0, 2).Draw(t, "flows")*1000, rapid.IntRange(0, 2).Draw(t, "multicasts")*100
		x.Limits.NICs, x.Limits.Addresses = rapid.IntRange(0, 9).Draw(t, "NICs"), rapid.IntRange(0, 9).Draw(t, "addresses")
		for _, b := range slices.Clone(further) {
			if flag("bridge") {
				x.Bridges, further = append(x.Bridges, b), slices.DeleteFunc(further, func(o string) bool { return o == b })
			}
		}
		x.HostPorts = rapid.SampledFrom([][]quota.HostPort{nil, {quota.NoPort}, {quota.AnyPort}, {"tcp/80", "udp/53"}}).Draw(t, "host ports")
		if flag("ranges of pods") {
			x.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
		}
		if flag("claims") {
			x.ClaimRanges = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.64/26", i+1))}
		}
		for j := range rapid.IntRange(0, 2).Draw(t, "guests") {
			g := quota.Guest{Name: fmt.Sprintf("g%d%d", i, j), Tenant: x.Name, QMP: "/run/none", Index: 1 + 10*i + j}
			for range rapid.IntRange(0, 2).Draw(t, "addresses of a guest") {
				a := netip.AddrFrom4([4]byte{10, byte(i + 1), 0, byte(rapid.IntRange(10*j+10, 10*j+19).Draw(t, "address"))})
				if !slices.Contains(g.Addresses, a) {
					g.Addresses = append(g.Addresses, a)
				}
			}
			p.Guests = append(p.Guests, g)
		}
		p.Tenants = append(p.Tenants, x)
	}
	return p
}

// derived says what a daemon has made of its configuration: its tenants, its policies, and the
// packet filters of the host.
func derived(d *daemon) (string, error) {
	var said []string
	for _, x := range d.allTenants() {
		stats, _ := x.Stats()
		now := x.Now()
		said = append(said, fmt.Sprintf("tenant %s %+v guests %v free %+v", x.Name, now, x.GuestAddresses(), stats))
	}
	slices.Sort(said)
	quotas, err := quota.Marshal(d.quotas())
	if err != nil {
		return "", err
	}
	for _, x := range d.quotas().Tenants { // what a client of the tenant is told
		if s, err := d.host.Ports.Policies.Begin(x.Name); err == nil {
			said = append(said, fmt.Sprint(x.Name, d.host.Ports.Policies.TakeOwnership(s)))
			d.host.Ports.Policies.End(s)
		} else {
			said = append(said, x.Name+" "+err.Error())
		}
	}
	rules, err := exec.Command("nft", "list", "ruleset").Output()
	if err != nil {
		return "", err
	}
	var words []string
	for _, w := range strings.FieldsFunc(string(rules), func(r rune) bool { return r <= ' ' || r == ',' }) {
		if !strings.HasPrefix(w, "0x") { // the mark of a transaction
			words = append(words, w)
		}
	}
	slices.Sort(words)
	return strings.Join(append(said, string(quotas), strings.Join(words, "\n")), "\n"), nil
}

// inHostWithBridges calls f in a network namespace with the bridges of drawQuotas, each with a
// NIC of a pod.
func inHostWithBridges(t *rapid.T, f func() error) {
	host, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	err = host.Do(func(ns.NetNS) error {
		for i, name := range []string{"br0", "br1", "br2", "fbr0", "fbr1", "fbr2"} {
			bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
			if err := netlink.LinkAdd(bridge); err != nil {
				return err
			}
			key := attachment.Key{Owner: "c1", Name: fmt.Sprint("eth", i)}
			r := attachment.Record{Bridge: name, PodUID: fmt.Sprint("uid", i), Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}), 24)}}
			nic := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("u1n%d-1", i+1)}, Mode: netlink.TUNTAP_MODE_TAP}
			if err := netlink.LinkAdd(nic); err != nil {
				return err
			}
			if err := netlink.LinkSetAlias(nic, attachment.Alias(key, r)); err != nil {
				return err
			}
		}
		return f() // in a goroutine of its own
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A daemon whose tenant's bridge is guarded no more leaves no packet filter, as one that starts then, and does not take
// that for a change of others.
func TestReloadEndsFilter(t *testing.T) {
	l := newLab(t)
	const tenant = "listen: 127.0.0.1:7443\ntenants:\n  - {name: default, bridge: br0, mtu: 1400, ranges: [{subnet: 10.9.0.0/24}], hostPorts: [%s]}\n"
	tables := func() (text string) {
		l.do(func() error {
			out, err := exec.Command("nft", "list", "tables", "inet").CombinedOutput()
			text = string(out)
			return err
		})
		return text
	}
	l.configure(fmt.Sprintf(tenant, "any"))
	l.serve(patience)
	for range 2 {
		l.eventually("the filter is there", func() bool { return strings.Contains(tables(), "unnest") })
		l.configure(strings.Replace(fmt.Sprintf(tenant, ""), ", hostPorts: []", "", 1))
		l.eventually("the filter is gone", func() bool { return !strings.Contains(tables(), "unnest") })
		l.configure(fmt.Sprintf(tenant, "any"))
	}
	l.eventually("the filter is there again", func() bool { return strings.Contains(tables(), "unnest") })
	time.Sleep(time.Second) // a filter that others have changed is restored within a second
	if said := *l.said.Load(); strings.Contains(said, "restored") {
		t.Errorf("the daemon takes its own change for one of others:\n%s", said)
	}
}

// A daemon that reloads its configuration has made of it what one that starts with it makes. Keys
// that need a restart keep their values, which the other daemon is given.
func TestReloadIsRestart(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	made := func(dir string, p quota.Config) (*daemon, error) {
		d, err := newDaemon(Config{StateDir: dir, Quotas: p, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = d.derive(p)
		}
		return d, err
	}
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue { // each takes a second
		if err := checks.Value.Set("25"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = checks.Value.Set(checks.DefValue) })
	}
	rapid.Check(t, func(t *rapid.T) {
		configurations := []quota.Config{drawQuotas(t, "first"), drawQuotas(t, "second"), drawQuotas(t, "third")}
		var reloaded, restarted string
		var last quota.Config
		dir, err := os.MkdirTemp("", "derive")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		inHostWithBridges(t, func() error {
			d, err := made(dir+"/reload", configurations[0])
			if err != nil {
				return err
			}
			for _, p := range configurations[1:] {
				next, _, err := d.quotas().Reload(p)
				if err != nil {
					continue // the earlier one stays
				}
				if err := d.derive(next); err != nil {
					return err
				}
			}
			last = d.quotas()
			reloaded, err = derived(d)
			return err
		})
		inHostWithBridges(t, func() error {
			d, err := made(dir+"/restart", last)
			if err == nil {
				restarted, err = derived(d)
			}
			return err
		})
		if reloaded != restarted {
			t.Fatalf("after reloads:\n%s\nafter a start:\n%s", reloaded, restarted)
		}
	})
}

// A NIC on a bridge that the tenant has got by a reload has the tenant's policies from its first
// moment, and a guest's address that came by a reload is no pod's.
func TestAttackBridgeByReload(t *testing.T) {
	l := newLab(t)
	const tenant = "listen: 127.0.0.1:7443\ntenants:\n  - {name: default, bridge: br0, mtu: 1400, ranges: [{subnet: 10.9.0.0/24}], networkPolicy: required}\n"
	l.configure(tenant)
	m := l.boot(1, 4)
	l.serve(patience)
	further := &hostdpb.AttachNICRequest{ContainerId: "c1", Interface: "eth0", Bridge: "br1", Allocate: true}
	if _, err := m.client().AttachNIC(t.Context(), further); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("a bridge that is not the tenant's: got %v, want permission denied", err)
	}
	c := l.reloaded(func() {
		l.configure(strings.Replace(tenant, "bridge: br0", "bridge: br0, bridges: [br1]", 1) +
			"guests:\n  - {name: later, tenant: default, index: 9, qmp: /run/none, addresses: [10.9.0.2]}\n")
	})
	if c.Error != "" || len(c.Restart) > 0 {
		t.Fatalf("the reload: %+v", c)
	}
	r, err := m.client().AttachNIC(t.Context(), further)
	l.check(err)
	l.wantIngress("on the new bridge", fmt.Sprintf("u1n%d-1", r.GetNic().GetSlot()), true, 0)
	if got := r.GetNic().GetAddresses(); slices.Contains(got, "10.9.0.2/24") {
		t.Errorf("the pod has the address of a guest of the configuration: %v", got)
	}
}
