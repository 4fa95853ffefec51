package ratelimit

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
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
	done := make(chan struct{})
	go func() { // t.Fatal ends this goroutine, and its thread with it
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
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
	}()
	<-done
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

// rate measures TCP from one namespace to an address in another, in Mbit/s, after the
// burst.
func (h *host) rate(from, to netns.NsHandle, address string) float64 {
	h.t.Helper()
	var listener net.Listener
	h.in(to, func() {
		var err error
		listener, err = net.Listen("tcp", address+":0")
		h.check(err)
	})
	defer listener.Close()
	var sender net.Conn
	h.in(from, func() {
		var err error
		sender, err = net.DialTimeout("tcp", listener.Addr().String(), 5*time.Second)
		h.check(err)
	})
	receiver, err := listener.Accept()
	h.check(err)
	defer receiver.Close()
	go func() {
		block := make([]byte, 64<<10)
		for {
			if _, err := sender.Write(block); err != nil {
				return
			}
		}
	}()
	defer sender.Close()
	read := func(d time.Duration) (bytes float64) {
		h.check(receiver.SetReadDeadline(time.Now().Add(d)))
		n, err := io.Copy(io.Discard, receiver)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			h.t.Fatalf("read: %v", err)
		}
		return float64(n)
	}
	read(500 * time.Millisecond)
	start := time.Now()
	bytes := read(1200 * time.Millisecond)
	return bytes * 8 / 1e6 / time.Since(start).Seconds()
}

// Each direction has its own limit, which can be changed and removed.
func TestRate(t *testing.T) {
	inHost(t, func(h *host) {
		const none = 0
		tests := []struct {
			name     string
			do       func() error
			to, from float64 // Mbit/s
		}{
			{"both", func() error { return Set("tap0", Limits{10e6, 0, 20e6, 0}) }, 10, 20},
			{"changed", func() error {
				return errors.Join(Set("tap0", Limits{20e6, 1e6, 10e6, 1e6}), Set("tap0", Limits{20e6, 1e6, 10e6, 1e6}))
			}, 20, 10},
			{"to the pod only", func() error { return Set("tap0", Limits{IngressRate: 10e6, IngressBurst: 8}) }, 10, none},
			{"from the pod only", func() error { return Set("tap0", Limits{EgressRate: 10e6, EgressBurst: 8}) }, none, 10},
			{"cleared", func() error { return errors.Join(Clear("tap0"), Clear("tap0")) }, none, none},
		}
		for _, tt := range tests {
			h.check(tt.do())
			for direction, m := range map[string]struct{ got, want float64 }{
				"to":   {h.rate(h.ns, h.pod, "10.0.0.2"), tt.to},
				"from": {h.rate(h.pod, h.ns, "10.0.0.1"), tt.from},
			} {
				t.Logf("%s, %s the pod: %.1f Mbit/s", tt.name, direction, m.got)
				switch {
				case m.want == none && m.got < 100:
					t.Errorf("%s, %s the pod: got %.1f Mbit/s, want no limit", tt.name, direction, m.got)
				case m.want != none && (m.got < atLeast*m.want || m.got > atMost*m.want):
					t.Errorf("%s, %s the pod: got %.1f Mbit/s, want %.0f", tt.name, direction, m.got, m.want)
				}
			}
			want := ""
			if tt.from != none {
				want = ifbName("tap0")
			}
			if got := h.links(); got != want {
				t.Errorf("%s: interfaces %q, want %q", tt.name, got, want)
			}
		}
	})
}

// Tolerance relative to the limit: TCP is slower on a busy machine, and can be faster by
// the bucket's content.
const atLeast, atMost = 0.6, 1.3

// Reap removes only our ifb devices that no TAP uses.
func TestReap(t *testing.T) {
	inHost(t, func(h *host) {
		h.check(netlink.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb0"}}))
		name := ifbName("tap0")
		limits := Limits{EgressRate: 10e6}
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
		if got := h.rate(h.pod, h.ns, "10.0.0.1"); got > atMost*10 || got < atLeast*10 {
			t.Errorf("with an existing ifb device: %.1f Mbit/s, want 10", got)
		}
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
