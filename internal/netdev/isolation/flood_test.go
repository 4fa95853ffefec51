package isolation

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// flood sends UDP datagrams from a pod, one for each source that from returns.
func (n *network) flood(pod int, to netip.AddrPort, count int, from func(i int) netip.AddrPort) {
	n.t.Helper()
	n.send(pod, to.Addr(), count, func(i int) []byte { return datagram(from(i), to) })
}

// send sends packets of IPv4 from a pod to another with raw sockets.
func (n *network) send(pod int, to netip.Addr, count int, packet func(i int) []byte) {
	n.t.Helper()
	n.in(pod, func() {
		link, err := netlink.LinkByName("eth0")
		n.check(err)
		destination := n.mac(to)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		n.check(err)
		defer unix.Close(fd)
		n.check(unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index, Protocol: 0}))
		n.check(unix.Setpriority(unix.PRIO_PROCESS, 0, -20)) // of this thread: the connections that it begins expire within seconds
		defer func() { n.check(unix.Setpriority(unix.PRIO_PROCESS, 0, 0)) }()
		for i := range count {
			frame := slices.Concat(destination, link.Attrs().HardwareAddr, []byte{0x08, 0x00}, packet(i))
			for err = unix.ENOBUFS; errors.Is(err, unix.ENOBUFS); {
				err = unix.Send(fd, frame, 0)
			}
			n.check(err)
		}
	})
}

// datagram is one of UDP over IPv4 without content.
func datagram(from, to netip.AddrPort) []byte {
	udp := binary.BigEndian.AppendUint16(nil, from.Port())
	udp = append(binary.BigEndian.AppendUint16(udp, to.Port()), 0, 8, 0, 0)
	return ipv4(from.Addr(), to.Addr(), unix.IPPROTO_UDP, 0, udp)
}

// A pod that has begun 65,536 UDP connections takes none of another pod.
func TestAttackFloodOfFlows(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(3, "udp", 80)
		n.serve(1, "udp", 80)
		egress := func(iface string) Port {
			return Port{Interface: iface, Link: link, Ingress: allow(Rule{Peers: pod(4)}), Egress: allow(Rule{Peers: everyone})}
		}
		n.open(egress("p1"), egress("p2"))
		n.flood(1, netip.AddrPortFrom(v4(3), 81), 65535, func(i int) netip.AddrPort { return netip.AddrPortFrom(v4(1), uint16(i)+1) })
		n.expectFull("p1", "begun-egress4", flowSize)
		n.connects("another pod", 2, 3, "udp", 80, true)
		n.connectsTo("from outside to the pod itself", 4, v4(1), "udp", 80)
	})
}

// Packets with forged sources take the connections neither of another pod nor those that the pod begins: as long as they
// last, with their end, and with pings and fragments in both directions.
func TestAttackForgedDatagrams(t *testing.T) {
	inNetwork(t, func(n *network) {
		for _, pod := range []int{1, 2, 3} {
			n.serve(pod, "udp", 80)
		}
		isolated := func(iface string) Port {
			return Port{Interface: iface, Link: link, Ingress: allow(Rule{Peers: everyone}), Egress: allow(Rule{pod(3), udp(80)}, Rule{Peers: pod(2)})}
		}
		n.open(isolated("p1"), isolated("p2"))
		forged := func(i int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), uint16(1000+i>>16))
		}
		n.flood(4, netip.AddrPortFrom(v4(1), 80), 90000, forged)
		n.expectFull("p1", "begun-ingress4", flowSize)
		n.send(4, v4(1), 2*pairSize, func(i int) []byte {
			return ipv4(forged(i).Addr(), v4(1), unix.IPPROTO_ICMP, 0, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0})
		})
		n.expectFull("p1", "pairs-ingress4", pairSize)
		n.connectsTo("to another pod", 3, v4(2), "udp", 80)
		n.connectsTo("from another pod", 2, v4(3), "udp", 80)
		c := n.dial(1, "udp", netip.AddrPortFrom(v4(3), 80))
		if c == nil {
			t.Fatal("from the pod itself: does not connect")
		}
		defer c.Close()
		if err := exchange(c, strings.Repeat("x", 9000), patience); err != nil {
			t.Errorf("from the pod itself: datagram of several fragments: %v", err)
		}
		n.ping(1, v4(2))
	})
}

// ping checks that a pod's ping to an address is answered.
func (n *network) ping(from int, to netip.Addr) {
	n.t.Helper()
	n.in(from, func() {
		network, request, reply := "ip4:icmp", []byte{8, 0, 0xf7, 0xfe, 0, 1, 0, 0}, byte(0)
		if to.Is6() {
			network, request[0], reply = "ip6:ipv6-icmp", 128, 129 // the kernel computes the checksum
		}
		ping, err := net.Dial(network, to.String())
		n.check(err)
		defer ping.Close()
		_, err = ping.Write(request)
		n.check(err)
		n.check(ping.SetReadDeadline(time.Now().Add(patience)))
		got := slices.Concat(request, make([]byte, 1500))
		for err == nil && got[0] != reply { // messages of neighbour discovery come, too
			_, _, err = ping.(*net.IPConn).ReadFrom(got) // which leaves out the header of IPv4
		}
		if err != nil {
			n.t.Errorf("ping from %d to %s: %v", from, to, err)
		}
	})
}

// Pods that are isolated ping what their rules allow, by each family.
func TestPing(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.open(Port{Interface: "p1", Link: link, Egress: allow(Rule{Peers: everyone}), Ingress: none},
			Port{Interface: "p2", Link: link, Egress: none, Ingress: allow(Rule{Peers: everyone})})
		for _, to := range []netip.Addr{v4(2), v6(2)} {
			n.ping(1, to)
		}
	})
}

// Nor do forged connections that end keep those that the pod has begun from ending: else they would soon be too many.
func TestAttackForgedEnds(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(3, "tcp", 80)
		n.open(Port{Interface: "p1", Link: link, Ingress: allow(Rule{Peers: everyone}), Egress: allow(Rule{Peers: pod(3)})})
		forged := func(i int) []byte {
			segment := []byte{4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0}
			if i%2 == 1 {
				segment[13] = 0x04 // RST after SYN
			}
			return ipv4(netip.AddrFrom4([4]byte{198, byte(18 + i>>17), byte(i >> 9), byte(i >> 1)}), v4(1), unix.IPPROTO_TCP, 0, segment)
		}
		for round := 0; round < 8 && len(n.known("p1", "closing-ingress4")) < closingSize; round++ { // a busy link loses some
			n.send(4, v4(1), 3*closingSize, func(i int) []byte { return forged(i + 3*closingSize*round) })
		}
		n.expectFull("p1", "closing-ingress4", closingSize)
		n.connectsTo("from the pod itself", 1, v4(3), "tcp", 80)
		for end := time.Now().Add(patience); len(n.known("p1", "begun-egress4")) > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the pod's connection does not end")
			}
		}
	})
}

// While a port's sets are full, its removal, a change of another port and a restart read no connections. A list of them
// would show in allocations, however fast the machine is.
func TestAttackFullSetsAtRemoval(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(3, "udp", 80)
		full := Port{Interface: "p1", Link: link, Ingress: none, Egress: allow(Rule{Peers: everyone})}
		other := Port{Interface: "p2", Link: link, Ingress: none, Egress: allow(Rule{Peers: everyone})}
		n.open(full, other)
		costs := func() map[string]uint64 {
			return map[string]uint64{
				"removal of another port": allocations(func() { n.check(n.table.Remove(other)) }),
				"another port":            allocations(func() { n.check(n.table.Set(other)) }),
				"restart":                 allocations(func() { n.open(full, other) }),
			}
		}
		costs() // the first time allocates buffers
		empty := costs()
		n.flood(1, netip.AddrPortFrom(v4(3), 81), 65535, func(i int) netip.AddrPort { return netip.AddrPortFrom(v4(1), uint16(i)+1) })
		known := n.expectFull("p1", "begun-egress4", flowSize)
		for what, cost := range costs() {
			if cost > empty[what]+known/2 {
				t.Errorf("%s: %d allocations while %d connections are known, %d before", what, cost, known, empty[what])
			}
		}
		n.expectFull("p1", "begun-egress4", flowSize) // the restart has kept them
		cost := allocations(func() { n.check(n.table.Remove(full)) })
		if cost > known/2 {
			t.Errorf("removal of the port: %d allocations while %d connections are known", cost, known)
		}
		n.check(n.table.Set(full))
		n.connectsTo("the next port of the name", 1, v4(3), "udp", 80)
	})
}

// allocations counts those of f.
func allocations(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// expectFull returns how many connections are in a set, which has to be full.
func (n *network) expectFull(iface, kind string, size int) uint64 {
	n.t.Helper()
	known := len(n.known(iface, kind))
	if known < size {
		n.t.Fatalf("%d connections of %s are in %s, want at least %d: the test shows nothing", known, iface, kind, size)
	}
	return uint64(known)
}

// connectsTo checks that a pod can connect to an address.
func (n *network) connectsTo(what string, from int, to netip.Addr, protocol string, port uint16) {
	n.t.Helper()
	c := n.dial(from, protocol, netip.AddrPortFrom(to, port))
	if c == nil {
		n.t.Errorf("%s: %d to %s, %s %d: does not connect", what, from, to, protocol, port)
		return
	}
	c.Close()
}

// mac returns the MAC of the pod that has an address.
func (n *network) mac(a netip.Addr) (mac net.HardwareAddr) {
	n.t.Helper()
	b := a.AsSlice()
	ns := n.pods[int(b[len(b)-1])]
	here, err := netns.Get()
	n.check(err)
	defer here.Close()
	n.check(netns.Set(ns))
	link, err := netlink.LinkByName("eth0")
	n.check(err)
	n.check(netns.Set(here))
	return link.Attrs().HardwareAddr
}
