package daemon

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostd/status"
)

// reloaded waits until the daemon has taken over what the test has written, and returns
// what it says about it.
func (l *lab) reloaded(change func()) status.Configuration {
	l.t.Helper()
	ask := func() status.Configuration {
		s, err := status.Ask(l.t.Context(), l.dir)
		l.check(err)
		return s.Configuration
	}
	before := ask()
	change()
	var after status.Configuration
	l.eventually("the daemon has read the file", func() bool {
		after = ask()
		return !after.Loaded.Equal(before.Loaded) || after.Error != before.Error
	})
	return after
}

// While the daemon runs, guests come and go by the configuration file, limits change, and a
// file with a mistake changes nothing. The other guests' NICs stay.
func TestReload(t *testing.T) {
	l := newLab(t)
	stays, goes, comes := l.boot(1, 4), l.boot(2, 2), l.boot(3, 2)
	guests := []string{stays.configure("ports: [rp1, rp2, rp3, rp4]"), goes.configure("ports: [rp1, rp2]")}
	third := comes.configure("ports: [rp1, rp2]")
	const head = "listen: 127.0.0.1:7443\ntenants:\n"
	const tenant = "  - {name: default, bridge: br0, mtu: 1400, ranges: [{subnet: 10.9.0.0/24}]}\n"
	l.configure(head + tenant + "guests:\n" + strings.Join(guests, ""))
	l.serve(patience)
	nic := stays.mustAttach("c1")
	goes.mustAttach("c1")
	if _, err := comes.attach("c1"); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Errorf("a guest that the configuration does not have: got %v", err)
	}

	limited := strings.Replace(tenant, "mtu: 1400", "mtu: 1500, limits: {nics: 1}", 1)
	other := "  - {name: shop, bridge: br-shop, mtu: 1400, gateways: [10.7.0.1/24]}\n"
	c := l.reloaded(func() { l.configure(head + limited + other + "guests:\n" + guests[0] + third) })
	if c.Error != "" || !slices.Equal(c.Restart, []string{"tenants default: mtu"}) {
		t.Errorf("got %+v", c)
	}
	stays.wantNICs("1 c1 attached " + nic.GetMac())
	if _, err := stays.attach("c2"); grpcstatus.Code(err) != codes.ResourceExhausted {
		t.Errorf("the second NIC with a limit of 1: got %v", err)
	}
	comes.mustAttach("c1")
	l.eventually("the guest that is gone has nothing on the host", func() bool {
		_, err := goes.attach("c2")
		return grpcstatus.Code(err) == codes.Unauthenticated && !slices.ContainsFunc(l.taps(), func(tap string) bool { return strings.HasPrefix(tap, "u2n") })
	})
	l.do(func() error {
		link, err := netlink.LinkByName("br-shop")
		if err == nil && link.Attrs().MTU != 1400 {
			t.Errorf("bridge of the new tenant: %+v", link.Attrs())
		}
		return err
	})
	if !l.isolates("br-shop") || !l.isolates("br0") {
		t.Error("the tenants' bridges are not separated")
	}

	c = l.reloaded(func() { l.configure("tenants: [{name: default, bridg: br0}]") })
	if !strings.Contains(c.Error, "hostd.yaml:1: tenants[0].bridg: unknown key") {
		t.Errorf("a file with a mistake: got %+v", c)
	}
	stays.wantNICs("1 c1 attached " + nic.GetMac())
	comes.mustAttach("c1")

	c = l.reloaded(func() { l.configure(head + tenant + other + "guests:\n" + guests[0] + third) })
	if c.Error != "" || len(c.Restart) > 0 {
		t.Errorf("the mistake is corrected: got %+v", c)
	}
	stays.mustAttach("c2")
}

// isolates reports whether the host's rules separate a bridge from those of other tenants.
func (l *lab) isolates(name string) bool {
	l.t.Helper()
	return strings.Contains(l.nft("list", "ruleset"), `"`+name+`"`)
}

// A reload that fails changes nothing, and is one line of the log.
func TestReloadFails(t *testing.T) {
	dir := t.TempDir()
	d, log := testDaemon(t, dir)
	was, wg := d.quotas(), new(sync.WaitGroup)
	conflict := testQuotas()
	conflict.Tenants[1].Name, conflict.Guests = "third", nil // its bridge is that of a tenant that stays
	for _, c := range []Change{{Err: errors.New("line 1\nline 2")}, {Quotas: conflict}} {
		lines := len(log.with("level=ERROR"))
		d.reload(t.Context(), wg, c)
		if got := d.quotas(); len(got.Tenants) != len(was.Tenants) || got.Tenants[1].Name != was.Tenants[1].Name || d.tenant("third") != nil {
			t.Errorf("%v: the policy has changed", c.Err)
		}
		if got := log.with("level=ERROR"); len(got) != lines+1 || d.configuration().Error == "" {
			t.Errorf("got %q, status %+v, want one line", got, d.configuration())
		}
	}
}
