package bridge

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// guarded returns a network whose host is protected from its bridges.
func guarded(n Network, g Guard) Network {
	g.Bridges = []string{n.Bridge}
	n.Guard = &g
	return n
}

// listen serves like serve, on another port.
func (h *host) listen(port string) {
	h.t.Helper()
	l, err := net.Listen("tcp", ":"+port)
	h.check(err)
	h.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
}

// connects reports whether a connection from the namespace is accepted.
func (h *host) connects(from netns.NsHandle, address string, limit time.Duration) (ok bool) {
	h.t.Helper()
	h.in(from, func() {
		c, err := net.DialTimeout("tcp", address, limit)
		if ok = err == nil; ok {
			c.Close()
		}
	})
	return ok
}

// pings reports whether the address answers an echo request.
func (h *host) pings(from netns.NsHandle, to string) bool {
	h.t.Helper()
	return h.pingsWithin(from, to, reachLimit)
}

func (h *host) pingsWithin(from netns.NsHandle, to string, limit time.Duration) (ok bool) {
	h.t.Helper()
	network, request := "ip4:icmp", []byte{8, 0, 0xf7, 0xfe, 0, 1, 0, 0}
	if netip.MustParseAddr(to).Is6() {
		network, request = "ip6:ipv6-icmp", []byte{128, 0, 0, 0, 0, 1, 0, 0} // the kernel fills the checksum in
	}
	h.in(from, func() {
		c, err := net.Dial(network, to)
		h.check(err)
		defer c.Close()
		_, err = c.Write(request)
		h.check(err)
		h.check(c.SetReadDeadline(time.Now().Add(limit)))
		_, err = c.Read(make([]byte, 1500))
		ok = err == nil
	})
	return ok
}

// Pods reach the ports of the host that are listed, and no metadata service. What the
// host and the outside call answers.
func TestGuardOfHost(t *testing.T) {
	inHost(t, func(h *host) {
		daemon := netip.MustParseAddrPort("10.1.0.1:7443")
		closed := guarded(red, Guard{Ports: []HostPort{{unix.IPPROTO_TCP, 8001}, {unix.IPPROTO_UDP, 8002}}, Daemon: daemon})
		h.check(h.ensure([]Network{closed, blue}))
		pod := h.attach("r1", "red", []string{"10.1.0.2/16", "fd01::2/64"}, "10.1.0.1", "fd01::1")
		other := h.attach("b1", "blue", []string{"10.2.0.2/16"}, "10.2.0.1")
		outside := h.attach("uplink", "", []string{"192.0.2.2/24", "2001:db8::2/64", "169.254.170.2/32"}, "192.0.2.1", "2001:db8::1")
		h.address("uplink", "192.0.2.1/24", "2001:db8::1/64")
		h.address("lo", "169.254.169.254/32", "fd00:ec2::254/128", "100.100.100.200/32", "168.63.129.16/32")
		h.check(netlink.RouteAdd(&netlink.Route{Dst: subnet("169.254.170.2/32"), Gw: net.ParseIP("192.0.2.2")}))
		for _, ns := range []netns.NsHandle{h.ns, pod, outside} {
			h.in(ns, h.serve)
		}
		for _, port := range []string{"8001", "8002", "7443"} {
			h.listen(port)
		}
		hosts := []string{"10.1.0.1:8000", "[fd01::1]:8000", "192.0.2.1:8000", "[2001:db8::1]:8000", "10.1.0.1:8002", "192.0.2.1:7443"}
		metadata := []string{"169.254.169.254:8000", "[fd00:ec2::254]:8000", "100.100.100.200:8000", "168.63.129.16:8000", "169.254.170.2:8000"}
		refused := func(what string, want bool, addresses ...string) {
			t.Helper()
			for _, a := range addresses {
				limit := 300 * time.Millisecond
				if !want {
					limit = reachLimit
				}
				if got := !h.connects(pod, a, limit); got != want {
					t.Errorf("%s: connection to %s is refused: %t, want %t", what, a, got, want)
				}
			}
		}
		refused("closed", true, hosts...)
		refused("closed", true, metadata...)
		refused("closed", false, "10.1.0.1:8001", "[fd01::1]:8001", "192.0.2.1:8001", "10.1.0.1:7443", "192.0.2.2:8000", "[2001:db8::2]:8000")
		if !h.pings(pod, "10.1.0.1") || !h.pings(pod, "fd01::1") {
			t.Error("the gateway does not answer an echo request")
		}
		for _, ns := range []netns.NsHandle{h.ns, outside} {
			if h.call(ns, "10.1.0.2", reachLimit) == "" || h.call(ns, "fd01::2", reachLimit) == "" {
				t.Error("closed: a pod cannot be called")
			}
		}
		if h.call(other, "10.2.0.1", reachLimit) == "" {
			t.Error("a tenant without a guard cannot call its gateway")
		}
		drops, err := h.filter.Drops()
		h.check(err)
		if drops["host"] < uint64(len(hosts)) || drops["metadata"] < uint64(len(metadata)) {
			t.Errorf("drops are %v", drops)
		}
		h.check(h.ensure([]Network{guarded(red, Guard{AllPorts: true}), blue}))
		refused("all ports", false, hosts...)
		refused("all ports", true, metadata...)
		h.check(h.ensure([]Network{guarded(red, Guard{Metadata: true, AllPorts: true}), blue}))
		refused("with metadata", false, metadata...)
		h.check(h.ensure([]Network{red, blue})) // else the test would show nothing
		refused("without a guard", false, hosts...)
		refused("without a guard", false, metadata...)
	})
}

func subnet(text string) *net.IPNet {
	_, s, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return s
}

// send sends a datagram from the namespace to each address, from a socket of its own if
// ports are to differ. Errors of single ones are those of full queues.
func (h *host) send(from netns.NsHandle, network string, sockets int, to []string) {
	h.t.Helper()
	h.in(from, func() {
		var all []net.PacketConn
		for range sockets {
			c, err := net.ListenPacket(network, map[bool]string{true: ":0", false: ""}[network == "udp"])
			h.check(err)
			defer c.Close()
			all = append(all, c)
		}
		for i, address := range to {
			var a net.Addr = &net.IPAddr{IP: net.ParseIP(address)}
			if network == "udp" {
				a = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address))
			}
			_, _ = all[i%sockets].WriteTo([]byte("0123456789"), a)
		}
	})
}

// connections is how many the kernel tracks for the host.
func (h *host) connections() int {
	h.t.Helper()
	n, err := strconv.Atoi(sysctl(h, "net/netfilter/nf_conntrack_count"))
	h.check(err)
	return n
}

// A tenant's pods fill only a part of the kernel's table of connections.
func TestGuardOfConnections(t *testing.T) {
	inHost(t, func(h *host) {
		const limit, attempts = 640, 4000
		blue := blue
		blue.NAT = true
		h.check(h.ensure([]Network{guarded(red, Guard{Connections: limit}), guarded(blue, Guard{Connections: limit})}))
		pod := h.attach("r1", "red", []string{"10.1.0.2/16"}, "10.1.0.1")
		other := h.attach("b1", "blue", []string{"10.2.0.2/16"}, "10.2.0.1")
		outside := h.attach("uplink", "", []string{"192.0.2.2/24"}, "192.0.2.1")
		h.address("uplink", "192.0.2.1/24")
		h.in(outside, h.serve)
		var ported, others []string
		for i := range 100 {
			others = append(others, fmt.Sprint("198.51.100.", i))
		}
		for i := range attempts {
			ported = append(ported, fmt.Sprintf("192.0.2.2:%d", 20000+i))
		}
		h.check(netlink.RouteAdd(&netlink.Route{Dst: subnet("198.51.0.0/16"), Gw: net.ParseIP("192.0.2.2")}))
		attack := func() {
			h.send(pod, "udp", 300, ported)
			for protocol := 200; protocol < 220; protocol++ {
				h.send(pod, fmt.Sprint("ip4:", protocol), 1, others)
			}
			time.Sleep(200 * time.Millisecond) // for the last frames
		}
		if h.call(pod, "192.0.2.2", reachLimit) == "" { // resolves the next hops
			t.Fatal("the pod does not reach the outside")
		}
		attack()
		if got := h.connections(); got < limit/4 || got > limit+3*limit/shards {
			t.Errorf("the host tracks %d connections, want at most %d", got, limit)
		}
		if list := h.nft("", "list", "set", "inet", Tenants, "others-726564-640"); strings.Count(list, "ct count") != 1 {
			t.Errorf("other protocols are not counted together: %s", list)
		}
		dropped := func() uint64 {
			drops, err := h.filter.Drops()
			h.check(err)
			return drops["connections"]
		}
		for begin := time.Now(); dropped() < attempts; attack() { // a busy host loses frames before it counts them
			if time.Since(begin) > reachLimit {
				t.Fatalf("%d drops, want %d", dropped(), attempts)
			}
		}
		for range 50 {
			if got := h.call(other, "192.0.2.2", reachLimit); got != "192.0.2.1" {
				t.Fatalf("another tenant calls the outside: seen as %q", got)
			}
		}
		h.check(h.ensure([]Network{red, blue}))
		for begin := time.Now(); h.connections() < attempts; attack() {
			if time.Since(begin) > reachLimit {
				t.Fatalf("the host tracks %d connections without a guard: the test shows nothing", h.connections())
			}
		}
	})
}

// A tenant that has the filter replaced, as by fragments that are never finished, gets no further connections by that: neither at the same time,
// nor per second. Nor does a reload that puts another tenant first give any.
func TestAttackConnectionsAcrossReplacements(t *testing.T) {
	inHost(t, func(h *host) {
		const limit = 6400
		mine, other := guarded(red, Guard{Connections: limit}), guarded(blue, Guard{Connections: limit})
		h.check(h.ensure([]Network{mine, other}))
		pod := h.attach("r1", "red", []string{"10.1.0.2/16"}, "10.1.0.1")
		outside := h.attach("uplink", "", []string{"192.0.2.2/24"}, "192.0.2.1")
		h.address("uplink", "192.0.2.1/24")
		h.in(outside, h.serve)
		if h.call(pod, "192.0.2.2", reachLimit) == "" { // resolves the next hops
			t.Fatal("the pod does not reach the outside")
		}
		var to []string
		for i := range 3 * limit {
			to = append(to, fmt.Sprintf("192.0.2.2:%d", 20000+i))
		}
		begin := time.Now()
		attack := func(what string) {
			t.Helper()
			h.send(pod, "udp", 300, to)
			time.Sleep(200 * time.Millisecond) // for the last frames
			if got := h.connections(); got > limit+3*limit/shards {
				t.Errorf("%s: the host tracks %d connections, want at most %d", what, got, limit)
			}
		}
		attack("at first")
		if got := h.connections(); got < limit/2 {
			t.Fatalf("the host tracks %d connections: the test shows nothing", got)
		}
		fragments := func(later time.Duration) {
			_, changed, err := h.filter.ShareFragments(time.Now().Add(later))
			if h.check(err); !changed {
				t.Error("the limit of fragments has not changed")
			}
		}
		restore := func() {
			h.nft("insert rule inet "+Tenants+" forward accept", "-f", "-")
			h.check(h.filter.apply(h.filter.networks))
		}
		h.filter.crowded = time.Now()
		fragments(0)
		attack("fragments are limited")
		fragments(2 * calmTime)
		attack("fragments are not limited any more")
		h.check(h.ensure([]Network{other, mine}))
		attack("reloaded")
		restore()
		attack("restored")
		h.check(netlink.ConntrackTableFlush(netlink.ConntrackTable)) // now the rate alone bounds new ones
		h.check(h.ensure([]Network{mine, other}))
		restore()
		attack("forgotten")
		if got, most := h.connections(), int(time.Since(begin).Seconds()+1)*limit/connectionSeconds; got > most {
			t.Errorf("%d new connections in %v, want at most %d", got, time.Since(begin), most)
		}
	})
}

// A pod that lets the host resolve addresses that no one has fills only a part of the
// kernel's tables of neighbours. Pods that have answered are reached.
func TestGuardOfNeighbours(t *testing.T) {
	inHost(t, func(h *host) {
		const attempts = 400 // the kernel has one table for all namespaces: stay below its size
		h.check(h.ensure([]Network{guarded(red, Guard{})}))
		pod := h.attach("r1", "red", []string{"10.1.0.2/32", "fd01::2/128"})
		h.in(pod, func() { // all its packets go to the host
			for _, g := range []string{"10.1.0.1/32", "fd01::1/128"} {
				h.check(netlink.RouteAdd(&netlink.Route{LinkIndex: h.link("eth0").Attrs().Index, Dst: subnet(g), Scope: netlink.SCOPE_LINK}))
				h.check(netlink.RouteAdd(&netlink.Route{LinkIndex: h.link("eth0").Attrs().Index, Gw: netip.MustParsePrefix(g).Addr().AsSlice()}))
			}
			h.check(os.WriteFile("/proc/sys/net/ipv4/conf/eth0/accept_redirects", []byte("0"), 0))
			h.check(os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_redirects", []byte("0"), 0))
		})
		asker := h.attach("r4", "red", []string{"10.1.0.5/32"})
		h.in(asker, func() {
			h.check(netlink.RouteAdd(&netlink.Route{LinkIndex: h.link("eth0").Attrs().Index, Dst: subnet("10.1.0.1/32"), Scope: netlink.SCOPE_LINK}))
			h.check(netlink.RouteAdd(&netlink.Route{LinkIndex: h.link("eth0").Attrs().Index, Gw: netip.MustParseAddr("10.1.0.1").AsSlice()}))
		})
		peer := h.attach("r2", "red", []string{"10.1.0.3/16", "fd01::3/64"}, "10.1.0.1", "fd01::1")
		late := h.attach("r3", "red", []string{"10.1.0.4/16"}, "10.1.0.1")
		for _, ns := range []netns.NsHandle{peer, late} {
			h.in(ns, h.serve)
		}
		reached := func(when string) {
			t.Helper()
			for _, a := range []string{"10.1.0.3", "fd01::3"} {
				if h.call(pod, a, reachLimit) == "" {
					t.Errorf("%s: a pod that has answered before is not reached at %s", when, a)
				}
			}
		}
		neighbours := func() int {
			all, err := netlink.NeighList(h.link("red").Attrs().Index, 0)
			h.check(err)
			return len(slices.DeleteFunc(all, func(n netlink.Neigh) bool { return n.IP.IsMulticast() }))
		}
		attack := func(part int) {
			var to []string
			for i := range attempts / 2 {
				to = append(to, fmt.Sprintf("10.1.%d.%d:9", part, i+1), fmt.Sprintf("[fd01::%d:%x]:9", part, i+1))
			}
			h.send(pod, "udp", 1, to)
			time.Sleep(100 * time.Millisecond)
		}
		reached("before")
		begin := time.Now()
		for attack(5); neighbours() < resolveBurst/2; attack(5) {
			if time.Since(begin) > reachLimit {
				t.Fatalf("the host has %d neighbours, want about %d", neighbours(), resolveBurst)
			}
		}
		got := neighbours()
		if most := resolveBurst + 50 + int(time.Since(begin).Seconds()*resolveRate); got > most {
			t.Errorf("the host has %d neighbours, want at most %d", got, most)
		}
		reached("after")
		var others []string
		for i := range 20 {
			others = append(others, fmt.Sprintf("10.1.9.%d:9", i+1))
		}
		for begin := time.Now(); ; attack(7) { // while the attack goes on
			h.send(asker, "udp", 1, others)
			all, err := netlink.NeighList(h.link("red").Attrs().Index, netlink.FAMILY_V4)
			h.check(err)
			ninth := netip.MustParsePrefix("10.1.9.0/24")
			asked := slices.DeleteFunc(all, func(n netlink.Neigh) bool { a, _ := netip.AddrFromSlice(n.IP); return !ninth.Contains(a.Unmap()) })
			if len(asked) == len(others) {
				break
			}
			if time.Since(begin) > time.Second {
				t.Errorf("the host resolves %d of %d addresses for another pod of the bridge", len(asked), len(others))
				break
			}
		}
		if h.call(h.ns, "10.1.0.4", reachLimit) == "" {
			t.Error("the host itself cannot resolve an address")
		}
		h.check(h.ensure([]Network{red}))
		for begin := time.Now(); neighbours() < attempts; attack(6) {
			if time.Since(begin) > reachLimit {
				t.Fatalf("the host has %d neighbours without a guard: the test shows nothing", neighbours())
			}
		}
	})
}
