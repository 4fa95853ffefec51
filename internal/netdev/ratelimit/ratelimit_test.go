package ratelimit

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/checksum"
	"unnest.io/unnest/internal/netdev/tc"
	"unnest.io/unnest/internal/netdev/thread"
)

// host is a fresh network namespace, in which the test runs, with the interface
// tap0. At its other end is a pod in a namespace of its own.
type host struct {
	t       *testing.T
	ns, pod netns.NsHandle
}

func inHost(t *testing.T, f func(*host)) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	_ = thread.Do(func() error { // t.Fatal ends its goroutine, and the thread with it
		h := &host{t: t}
		var err error
		h.pod, err = netns.New()
		h.check(err)
		defer h.pod.Close()
		h.ns, err = netns.New()
		h.check(err)
		defer h.ns.Close()
		h.plug()
		f(h)
		return nil
	})
}

func (h *host) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) in(ns netns.NsHandle, f func()) {
	h.t.Helper()
	h.check(netns.Set(ns))
	f()
	h.check(netns.Set(h.ns))
}

// plug makes tap0.
func (h *host) plug() {
	h.t.Helper()
	h.check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tap0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(h.pod)}))
	h.address("tap0", "10.0.0.1/24")
	h.in(h.pod, func() { h.address("eth0", "10.0.0.2/24") })
}

func (h *host) address(name, address string) {
	h.t.Helper()
	link, err := netlink.LinkByName(name)
	h.check(err)
	a, err := netlink.ParseAddr(address)
	h.check(err)
	h.check(netlink.AddrAdd(link, a))
	h.check(netlink.LinkSetUp(link))
}

func (h *host) unplug() {
	h.t.Helper()
	link, err := netlink.LinkByName("tap0")
	h.check(err)
	h.check(netlink.LinkDel(link))
}

// links lists the interfaces except lo and tap0.
func (h *host) links() string {
	h.t.Helper()
	links, err := netlink.LinkList()
	h.check(err)
	var names []string
	for _, l := range links {
		if name := l.Attrs().Name; name != "lo" && name != "tap0" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// settings returns the token buckets that the kernel has for frames to and from the pod.
func (h *host) settings() (to, from *netlink.Tbf) {
	h.t.Helper()
	tap, err := netlink.LinkByName("tap0")
	h.check(err)
	to = h.tbf(tap)
	index, _, err := redirectsTo(tap)
	h.check(err)
	if index == 0 {
		return to, nil
	}
	ifb, err := netlink.LinkByIndex(index)
	h.check(err)
	if ifb.Attrs().Name != ifbName("tap0") || ifb.Type() != "ifb" || ifb.Attrs().Flags&net.FlagUp == 0 {
		h.t.Fatalf("frames go to %s of type %s, %v", ifb.Attrs().Name, ifb.Type(), ifb.Attrs().Flags)
	}
	h.everyFrame(tap)
	return to, h.tbf(ifb)
}

// tbf returns the token bucket at the root of an interface, or nil.
func (h *host) tbf(link netlink.Link) *netlink.Tbf {
	h.t.Helper()
	all, err := netlink.QdiscList(link)
	h.check(err)
	for _, q := range all {
		if tbf, ok := q.(*netlink.Tbf); ok && tbf.Parent == netlink.HANDLE_ROOT {
			return tbf
		}
	}
	return nil
}

// isMirror reports whether a filter mirrors frames, as another program's.
func isMirror(f netlink.Filter) bool {
	u32, ok := f.(*netlink.U32)
	if !ok || len(u32.Actions) == 0 {
		return false
	}
	mirred, ok := u32.Actions[0].(*netlink.MirredAction)
	return ok && mirred.MirredAction == netlink.TCA_EGRESS_MIRROR
}

// everyFrame checks that one filter redirects every frame, whatever its protocol.
func (h *host) everyFrame(tap netlink.Link) {
	h.t.Helper()
	filters, err := netlink.FilterList(tap, netlink.HANDLE_MIN_INGRESS)
	h.check(err)
	redirections := 0
	for _, f := range filters {
		u32, ok := f.(*netlink.U32)
		if !ok || len(u32.Actions) == 0 || isMirror(f) { // the filter's hash table, or another program's filter
			continue
		}
		redirections++
		mirred, ok := u32.Actions[0].(*netlink.MirredAction)
		if !ok || mirred.MirredAction != netlink.TCA_EGRESS_REDIR || u32.Protocol != unix.ETH_P_ALL {
			h.t.Errorf("filter %v redirects by %v", u32, u32.Actions[0])
		}
		for _, key := range u32.Sel.Keys {
			if key.Mask != 0 {
				h.t.Errorf("the filter selects frames by %+v", key)
			}
		}
	}
	if redirections != 1 {
		h.t.Errorf("%d filters redirect frames from the pod, want 1", redirections)
	}
}

// limited checks the settings of one direction, and with frames that no more passes.
func (h *host) limited(what string, d direction, got *netlink.Tbf, want *bucket) {
	h.t.Helper()
	switch {
	case want == nil && got != nil:
		h.t.Errorf("%s: the kernel has %v, want no limit", what, got)
	case want == nil:
	case got == nil:
		h.t.Errorf("%s: the kernel has no limit, want %v", what, *want)
	case got.Rate != want.rate || got.Limit != uint32(want.limit()) || got.Buffer != uint32(want.ticks()):
		h.t.Errorf("%s: the kernel has %d byte/s, limit %d, buffer %d; want %v, limit %d, buffer %d",
			what, got.Rate, got.Limit, got.Buffer, *want, want.limit(), uint32(want.ticks()))
	}
	if !h.t.Failed() {
		h.traffic(what, d, want)
	}
}

// Each direction has its own limit, which can be changed and removed.
func TestSet(t *testing.T) {
	inHost(t, func(h *host) {
		// A machine that is a hundred times slower can still send more than that.
		fast, slow := &bucket{250e3, 125e3}, &bucket{125e3, minBurst}
		tests := []struct {
			name     string
			do       func() error
			to, from *bucket
		}{
			{"none", func() error { return Set("tap0", Limits{}) }, nil, nil},
			{"both", func() error { return Set("tap0", Limits{1e6, 0, 2e6, 1e6}) }, slow, fast},
			{"changed", func() error { return Set("tap0", Limits{2e6, 1e6, 1e6, 0}) }, fast, slow},
			{"again", func() error { return Set("tap0", Limits{2e6, 1e6, 1e6, 0}) }, fast, slow},
			{"to the pod only", func() error { return Set("tap0", Limits{IngressRate: 1e6, IngressBurst: 8}) }, slow, nil},
			{"from the pod only", func() error { return Set("tap0", Limits{EgressRate: 1e6, EgressBurst: 8}) }, nil, slow},
			{"both again", func() error { return Set("tap0", Limits{1e6, 0, 2e6, 1e6}) }, slow, fast},
			{"cleared", func() error { return Clear("tap0") }, nil, nil},
			{"cleared again", func() error { return Clear("tap0") }, nil, nil},
		}
		for _, tt := range tests {
			h.check(tt.do())
			to, from := h.settings()
			h.limited(tt.name+", to the pod", h.toPod(), to, tt.to)
			h.limited(tt.name+", from the pod", h.fromPod(), from, tt.from)
			want := ""
			if tt.from != nil {
				want = ifbName("tap0")
			}
			if got := h.links(); got != want {
				t.Errorf("%s: interfaces %q, want %q", tt.name, got, want)
			}
		}
	})
}

// Set replaces the qdisc of earlier versions, which had no room for package checksum, and keeps the
// programs of others.
func TestOtherFilters(t *testing.T) {
	inHost(t, func(h *host) {
		limits := Limits{EgressRate: 1e6}
		h.check(Set("tap0", limits))
		tap, err := netlink.LinkByName("tap0")
		h.check(err)
		ifb, err := netlink.LinkByName(ifbName("tap0"))
		h.check(err)
		h.check(netlink.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "mon0"}}))
		mirror, err := netlink.LinkByName("mon0")
		h.check(err)
		h.check(tc.Detach(tap))
		earlier := netlink.MakeHandle(0xffff, 0)
		h.check(netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: tap.Attrs().Index, Handle: earlier, Parent: netlink.HANDLE_INGRESS}}))
		h.check(netlink.FilterAdd(&netlink.U32{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: tap.Attrs().Index, Parent: earlier, Priority: 1, Protocol: unix.ETH_P_ALL},
			ClassId:     netlink.MakeHandle(1, 1), Actions: []netlink.Action{netlink.NewMirredAction(ifb.Attrs().Index)},
		}))
		if _, priority, err := redirectsTo(tap); priority != 1 || err != nil {
			t.Fatalf("the earlier filter has priority %d, %v: this shows nothing", priority, err)
		}
		h.check(Set("tap0", limits))
		checksums, err := checksum.Load()
		h.check(err)
		defer checksums.Close()
		h.check(checksums.Attach("tap0"))
		h.check(netlink.FilterAdd(&netlink.U32{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: tap.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 10, Protocol: unix.ETH_P_ALL},
			Actions: []netlink.Action{&netlink.MirredAction{
				ActionAttrs: netlink.ActionAttrs{Action: netlink.TC_ACT_PIPE}, MirredAction: netlink.TCA_EGRESS_MIRROR, Ifindex: mirror.Attrs().Index,
			}},
		}))
		for _, change := range []struct {
			name string
			do   func() error
			from *bucket
		}{
			{"with a program", func() error { return nil }, &bucket{125e3, minBurst}},
			{"cleared", func() error { return Clear("tap0") }, nil},
			{"set again", func() error { return Set("tap0", limits) }, &bucket{125e3, minBurst}},
			{"set after the ifb device was deleted", func() error {
				return errors.Join(deleteIfb(ifbName("tap0")), Set("tap0", limits))
			}, &bucket{125e3, minBurst}},
		} {
			h.check(change.do())
			_, from := h.settings()
			h.limited(change.name, h.fromPod(), from, change.from)
			filters, err := netlink.FilterList(tap, netlink.HANDLE_MIN_INGRESS)
			h.check(err)
			if !slices.ContainsFunc(filters, func(f netlink.Filter) bool { return f.Type() == "bpf" && f.Attrs().Priority == checksum.Priority }) {
				t.Errorf("%s: the program of another package is gone: %v", change.name, filters)
			}
			if !slices.ContainsFunc(filters, isMirror) {
				t.Errorf("%s: the filter of another program is gone: %v", change.name, filters)
			}
		}
		h.check(netlink.FilterAdd(&netlink.U32{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: tap.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 7, Protocol: unix.ETH_P_ALL},
			Actions:     []netlink.Action{netlink.NewMirredAction(mirror.Attrs().Index)},
		}))
		h.check(netlink.LinkDel(mirror))
		h.check(Clear("tap0"))
		h.check(Clear("tap0")) // without the device of the limit
		filters, err := netlink.FilterList(tap, netlink.HANDLE_MIN_INGRESS)
		h.check(err)
		if !slices.ContainsFunc(filters, func(f netlink.Filter) bool { return f.Attrs().Priority == 7 }) {
			t.Errorf("another program's filter to a device that is gone, is gone: %v", filters)
		}
	})
}

// Reap removes only our ifb devices that no TAP uses.
func TestReap(t *testing.T) {
	inHost(t, func(h *host) {
		h.check(netlink.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb0"}}))
		name := ifbName("tap0")
		limits := Limits{EgressRate: 1e6}
		reap := func(what, want string) {
			h.check(Reap())
			if got := h.links(); got != want {
				t.Errorf("%s: interfaces %q, want %q", what, got, want)
			}
		}
		h.check(Set("tap0", limits))
		reap("in use", "ifb0 "+name)
		h.unplug()
		if got := h.links(); got != "ifb0 "+name {
			t.Fatalf("interfaces %q without the TAP: the test shows nothing", got)
		}
		reap("the TAP is gone", "ifb0")
		h.plug()
		h.check(Set("tap0", limits))
		h.unplug()
		h.plug()
		reap("another TAP of that name", "ifb0")
		h.check(Set("tap0", limits))
		h.unplug()
		h.check(Clear("tap0"))
		if got := h.links(); got != "ifb0" {
			t.Errorf("cleared: interfaces %q", got)
		}
		h.plug()
		h.check(Set("tap0", limits))
		h.unplug()
		h.plug()
		h.check(Set("tap0", limits)) // reuses the ifb device
		to, from := h.settings()
		h.limited("existing ifb device, to the pod", h.toPod(), to, nil)
		h.limited("existing ifb device, from the pod", h.fromPod(), from, &bucket{125e3, minBurst})
	})
}

// When a step fails, no limit is left, and other interfaces are not changed.
func TestSetFails(t *testing.T) {
	inHost(t, func(h *host) {
		name := ifbName("tap0")
		h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}))
		if err := Set("tap0", Limits{10e6, 0, 10e6, 0}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error that names %s", err, name)
		}
		tap, err := netlink.LinkByName("tap0")
		h.check(err)
		qdiscs, err := netlink.QdiscList(tap)
		h.check(err)
		for _, q := range qdiscs {
			if q.Type() == "tbf" || q.Type() == "ingress" {
				t.Errorf("qdiscs are left: %s", q.Type())
			}
		}
		if got := h.links(); got != name {
			t.Errorf("interfaces %q, want %q", got, name)
		}
		h.check(Reap())
		if got := h.links(); got != name {
			t.Errorf("reaped: interfaces %q, want %q", got, name)
		}
		if err := Set("none", Limits{}); err == nil || !strings.Contains(err.Error(), "none") {
			t.Errorf("no interface: got %v", err)
		}
		h.check(Clear("none"))
	})
}

func TestBucket(t *testing.T) {
	tests := []struct {
		rate, burst uint64 // bit/s, bit
		want        *bucket
		word        string
	}{
		{0, 0, nil, ""},
		{0, 1, nil, "without a rate"},
		{7999, 0, nil, "at least 8000"},
		{8000, 0, &bucket{1000, minBurst}, ""},
		{10e6, 8, &bucket{1250e3, minBurst}, ""},
		{10e6, 80e6, &bucket{1250e3, 10e6}, ""},
		{100e9, 0, &bucket{12500e6, 625e6}, ""},
		{8000, 8e6, nil, "4 GiB"},
		{1e18, 0, nil, "4 GiB"},
	}
	for _, tt := range tests {
		got, err := newBucket(tt.rate, tt.burst)
		if tt.word != "" {
			if err == nil || !strings.Contains(err.Error(), tt.word) {
				t.Errorf("%d bit/s, %d bit: got %v, want an error with %q", tt.rate, tt.burst, err, tt.word)
			}
			continue
		}
		if got != nil && (got.limit() < minBurst || got.limit() > maxQueue) {
			t.Errorf("%d bit/s, %d bit: %d bytes may wait", tt.rate, tt.burst, got.limit())
		}
		if err != nil || (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%d bit/s, %d bit: got %v, %v; want %v", tt.rate, tt.burst, got, err, tt.want)
		}
	}
}
