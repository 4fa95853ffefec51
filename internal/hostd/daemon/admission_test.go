package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/metrics"
	"unnest/internal/hostd/policy"
	"unnest/internal/hostd/segments"
	"unnest/internal/hostd/shares"
	"unnest/internal/hostd/status"
	"unnest/internal/vmm"
)

// noSlots is the VMM of a guest without slots.
type noSlots struct{ vmm.VMM }

func (noSlots) Slots() int { return 0 }

// fakeGuest returns a guest without slots of the test policy's first tenant, and the number
// of functions that its run goroutine has called.
func fakeGuest(t *testing.T) (g *guest, calls *int) {
	t.Helper()
	p := testPolicy().Tenants[0]
	p.Limits = policy.Limits{NICs: 1}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	tenant, err := newTenant(p, t.TempDir(), log, uncontained)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tenant.file.flush)
	h := &host{dial: dialVMM(""), metrics: metrics.New(), panics: newLimitedLog(log), ports: &ports{log: log}, segments: segments.New(log), shares: shares.New(log, "", "")}
	g = newGuest(goodRecord(), tenant, h, time.Second, log)
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
		w := wantedNIC{key: attachment.Key{Owner: "c1", Name: "eth0"}, record: attachment.Record{Bridge: "br0"}, allocate: true}
		_, err := call(t.Context(), g, func(ctx context.Context, answer func(attached, error)) { g.nics.attach(ctx, w, answer) })
		if full := (*hotplug.NoFreeSlotError)(nil); !errors.As(err, &full) || *calls != i+1 {
			t.Fatalf("attach %d: got %v after %d round trips, want no free slot after %d", i+1, err, *calls, i+1)
		}
		if stats, attachments := g.tenant.stats(); attachments != 0 || stats.InUse != 0 || stats.Cooling != 0 {
			t.Fatalf("attach %d left %d attachments, %d addresses and %d that cool down", i+1, attachments, stats.InUse, stats.Cooling)
		}
	}
}

// A NIC that cannot be described takes no address and counts as no attachment: the
// request is checked first.
func TestAttachIsCheckedBeforeItTakesAddresses(t *testing.T) {
	g, _ := fakeGuest(t)
	w := wantedNIC{key: attachment.Key{Owner: strings.Repeat("c", maxContainerID), Name: "eth0"}, record: attachment.Record{Bridge: "br0"}}
	for i := range maxAddresses {
		w.record.Addresses = append(w.record.Addresses, netip.MustParsePrefix(fmt.Sprintf("10.9.0.%d/24", 100+i)))
	}
	if _, err := g.nics.admit(w); !errors.Is(err, attachment.ErrTooLong) {
		t.Errorf("got %v, want ErrTooLong", err)
	}
	if stats, attachments := g.tenant.stats(); attachments != 0 || stats.InUse != 0 {
		t.Errorf("%d attachments and %d addresses are taken, want none", attachments, stats.InUse)
	}
}

// A request names a small number of addresses.
func TestAddressesOfARequest(t *testing.T) {
	g, _ := fakeGuest(t)
	d := &daemon{}
	r := &hostdpb.AttachNICRequest{ContainerId: "c1", Interface: "eth0"}
	for i := range 17 {
		r.Addresses = append(r.Addresses, fmt.Sprintf("fd00::%d/64", i+1))
	}
	_, err := d.wantedNIC(g.tenant, r)
	if want := "17 addresses: want at most 16"; grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want InvalidArgument with %q", err, want)
	}
	r.Addresses = r.Addresses[:16]
	if w, err := d.wantedNIC(g.tenant, r); err != nil || len(w.record.Addresses) != 16 {
		t.Errorf("got %v, %v, want 16 addresses", w.record.Addresses, err)
	}
}

// When the connection to the VMM ends, the requests under way fail, and what was reserved
// for them is free again.
func TestRunEnds(t *testing.T) {
	g, _ := fakeGuest(t)
	key := attachment.Key{Owner: "c1", Name: "eth0"}
	refused, err := read(t.Context(), g, func() error {
		_, err := g.nics.admit(wantedNIC{key: key, allocate: true})
		g.waiting[1] = func(r hotplug.Reply) {
			if !errors.Is(r.Err, errUnavailable) {
				t.Errorf("the request ended with %v", r.Err)
			}
			g.nics.releaseUnused(key)
		}
		return err
	})
	if err != nil || refused != nil {
		t.Fatal(err, refused)
	}
	if _, attachments := g.tenant.stats(); attachments != 1 {
		t.Fatalf("%d attachments are admitted, want 1", attachments)
	}
	g.record.QMP = t.TempDir() + "/no.qmp"
	g.run(t.Context()) // cannot connect
	if stats, attachments := g.tenant.stats(); attachments != 0 || stats.InUse != 0 {
		t.Errorf("%d attachments and %d addresses are left", attachments, stats.InUse)
	}
}

// A reboot of a guest ends its NICs, but none is lost.
func TestRebootLosesNoNIC(t *testing.T) {
	for reset, want := range map[bool]bool{false: true, true: false} {
		g, _ := fakeGuest(t)
		g.nics.performAction(t.Context(), hotplug.Lost{Reset: reset})
		w := httptest.NewRecorder()
		g.host.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if got := strings.Contains(w.Body.String(), `unnest_hostd_lost_nics_total{guest="`); got != want {
			t.Errorf("reset %v: counted as lost: %v, want %v", reset, got, want)
		}
	}
}

// The NICs that a guest's pods can still get are as many as slots, limits and addresses allow.
func TestFreeNICs(t *testing.T) {
	g, _ := fakeGuest(t) // one range with 254 addresses, of which the gateway has one
	for _, tt := range []struct {
		limits   policy.Limits
		guest    status.Guest
		allocate bool
		want     int
	}{
		{policy.Limits{}, status.Guest{SlotsFree: 3, Pool: 2}, false, 5},
		{policy.Limits{NICs: 4}, status.Guest{SlotsFree: 3, Pool: 2, Attachments: 1}, true, 3},
		{policy.Limits{}, status.Guest{SlotsFree: 1000}, false, 1000},
		{policy.Limits{}, status.Guest{SlotsFree: 1000}, true, free(g)},
		{policy.Limits{Addresses: 4}, status.Guest{Name: "node1", SlotsFree: 3}, true, 3},
		{policy.Limits{Addresses: 4}, status.Guest{Name: "held", SlotsFree: 3}, true, 2},
	} {
		p := g.tenant.Tenant
		p.Limits = tt.limits
		g.tenant.changed.Store(&p)
		if tt.guest.Name == "held" {
			for _, owner := range []string{"held/a", "held/b"} {
				if _, err := g.tenant.take(owner, nil, true); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := g.tenant.freeNICs(tt.guest, tt.allocate); got != tt.want {
			t.Errorf("%+v with %+v: got %d, want %d", tt.guest, tt.limits, got, tt.want)
		}
	}
}

// free returns how many addresses of the range of a guest's tenant are free.
func free(g *guest) int {
	stats, _ := g.tenant.stats()
	return int(stats.Ranges[0].Free)
}
