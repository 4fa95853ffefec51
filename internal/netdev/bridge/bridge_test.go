package bridge

import (
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/thread"
)

// host is a fresh network namespace, in which the test runs, and others with one
// NIC each.
type host struct {
	t      *testing.T
	ns     netns.NsHandle
	filter *Filter
}

func (h *host) ensure(networks []Network) error { return h.filter.Ensure(networks) }

// inHost runs f in a host. All namespaces end with the test.
func inHost(t *testing.T, f func(*host)) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	_ = thread.Do(func() error { // t.Fatal ends its goroutine, and the thread with it
		h := &host{t: t}
		h.ns = h.newNS()
		filter, err := Open(Tenants)
		h.check(err)
		defer filter.Close()
		h.filter = filter
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

func (h *host) newNS() netns.NsHandle {
	h.t.Helper()
	ns, err := netns.New()
	h.check(err)
	h.t.Cleanup(func() { ns.Close() })
	lo, err := netlink.LinkByName("lo")
	h.check(err)
	h.check(netlink.LinkSetUp(lo))
	return ns
}

// in runs f in another namespace.
func (h *host) in(ns netns.NsHandle, f func()) {
	h.t.Helper()
	h.check(netns.Set(ns))
	f()
	h.check(netns.Set(h.ns))
}

func (h *host) link(name string) netlink.Link {
	h.t.Helper()
	l, err := netlink.LinkByName(name)
	h.check(err)
	return l
}

// address gives addresses to an interface, sets it up, and waits until IPv6 is
// ready to use.
func (h *host) address(name string, addresses ...string) {
	h.t.Helper()
	l := h.link(name)
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		h.check(err)
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		h.check(netlink.AddrAdd(l, a))
	}
	h.check(netlink.LinkSetUp(l))
}

// attach makes a namespace whose NIC eth0 is at the host's interface port, on a
// bridge if one is named. Its default routes are by the gateways.
func (h *host) attach(port, bridge string, addresses []string, gateways ...string) netns.NsHandle {
	h.t.Helper()
	ns := h.newNS()
	h.check(netns.Set(h.ns))
	attrs := netlink.LinkAttrs{Name: port}
	if bridge != "" {
		attrs.MasterIndex = h.link(bridge).Attrs().Index
	}
	h.check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}))
	h.check(netlink.LinkSetUp(h.link(port)))
	h.in(ns, func() {
		h.address("eth0", addresses...)
		for _, g := range gateways {
			h.check(netlink.RouteAdd(&netlink.Route{LinkIndex: h.link("eth0").Attrs().Index, Gw: net.ParseIP(g)}))
		}
	})
	return ns
}

// serve sends every caller its address, in the namespace of the thread.
func (h *host) serve() {
	h.t.Helper()
	listener, err := net.Listen("tcp", ":8000")
	h.check(err)
	h.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			caller, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			_, _ = io.WriteString(c, caller)
			c.Close()
		}
	}()
}

// call returns the address by which the server sees a caller in the namespace, or "" when
// the caller cannot connect.
func (h *host) call(from netns.NsHandle, to string, limit time.Duration) (caller string) {
	h.t.Helper()
	h.in(from, func() {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(to, "8000"), limit)
		if err != nil {
			return
		}
		defer c.Close()
		got, err := io.ReadAll(c)
		h.check(err)
		caller = string(got)
	})
	return caller
}

// reachLimit is the time for a connection that is expected, on a busy machine.
const reachLimit = time.Minute

func prefixes(all ...string) (parsed []netip.Prefix) {
	for _, p := range all {
		parsed = append(parsed, netip.MustParsePrefix(p))
	}
	return parsed
}

var (
	red  = Network{Bridge: "red", MTU: 1500, Gateways: prefixes("10.1.0.1/16", "fd01::1/64"), NAT: true}
	blue = Network{Bridge: "blue", MTU: 1400, Gateways: prefixes("10.2.0.1/16", "fd02::1/64")}
	own  = Network{Bridge: "own"}
)

// Real connections show who reaches whom, and with which address.
func TestReach(t *testing.T) {
	inHost(t, func(h *host) {
		h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "own"}}))
		h.address("own", "10.3.0.1/16", "fd03::1/64")
		h.check(h.ensure([]Network{red, blue, own}))
		h.check(h.ensure([]Network{red, blue, own}))
		pod := map[string]netns.NsHandle{
			"red":     h.attach("r1", "red", []string{"10.1.0.2/16", "fd01::2/64"}, "10.1.0.1", "fd01::1"),
			"red2":    h.attach("r2", "red", []string{"10.1.0.3/16", "fd01::3/64"}, "10.1.0.1", "fd01::1"),
			"blue":    h.attach("b1", "blue", []string{"10.2.0.2/16", "fd02::2/64"}, "10.2.0.1", "fd02::1"),
			"own":     h.attach("o1", "own", []string{"10.3.0.2/16", "fd03::2/64"}, "10.3.0.1", "fd03::1"),
			"outside": h.attach("uplink", "", []string{"192.0.2.2/24", "2001:db8::2/64"}, "192.0.2.1", "2001:db8::1"),
			"host":    h.ns,
		}
		h.address("uplink", "192.0.2.1/24", "2001:db8::1/64")
		for _, ns := range pod {
			h.in(ns, h.serve)
		}
		tests := []struct{ from, to, caller string }{
			{"red", "10.1.0.1", "10.1.0.2"}, // its gateway
			{"red", "fd01::1", "fd01::2"},
			{"red", "10.1.0.3", "10.1.0.2"}, // its neighbour
			{"red", "fd01::3", "fd01::2"},
			{"red", "192.0.2.2", "192.0.2.1"}, // the outside, with NAT
			{"red", "2001:db8::2", "2001:db8::1"},
			{"blue", "192.0.2.2", "10.2.0.2"}, // without NAT
			{"blue", "2001:db8::2", "fd02::2"},
			{"outside", "10.2.0.2", "192.0.2.2"},
			{"red", "192.0.2.1", "10.1.0.2"}, // an address of the host outside the tenants' networks
			{"red", "2001:db8::1", "fd01::2"},
			{"host", "10.1.0.2", "10.1.0.1"},
			{"host", "fd02::2", "fd02::1"},
			{"red", "10.2.0.1", ""}, // another tenant's gateway
			{"red", "fd02::1", ""},
			{"blue", "10.1.0.1", ""},
			{"own", "10.1.0.1", ""},
			{"red", "10.2.0.2", ""}, // another tenant
			{"red", "fd02::2", ""},
			{"blue", "10.1.0.2", ""},
			{"blue", "fd01::2", ""},
			{"red", "10.3.0.2", ""}, // on an operator's bridge
			{"red", "fd03::2", ""},
			{"own", "10.2.0.2", ""},
			{"own", "10.3.0.1", "10.3.0.2"},
		}
		h.wantCalls(pod, tests)
	})
}

// wantCalls checks as whom each caller is seen; "": the caller cannot call, but could without the filter. wantCalls removes the filter.
func (h *host) wantCalls(pod map[string]netns.NsHandle, tests []struct{ from, to, caller string }) {
	h.t.Helper()
	for _, tt := range tests {
		limit := 400 * time.Millisecond
		if tt.caller != "" {
			limit = reachLimit
		}
		if got := h.call(pod[tt.from], tt.to, limit); got != tt.caller {
			h.t.Errorf("%s calls %s: seen as %q, want %q", tt.from, tt.to, got, tt.caller)
		}
	}
	h.removeFilter()
	for _, tt := range tests {
		if tt.caller == "" && h.call(pod[tt.from], tt.to, reachLimit) == "" {
			h.t.Errorf("%s cannot call %s without the filter either: the test proves nothing", tt.from, tt.to)
		}
	}
}

func (h *host) removeFilter() {
	h.t.Helper()
	c, err := nftables.New()
	h.check(err)
	c.DelTable(h.filter.table)
	h.check(c.Flush())
}

func (h *host) addresses(name string) string {
	h.t.Helper()
	all, err := addressesOf(h.link(name))
	h.check(err)
	var texts []string
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, " ")
}

func sysctl(h *host, file string) string {
	h.t.Helper()
	value, err := os.ReadFile("/proc/sys/" + file)
	h.check(err)
	return strings.TrimSpace(string(value))
}

func TestEnsure(t *testing.T) {
	inHost(t, func(h *host) {
		h.check(h.ensure([]Network{red, blue}))
		made := h.link("blue").Attrs()
		if made.MTU != 1400 || made.Flags&net.FlagUp == 0 || made.HardwareAddr[0]&3 != 2 {
			t.Errorf("blue: %+v", made)
		}
		if got := h.addresses("red"); got != "10.1.0.1/16 fd01::1/64" {
			t.Errorf("red has addresses %s", got)
		}
		for file, want := range map[string]string{
			"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
			"net/bridge/bridge-nf-call-iptables": "0", "net/bridge/bridge-nf-call-ip6tables": "0",
		} {
			if got := sysctl(h, file); got != want {
				t.Errorf("%s is %s, want %s", file, got, want)
			}
		}
		h.attach("b1", "blue", nil)
		h.check(netlink.LinkSetMTU(h.link("b1"), 1300))
		h.check(netlink.AddrDel(h.link("red"), &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("10.1.0.1"), Mask: net.CIDRMask(16, 32)}}))
		h.check(netlink.LinkSetDown(h.link("red")))
		moved := blue
		moved.Gateways = prefixes("10.2.255.1/16")
		h.check(h.ensure([]Network{red, moved}))
		if got := h.addresses("red"); !strings.Contains(got, "10.1.0.1/16") || h.link("red").Attrs().Flags&net.FlagUp == 0 {
			t.Errorf("red was not completed: addresses %s", got)
		}
		if got := h.addresses("blue"); got != "10.2.255.1/16" {
			t.Errorf("blue has addresses %s", got)
		}
		got := h.link("blue").Attrs()
		if got.Index != made.Index || got.HardwareAddr.String() != made.HardwareAddr.String() || got.MTU != 1400 {
			t.Errorf("blue is %+v, was %+v", got, made)
		}
	})
}

// When Ensure fails, the error gives the reason, and everything is as before.
func TestEnsureFails(t *testing.T) {
	tests := []struct {
		name    string
		network Network
		word    string
	}{
		{"no such bridge", Network{Bridge: "none"}, "bridge does not exist: add it"},
		{"an operator's bridge", Network{Bridge: "own", MTU: 1500, Gateways: prefixes("10.3.0.1/16")}, "was not made by unnest"},
		{"not a bridge", Network{Bridge: "lo", MTU: 1500, Gateways: prefixes("10.3.0.1/16")}, "want a bridge"},
		{"not a bridge, and no gateways", Network{Bridge: "lo"}, "want a bridge"},
		{"bad MTU", Network{Bridge: "new", MTU: 1 << 20, Gateways: prefixes("10.3.0.1/16")}, "MTU 1048576"},
		{"bad name", Network{Bridge: "sixteen--letters", MTU: 1500, Gateways: prefixes("10.3.0.1/16")}, "sixteen--letters"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inHost(t, func(h *host) {
				h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "own", MTU: 1450}}))
				v4 := blue
				v4.Gateways = prefixes("10.2.0.1/16")
				h.check(h.ensure([]Network{v4}))
				h.check(os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0))
				other := blue
				other.MTU, other.Gateways = 1300, prefixes("10.9.0.1/16")
				err := h.ensure([]Network{red, other, tt.network})
				if err == nil || !strings.Contains(err.Error(), tt.word) || !strings.Contains(err.Error(), tt.network.Bridge) {
					t.Errorf("got %v, want an error with %q", err, tt.word)
				}
				if err != nil && strings.Contains(err.Error(), "undo") {
					t.Errorf("roll back: %v", err)
				}
				links, err := netlink.LinkList()
				h.check(err)
				var names []string
				for _, l := range links {
					names = append(names, l.Attrs().Name)
				}
				if slices.Sort(names); strings.Join(names, " ") != "blue lo own" {
					t.Errorf("interfaces: %v", names)
				}
				if b := h.link("blue").Attrs(); h.addresses("blue") != "10.2.0.1/16" || b.MTU != 1400 {
					t.Errorf("blue was changed: addresses %s, MTU %d", h.addresses("blue"), b.MTU)
				}
				if o := h.link("own").Attrs(); h.addresses("own") != "" || o.MTU != 1450 || o.Alias != "" || o.Flags&net.FlagUp != 0 {
					t.Errorf("own was changed: %+v", o)
				}
				if sysctl(h, "net/bridge/bridge-nf-call-iptables") != "1" || sysctl(h, "net/ipv6/conf/all/forwarding") != "0" {
					t.Error("sysctls were not restored")
				}
			})
		})
	}
}

// When the last settings cannot be written, the packet filter is as before, too.
func TestEnsureFailsLate(t *testing.T) {
	inHost(t, func(h *host) {
		const file = "/proc/sys/net/ipv4/ipfrag_time"
		h.check(h.ensure([]Network{red}))
		before := h.nft("", "list", "set", "inet", Tenants, "pairs")
		h.check(os.WriteFile(file, []byte("30"), 0))
		h.check(unix.Unshare(unix.CLONE_NEWNS))
		h.check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		h.check(unix.Mount(file, file, "", unix.MS_BIND, ""))
		h.check(unix.Mount("", file, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		if err := h.ensure([]Network{red, blue}); err == nil || !strings.Contains(err.Error(), "ipfrag_time") || strings.Contains(err.Error(), "undo") {
			t.Errorf("got %v, want that ipfrag_time cannot be set", err)
		}
		if after := h.nft("", "list", "set", "inet", Tenants, "pairs"); after != before {
			t.Errorf("the packet filter has\n%s\nand had\n%s", after, before)
		}
	})
}

// Ensure takes a bridge over that a process has left before it had its alias.
func TestEnsureAfterKill(t *testing.T) {
	inHost(t, func(h *host) {
		var killed undo
		_, err := killed.addBridge(red)
		h.check(err)
		if made := h.link("red").Attrs(); made.Alias != "" {
			t.Fatalf("the bridge has an alias already: %+v", made)
		}
		h.check(h.ensure([]Network{red}))
		if made := h.link("red").Attrs(); made.Alias != bridgeAlias || h.addresses("red") == "" {
			t.Errorf("red was not completed: %+v", made)
		}
	})
}

// A bridge does not learn the source of an LLDP frame, which passes no filter.
func TestControlFrame(t *testing.T) {
	inHost(t, func(h *host) {
		source := net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
		h.check(h.ensure([]Network{red}))
		h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "own"}}))
		h.check(netlink.LinkSetUp(h.link("own")))
		guests := []netns.NsHandle{h.attach("r1", "red", nil), h.attach("o1", "own", nil)}
		for _, g := range guests {
			h.in(g, func() {
				fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
				h.check(err)
				defer unix.Close(fd)
				frame := slices.Concat([]byte{1, 0x80, 0xc2, 0, 0, 0x0e}, source, []byte{0x88, 0xcc}, make([]byte, 50))
				h.check(unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: h.link("eth0").Attrs().Index}))
			})
		}
		learnt := func(port string) bool {
			entries, err := netlink.NeighList(h.link(port).Attrs().Index, unix.AF_BRIDGE)
			h.check(err)
			return slices.ContainsFunc(entries, func(e netlink.Neigh) bool { return e.HardwareAddr.String() == source.String() })
		}
		for end := time.Now().Add(reachLimit); !learnt("o1"); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("another bridge does not learn it either: the test shows nothing")
			}
		}
		if learnt("r1") {
			t.Error("our bridge has learnt it")
		}
	})
}
