package guestrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/contain"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/metrics"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/shares"
	"unnest.io/unnest/internal/hostd/tenant"
	"unnest.io/unnest/internal/netdev/vlan"
	"unnest.io/unnest/internal/vmm"
)

// noSlots is the VMM of a guest without slots.
type noSlots struct{ vmm.VMM }

func (noSlots) Slots() int { return 0 }

// runTenant is a tenant of two guests.
func runTenant() quota.Tenant {
	return quota.Tenant{
		Name: "default", Bridge: "br0", MTU: 1400, Ranges: []ipam.Range{{Subnet: netip.MustParsePrefix("10.9.0.0/24")}}, Cooldown: time.Minute,
	}
}

func runRecord() record.Guest {
	return record.Guest{
		Name: "node1", Tenant: "default", Index: 1, QMP: "/run/x/hostd.qmp", Ports: []string{"rp1", "rp2"}, CertificateSHA256: strings.Repeat("0a", 32),
	}
}

// fakeGuest returns a guest without slots of the test policy's first tenant, and the number
// of functions that its run goroutine has called.
func fakeGuest(t *testing.T) (g *Guest, calls *int) {
	t.Helper()
	p := runTenant()
	p.Limits = quota.Limits{NICs: 1}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	tenant, err := tenant.New(p, t.TempDir(), log, func(_ string, f func()) { f() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tenant.Flush)
	h := &Host{Dial: Dialer(""), Metrics: metrics.New(), Panics: contain.New(metrics.New(), log), Ports: ports.New(log), Segments: segments.New(log), Shares: shares.New(log, "", "")}
	g = New(runRecord(), tenant, h, time.Second, log)
	g.vmm = noSlots{}
	if g.nics, err = newNICs(g); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls = new(int)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case f := <-g.inbox:
				*calls++
				f(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return g, calls
}

// An attach takes one round trip to the guest's goroutine. One that is refused keeps
// neither a place within the limits nor an address, and lets none cool down.
func TestAttachThatIsRefused(t *testing.T) {
	g, calls := fakeGuest(t)
	for i := range 300 { // the limit is one NIC, and the range has 254 addresses
		w := WantedNIC{Key: attachment.Key{Owner: "c1", Name: "eth0"}, Record: attachment.Record{Bridge: "br0"}, Allocate: true}
		_, err := g.Attach(t.Context(), w)
		if full := (*hotplug.NoFreeSlotError)(nil); !errors.As(err, &full) || *calls != i+1 {
			t.Fatalf("attach %d: got %v after %d round trips, want no free slot after %d", i+1, err, *calls, i+1)
		}
		if stats, attachments := g.Tenant.Stats(); attachments != 0 || stats.InUse != 0 || stats.Cooling != 0 {
			t.Fatalf("attach %d left %d attachments, %d addresses and %d that cool down", i+1, attachments, stats.InUse, stats.Cooling)
		}
	}
}

// A NIC that cannot be described takes no address and counts as no attachment: the
// request is checked first.
func TestAttachIsCheckedBeforeItTakesAddresses(t *testing.T) {
	g, _ := fakeGuest(t)
	w := WantedNIC{Key: attachment.Key{Owner: strings.Repeat("c", 128), Name: "eth0"}, Record: attachment.Record{Bridge: "br0"}}
	for i := range 16 {
		w.Record.Addresses = append(w.Record.Addresses, netip.MustParsePrefix(fmt.Sprintf("10.9.0.%d/24", 100+i)))
	}
	if _, err := g.nics.admit(&w, attachment.Record{}); !errors.Is(err, attachment.ErrTooLong) {
		t.Errorf("got %v, want ErrTooLong", err)
	}
	if stats, attachments := g.Tenant.Stats(); attachments != 0 || stats.InUse != 0 {
		t.Errorf("%d attachments and %d addresses are taken, want none", attachments, stats.InUse)
	}
}

// A pod that asks for so much that its service addresses do not fit is refused. Without these addresses its
// connections to Services would be the guest's, to which its policy does not apply.
func TestAttackLongAlias(t *testing.T) {
	g, _ := fakeGuest(t)
	quotas := g.Tenant.Now()
	quotas.NetworkPolicy = quota.PolicyRequired
	g.Tenant.Change(quotas)
	const most = 999_999_999_999_999_999
	w := WantedNIC{
		Key: attachment.Key{Owner: strings.Repeat("c", 64), Name: "eth0"}, Allocate: true, Services: true,
		Record: attachment.Record{Bridge: "br0", Network: strings.Repeat("n", 70), Bandwidth: quota.Bandwidth{IngressRate: most, IngressBurst: most, EgressRate: most, EgressBurst: most}},
	}
	if _, err := g.Attach(t.Context(), w); !errors.Is(err, attachment.ErrTooLong) {
		t.Errorf("got %v, want ErrTooLong", err)
	}
	if stats, attachments := g.Tenant.Stats(); attachments != 0 || stats.InUse != 0 {
		t.Errorf("%d attachments and %d addresses are taken, want none", attachments, stats.InUse)
	}
}

// When the connection to the VMM ends, the requests under way fail, and what was reserved
// for them is free again.
func TestRunEnds(t *testing.T) {
	g, _ := fakeGuest(t)
	key := attachment.Key{Owner: "c1", Name: "eth0"}
	refused, err := read(t.Context(), g, func() error {
		_, err := g.nics.admit(&WantedNIC{Key: key, Allocate: true}, attachment.Record{})
		g.waiting[1] = func(r hotplug.Reply) {
			if !errors.Is(r.Err, ErrUnavailable) {
				t.Errorf("the request ended with %v", r.Err)
			}
			g.nics.releaseUnused(key)
		}
		return err
	})
	if err != nil || refused != nil {
		t.Fatal(err, refused)
	}
	if _, attachments := g.Tenant.Stats(); attachments != 1 {
		t.Fatalf("%d attachments are admitted, want 1", attachments)
	}
	g.Record.QMP = t.TempDir() + "/no.qmp"
	g.Run(t.Context()) // cannot connect
	if stats, attachments := g.Tenant.Stats(); attachments != 0 || stats.InUse != 0 {
		t.Errorf("%d attachments and %d addresses are left", attachments, stats.InUse)
	}
}

// A reboot of a guest ends its NICs, but none is lost.
func TestRebootLosesNoNIC(t *testing.T) {
	for reset, want := range map[bool]bool{false: true, true: false} {
		g, _ := fakeGuest(t)
		g.nics.performAction(t.Context(), hotplug.Lost{Reset: reset})
		w := httptest.NewRecorder()
		g.host.Metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if got := strings.Contains(w.Body.String(), `unnest_hostd_lost_nics_total{guest="`); got != want {
			t.Errorf("reset %v: counted as lost: %v, want %v", reset, got, want)
		}
	}
}

// An error says how to give a domain more root ports.
func TestNoSlotOfDomain(t *testing.T) {
	n := &nics{Guest: &Guest{Record: record.Guest{Libvirt: &record.Domain{Name: "shop1"}}}}
	err := n.explain(&hotplug.NoFreeSlotError{Slots: 4, Foreign: 3, Quarantined: 1})
	for _, want := range []string{
		"domain shop1 has 0 free root ports: add <controller type='pci' model='pcie-root-port'/> ",
		"no free NIC slot of 4 (3 with other devices, 0 unplugging, 1 quarantined)",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if !errors.As(err, new(*hotplug.NoFreeSlotError)) || n.explain(io.EOF).Error() != io.EOF.Error() {
		t.Errorf("got %v, and %v for another error", err, n.explain(io.EOF))
	}
}

// A guest that does not give a NIC up has its addresses released. By the same container it does not get them again for
// another NIC: they may be another guest's by then.
func TestAttackAddressOfQuarantinedNIC(t *testing.T) {
	g, _ := fakeGuest(t)
	state, err := hotplug.New(hotplug.Config{Prefix: "u1n", Slots: 2, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 1})
	if err != nil {
		t.Fatal(err)
	}
	key := attachment.Key{Owner: "c1", Name: "eth0"}
	nic := hotplug.Occupant{Slot: 1, Generation: 1}
	record := attachment.Record{
		Bridge: "br0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.5/24")}, Services: []netip.Addr{netip.MustParseAddr("10.9.0.6")},
	}
	for _, e := range []hotplug.Event{
		hotplug.Attach{Request: 1, Key: key, Record: record}, hotplug.PlugSucceeded{Occupant: nic}, hotplug.Connected{Occupant: nic},
		hotplug.Detach{Request: 2, Key: key}, hotplug.UnplugTimedOut{Timer: hotplug.Timer{Occupant: nic, Try: 1}},
	} {
		state, _ = hotplug.Step(state, e)
	}
	if got := state.Slots()[0].Status; got != hotplug.Quarantined {
		t.Fatalf("the slot is %v, want %v", got, hotplug.Quarantined)
	}
	g.nics.state = state
	if got := withAddresses(attachment.Record{Bridge: "br0"}, g.nics.had(key)); len(got.Addresses) > 0 || len(got.Services) > 0 {
		t.Errorf("the next NIC may send from %v and %v", got.Addresses, got.Services)
	}
}

// A guest that asks for its status costs no description of each of its NICs, of which it may have hundreds. The operator gets them.
func TestStatusDescribes(t *testing.T) {
	g, _ := fakeGuest(t)
	var err error
	if g.shares, err = newShareSlots(g); err != nil {
		t.Fatal(err)
	}
	g.nics.trunk.ports[attachment.Key{Owner: "c1", Name: "eth0"}] = vlanPort{id: 7}
	own, err := g.RequestStatus(t.Context())
	if err != nil || len(own.NICs) > 0 {
		t.Errorf("the guest gets %v, error %v, want counts only", own.NICs, err)
	}
	all, err := g.DescribeStatus(t.Context())
	if err != nil || len(all.NICs) != 1 || all.NICs[0].VLAN != 7 {
		t.Errorf("the operator gets %v, error %v, want the NIC of VLAN 7", all.NICs, err)
	}
}

// An attach again that is refused leaves the attachment what its NIC carries, and gives nothing of it to another guest.
func TestAttackAttachAgainThatIsRefused(t *testing.T) {
	key := attachment.Key{Owner: "c1", Name: "eth0"}
	nic := hotplug.Occupant{Slot: 1, Generation: 1}
	has := netip.MustParsePrefix("10.9.0.5/24")
	service, asked := netip.MustParseAddr("10.9.0.6"), netip.MustParsePrefix("10.9.0.7/24")
	for name, c := range map[string]struct {
		record    attachment.Record
		asked     []netip.Prefix
		services  bool // too many for the alias
		detaching bool
	}{
		"services":                     {attachment.Record{Bridge: "br0", Addresses: []netip.Prefix{has}, Services: []netip.Addr{service}}, nil, true, false},
		"first services":               {attachment.Record{Bridge: "br0", Addresses: []netip.Prefix{has}}, nil, true, false},
		"other addresses and services": {attachment.Record{Bridge: "br0", Addresses: []netip.Prefix{has}, Services: []netip.Addr{service}}, []netip.Prefix{asked}, true, false},
		"first address":                {attachment.Record{Bridge: "br0"}, []netip.Prefix{asked}, true, false},
		"other address, detaching":     {attachment.Record{Bridge: "br0", Addresses: []netip.Prefix{has}}, []netip.Prefix{asked}, false, true},
	} {
		g, _ := fakeGuest(t)
		quotas := g.Tenant.Now()
		quotas.NetworkPolicy, quotas.ClaimRanges = quota.PolicyRequired, []netip.Prefix{asked.Masked()}
		g.Tenant.Change(quotas)
		state, err := hotplug.New(hotplug.Config{Prefix: "u1n", Slots: 1, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 1})
		if err = errors.Join(err, g.Tenant.Hold(g.owner(key), c.record)); err != nil {
			t.Fatal(err)
		}
		events := []hotplug.Event{hotplug.Attach{Request: 1, Key: key, Record: c.record}, hotplug.PlugSucceeded{Occupant: nic}, hotplug.Connected{Occupant: nic}}
		if c.detaching {
			events = append(events, hotplug.Detach{Request: 2, Key: key})
		}
		for _, e := range events {
			state, _ = hotplug.Step(state, e)
		}
		g.nics.state = state
		w := WantedNIC{Key: key, Record: attachment.Record{Bridge: "br0", Addresses: c.asked}, Services: c.services}
		for n := attachment.MaxAlias; c.services && (n == attachment.MaxAlias || attachment.Check(key, w.Record) != nil); n-- {
			w.Record.Network = strings.Repeat("n", n)
		}
		if _, err := g.Attach(t.Context(), w); !errors.Is(err, attachment.ErrTooLong) && !errors.Is(err, hotplug.ErrDetaching) {
			t.Errorf("%s: got %v", name, err)
		}
		if stats, _ := g.Tenant.Stats(); stats.InUse != len(c.record.Addresses)+len(c.record.Services) {
			t.Errorf("%s: %d addresses are in use, want those of %v", name, stats.InUse, c.record)
		}
		for _, a := range c.record.Addresses {
			if _, err := g.Tenant.Take("node2/c2/eth0", []netip.Prefix{a}, false); err == nil {
				t.Errorf("%s: another guest gets %s, which the NIC has", name, a)
			}
		}
		if _, err := g.Tenant.Take("node2/c2/eth0", []netip.Prefix{asked}, false); err != nil {
			t.Errorf("%s: nobody has the address that was refused: %v", name, err)
		}
	}
}

// silent is a VMM that does not say at first which NICs the guest has.
type silent struct {
	noSlots
	asked *int
}

func (s silent) OwnNICs(context.Context) ([]vmm.NIC, error) {
	if *s.asked++; *s.asked < 3 {
		return nil, io.EOF
	}
	return []vmm.NIC{{TAP: "own1"}}, nil
}

// A guest whose VMM does not say at once which NICs the guest has is asked again.
func TestOwnNICsAreAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := fakeGuest(t)
		g.Record.NICs = []record.BootNIC{{}}
		g.vmm = silent{asked: new(int)}
		find := func(ctx context.Context, answer func([]vmm.NIC, error)) {
			g.findOwnNICs(ctx, "")
			answer(g.own, nil)
		}
		if own, err := call(t.Context(), g, find); err != nil || own != nil {
			t.Errorf("at first: got %v, %v", own, err)
		}
		time.Sleep(2*repairTime + time.Millisecond)
		if own, err := read(t.Context(), g, func() []vmm.NIC { return g.own }); err != nil || len(own) != 1 {
			t.Errorf("later: got %v, %v, want own1", own, err)
		}
	})
}

// A VLAN that was detached while it waited for the trunk is not made.
func TestDetachWhileTheTrunkIsPlugged(t *testing.T) {
	g, _ := fakeGuest(t)
	nic := hotplug.Occupant{Slot: 1, Generation: 1}
	state, err := hotplug.New(hotplug.Config{Prefix: "u1n", Slots: 1, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 1, Cooldown: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []hotplug.Event{hotplug.Attach{Request: 1, Key: attachment.TrunkKey}, hotplug.PlugSucceeded{Occupant: nic}, hotplug.Connected{Occupant: nic}, hotplug.DeviceDeleted{Device: nic.DeviceID()}} {
		state, _ = hotplug.Step(state, e)
	}
	g.nics.state, g.lastID = state, 1
	g.nics.perform = func(ctx context.Context, action hotplug.Action) hotplug.Event {
		switch a := action.(type) {
		case hotplug.DeviceAdd:
			return hotplug.PlugSucceeded{Occupant: a.Occupant}
		case hotplug.Connect:
			return hotplug.Connected{Occupant: a.Occupant}
		}
		g.performCommon(ctx, &g.nics.slots, action)
		return nil
	}
	g.nics.trunk.link = &vlan.Trunk{}
	for id := range 4096 { // making a VLAN fails
		g.nics.trunk.left = append(g.nics.trunk.left, vlanPort{id: id})
	}
	key := attachment.Key{Owner: "c1", Name: "eth0"}
	refused, err := call(t.Context(), g, func(ctx context.Context, answer func(error, error)) {
		g.nics.attach(ctx, WantedNIC{Key: key, Record: attachment.Record{Bridge: "br0"}, Trunk: true}, func(_ Attached, err error) { answer(err, nil) })
		if !g.nics.state.Waits(attachment.TrunkKey) {
			t.Error("the trunk does not wait for the slot")
		}
		g.nics.attach(ctx, WantedNIC{Key: key, Record: attachment.Record{Bridge: "br0"}, Trunk: true}, func(_ Attached, err error) { // its client asks again
			if err == nil {
				t.Error("the second attach succeeds")
			}
		})
		g.nics.detach(ctx, key, func(bool, error) {})
		g.nics.feed(ctx, hotplug.UnplugTimedOut{Timer: hotplug.Timer{Occupant: nic}}) // the slot has cooled down
	})
	if _, attachments := g.Tenant.Stats(); err != nil || !errors.Is(refused, hotplug.ErrDetached) || attachments != 0 {
		t.Errorf("got %v and %v, want ErrDetached; %d attachments are left", refused, err, attachments)
	}
}
