package isolation

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// frames sends frames from a pod, and returns how many of them the filter has dropped. A last one, which it drops
// in any case, says that it has seen all.
func (n *network) frames(pod int, to netip.Addr, packets ...[]byte) uint64 {
	n.t.Helper()
	before := n.dropped()
	packets = append(packets, ipv4(v4(byte(pod)), netip.MustParseAddr("198.18.0.1"), unix.IPPROTO_UDP, 0, make([]byte, 8)))
	n.in(pod, func() {
		link, err := netlink.LinkByName("eth0")
		n.check(err)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		n.check(err)
		defer unix.Close(fd)
		n.check(unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}))
		for _, p := range packets {
			kind := []byte{0x08, 0x00}
			if p[0]>>4 == 6 {
				kind = []byte{0x86, 0xdd}
			}
			n.check(unix.Send(fd, slices.Concat(n.mac(to), link.Attrs().HardwareAddr, kind, p), 0))
		}
	})
	for end := time.Now().Add(patience); n.dropped() == before && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	return n.dropped() - before - 1
}

// ipv6 is a packet of IPv6.
func ipv6(from, to netip.Addr, next, hops byte, payload []byte) []byte {
	head := []byte{0x60, 0, 0, 0, 0, 0, next, hops}
	binary.BigEndian.PutUint16(head[4:], uint16(len(payload)))
	return slices.Concat(head, from.AsSlice(), to.AsSlice(), payload)
}

// ipv4 is a packet of IPv4 with the given field of flags and offset.
func ipv4(from, to netip.Addr, protocol byte, fragment uint16, payload []byte) []byte {
	head := []byte{0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0}
	binary.BigEndian.PutUint16(head[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(head[6:], fragment)
	packet := slices.Concat(head, from.AsSlice(), to.AsSlice())
	binary.BigEndian.PutUint16(packet[10:], checksum(packet))
	return append(packet, payload...)
}

// Messages of neighbour discovery and of group membership carry nothing past an isolation to where a router may
// forward them.
func TestAttackNeighbourMessages(t *testing.T) {
	routed := netip.MustParseAddr("2001:db8::1")
	inNetwork(t, func(n *network) {
		n.open(Port{Interface: "p1", Link: link, Ingress: none, Egress: none}, Port{Interface: "p2", Link: link, Ingress: none})
		linkLocal, nodes := netip.MustParseAddr("fe80::2"), netip.MustParseAddr("ff02::1:ff00:2")
		for kind := byte(130); kind <= 143; kind++ {
			message := append([]byte{kind, 0, 0, 0}, make([]byte, 1200)...)
			listener, neighbour := kind <= 132 || kind == 143, kind >= 133 && kind <= 136
			for _, tt := range []struct {
				from int
				to   netip.Addr
				hops byte
				pass bool
			}{
				{1, routed, 255, false}, {1, routed, 64, false}, {1, routed, 1, false},
				{1, v6(2), 254, false}, {1, v6(2), 64, false}, {1, nodes, 64, false}, {1, linkLocal, 64, false},
				{1, v6(2), 255, neighbour}, {1, linkLocal, 255, neighbour}, {1, nodes, 255, neighbour}, {1, nodes, 1, listener},
				{1, netip.MustParseAddr("ff0e::7"), 1, listener}, {1, netip.MustParseAddr("ff0e::7"), 255, false},
				{2, v6(1), 254, false}, {2, v6(1), 1, false}, {2, v6(1), 255, neighbour},
			} {
				dropped := n.frames(tt.from, v4(byte(3-tt.from)), ipv6(v6(byte(tt.from)), tt.to, unix.IPPROTO_ICMPV6, tt.hops, message))
				if (dropped == 0) != tt.pass {
					t.Errorf("type %d from %d to %s with hop limit %d: dropped %d, want passed %t", kind, tt.from, tt.to, tt.hops, dropped, tt.pass)
				}
			}
		}
	})
}

// A first fragment that does not hold what rules look at does not pass, so the rest cannot follow: here the flag of a
// connection that begins, between ports that have one.
func TestAttackTinyFragments(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(2, "udp", 80)
		n.open(Port{Interface: "p1", Link: link, Ingress: none, Egress: allow(Rule{Peers: pod(2)})})
		segment := []byte{0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0}
		const more = 0x2000
		fragment6 := func(next byte, part []byte) []byte {
			return ipv6(v6(1), v6(2), 44, 64, slices.Concat([]byte{next, 0, 0, 1, 0, 0, 0, 9}, part))
		}
		n.frames(1, v4(2), ipv4(v4(1), v4(2), unix.IPPROTO_TCP, 0, segment), ipv6(v6(1), v6(2), unix.IPPROTO_TCP, 64, segment)) // known now
		n.check(n.table.Set(Port{Interface: "p1", Link: link, Ingress: none, Egress: none}))
		for what, packet := range map[string][]byte{
			"TCP in IPv4":      ipv4(v4(1), v4(2), unix.IPPROTO_TCP, more, segment[:8]),
			"TCP in IPv6":      fragment6(unix.IPPROTO_TCP, segment[:8]),
			"nothing in IPv4":  ipv4(v4(1), v4(2), unix.IPPROTO_UDP, more, nil),
			"nothing in IPv6":  fragment6(unix.IPPROTO_ICMPV6, nil),
			"padding":          append(ipv4(v4(1), v4(2), unix.IPPROTO_TCP, more, segment[:8]), segment[8:12:12]...),
			"padding in IPv6":  append(fragment6(unix.IPPROTO_TCP, segment[:8]), 0, 0, 0, 0, 0x50, 0x10, 0, 0),
			"the rest in IPv4": ipv4(v4(1), v4(2), unix.IPPROTO_TCP, 1, segment[8:]),
		} {
			if dropped := n.frames(1, v4(2), packet); dropped != 1 {
				t.Errorf("%s: dropped %d, want 1", what, dropped)
			}
		}
		if dropped := n.frames(1, v4(2), ipv4(v4(1), v4(2), unix.IPPROTO_TCP, more, append(append(segment[:13:13], 0x10), make([]byte, 50)...))); dropped != 0 {
			t.Errorf("a first fragment that is large enough: dropped %d", dropped)
		}
	})
}

func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
