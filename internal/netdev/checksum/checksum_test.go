package checksum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/netdev/thread"
)

// Headers of a frame, in bytes, and where parts of them begin.
const (
	vnetHeader = 10 // struct virtio_net_hdr
	ip4Source  = 14 + 12
	ip6Source  = 14 + 8
	ip6Target  = 14 + 24
)

// host is a bridge with the TAPs of two guests. The first is checked if filter is not nil.
type host struct {
	from, to *os.File
	filter   *Filter
}

// inHost runs f in a host in a network namespace of its own.
func inHost(t *testing.T, checked bool, f func(*host)) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, network namespaces and eBPF: set UNNEST_PRIVILEGED=1")
	}
	_ = thread.Do(func() error { // t.Fatal ends its goroutine, and the thread with it
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		ns, err := netns.New()
		check(err)
		defer ns.Close()
		check(os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
		for _, name := range []string{"iptables", "ip6tables"} { // it would drop packets without IPv4's checksum
			if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+name, []byte("0"), 0); !errors.Is(err, fs.ErrNotExist) {
				check(err)
			}
		}
		a := netlink.NewLinkAttrs()
		a.Name = "br0"
		bridge := &netlink.Bridge{LinkAttrs: a, MulticastSnooping: new(bool)}
		check(netlink.LinkAdd(bridge))
		check(netlink.LinkSetUp(bridge))
		h := &host{}
		for name, file := range map[string]**os.File{"p1": &h.from, "p2": &h.to} {
			*file, err = tap.Open(tap.Device{Name: name, Bridge: "br0", MTU: 1500})
			check(err)
			defer (*file).Close()
		}
		if checked {
			h.filter, err = Load()
			check(err)
			defer h.filter.Close()
			check(h.filter.Attach("p1"))
			check(h.filter.Attach("p1")) // in place of the first
		}
		f(h)
		return nil
	})
}

// send sends a frame with a header before it, and returns the frames that arrive.
func (h *host) send(t *testing.T, header, frame []byte) (arrived [][]byte) {
	t.Helper()
	if _, err := unix.Write(int(h.from.Fd()), append(slices.Clone(header), frame...)); err != nil {
		t.Fatalf("the kernel takes no frame with the header % x: %v", header, err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.to.Fd()), Events: unix.POLLIN}}, 0)
		if err == unix.EINTR { //nolint:errorlint // a system call's own
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return arrived
		}
		got := make([]byte, 1<<16)
		size, err := unix.Read(int(h.to.Fd()), got)
		if err != nil {
			t.Fatal(err)
		}
		arrived = append(arrived, got[vnetHeader:size])
	}
}

// open is a header that leaves the checksum open which belongs at from + offset, and is over all from
// there on.
func open(from, offset uint16) []byte {
	h := append(make([]byte, 6), 0, 0, 0, 0)
	h[0] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
	binary.NativeEndian.PutUint16(h[6:], from)
	binary.NativeEndian.PutUint16(h[8:], offset)
	return h
}

// segmented is a header that also asks for TCP segments of IPv4 with so many bytes.
func segmented(size, from uint16) []byte {
	h := open(from, 16)
	h[1] = unix.VIRTIO_NET_HDR_GSO_TCPV4
	binary.NativeEndian.PutUint16(h[2:], from+20)
	binary.NativeEndian.PutUint16(h[4:], size)
	return h
}

func ether(kind uint16, payload []byte) []byte {
	frame := []byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1}
	return append(binary.BigEndian.AppendUint16(frame, kind), payload...)
}

func ipv4(protocol byte, fragment uint16, payload []byte) []byte {
	p := []byte{0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)+len(payload)))
	binary.BigEndian.PutUint16(p[6:], fragment)
	return ether(unix.ETH_P_IP, append(p, payload...))
}

func ipv6(next byte, payload []byte) []byte {
	p := make([]byte, 40)
	p[0], p[6], p[7], p[8], p[23], p[24], p[39] = 0x60, next, 64, 0xfd, 1, 0xfd, 2
	binary.BigEndian.PutUint16(p[4:], uint16(len(payload)))
	return ether(unix.ETH_P_IPV6, append(p, payload...))
}

// hopByHop returns an extension header of 8 bytes before the payload.
func hopByHop(next byte, payload []byte) []byte {
	return append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, payload...)
}

func tcp(payload int) []byte {
	return append([]byte{0x80, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0}, make([]byte, payload)...)
}

func udp(payload []byte) []byte {
	return append(append([]byte{0x80, 0, 0, 53}, byte(0), byte(8+len(payload)), 0, 0), payload...)
}

// vxlan is a frame of TCP in a datagram, 8 + 8 + 14 + 20 bytes before the TCP header.
func vxlan() []byte {
	return udp(append([]byte{8, 0, 0, 0, 0, 0, 1, 0}, ipv4(unix.IPPROTO_TCP, 0, tcp(8))...))
}

var echo = append([]byte{128, 0, 0, 0, 0, 1, 0, 1}, make([]byte, 24)...)

// Guests leave the checksums of their own transport open, also in tunnels and of frames that the host
// segments. All of these pass.
func TestOrdinaryFrames(t *testing.T) {
	inHost(t, true, func(h *host) {
		for _, c := range []struct {
			name          string
			header, frame []byte
			frames        int
		}{
			{"no open checksum", make([]byte, vnetHeader), ipv4(unix.IPPROTO_TCP, 0, tcp(0)), 1},
			{"ARP", make([]byte, vnetHeader), ether(unix.ETH_P_ARP, make([]byte, 28)), 1},
			{"a checked one", []byte{unix.VIRTIO_NET_HDR_F_DATA_VALID, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ipv4(unix.IPPROTO_TCP, 0, tcp(0)), 1},
			{"TCP", open(34, 16), ipv4(unix.IPPROTO_TCP, 0, tcp(100)), 1},
			{"UDP", open(34, 6), ipv4(unix.IPPROTO_UDP, 0, udp([]byte("hello"))), 1},
			{"TCP of IPv6", open(54, 16), ipv6(unix.IPPROTO_TCP, tcp(100)), 1},
			{"UDP of IPv6", open(54, 6), ipv6(unix.IPPROTO_UDP, udp([]byte("hello"))), 1},
			{"ICMPv6", open(54, 2), ipv6(unix.IPPROTO_ICMPV6, echo), 1},
			{"an extension header", open(62, 16), ipv6(unix.IPPROTO_HOPOPTS, hopByHop(unix.IPPROTO_TCP, tcp(0))), 1},
			{"two extension headers", open(70, 16), ipv6(unix.IPPROTO_HOPOPTS, hopByHop(unix.IPPROTO_DSTOPTS, hopByHop(unix.IPPROTO_TCP, tcp(0)))), 1},
			{"VXLAN", open(34+50, 16), ipv4(unix.IPPROTO_UDP, 0, vxlan()), 1},
			{"IP in IP", open(54, 16), ipv4(unix.IPPROTO_IPIP, 0, ipv4(unix.IPPROTO_TCP, 0, tcp(0))[14:]), 1},
			{"segments", segmented(1000, 34), ipv4(unix.IPPROTO_TCP, 0, tcp(2500)), 3},
		} {
			if got := h.send(t, c.header, c.frame); len(got) != c.frames {
				t.Errorf("%s: %d frames arrive, want %d", c.name, len(got), c.frames)
			}
		}
		if n, err := h.filter.Drops(); n != 0 || err != nil {
			t.Errorf("%d drops, %v, want none", n, err)
		}
	})
}

// forgeries have the kernel write two bytes that no guest may choose. changed is where.
var forgeries = []struct {
	name          string
	header, frame []byte
	changed       int
}{
	{"source of IPv4", open(ip4Source, 0), ipv4(unix.IPPROTO_UDP, 0, udp([]byte("hello"))), ip4Source},
	{"its end", open(20, ip4Source+2-20), ipv4(unix.IPPROTO_UDP, 0, udp([]byte("hello"))), ip4Source + 2},
	{"source of IPv4 from the transport's checksum on", open(34, 0), ipv4(unix.IPPROTO_UDP, 0, udp([]byte("hello"))), 34},
	{"target of IPv4", open(30, 0), ipv4(unix.IPPROTO_TCP, 0, tcp(0)), 30},
	{"protocol of IPv4", open(22, 0), ipv4(unix.IPPROTO_TCP, 0, tcp(0)), 22},
	{"port of UDP", open(34, 2), ipv4(unix.IPPROTO_UDP, 0, udp([]byte("hello"))), 36},
	{"port of TCP", open(34, 2), ipv4(unix.IPPROTO_TCP, 0, tcp(8)), 36},
	{"flags of TCP", open(34, 12), ipv4(unix.IPPROTO_TCP, 0, tcp(8)), 46},
	{"fragment", open(34, 6), ipv4(unix.IPPROTO_UDP, 0x2000, udp([]byte("hello"))), 40},
	{"source of IPv6", open(ip6Source+10, 0), ipv6(unix.IPPROTO_UDP, udp([]byte("hello"))), ip6Source + 10},
	{"target of IPv6", open(ip6Target, 0), ipv6(unix.IPPROTO_UDP, udp([]byte("hello"))), ip6Target},
	{"next header of IPv6", open(20, 0), ipv6(unix.IPPROTO_UDP, udp([]byte("hello"))), 20},
	{"type of ICMPv6", open(54, 0), ipv6(unix.IPPROTO_ICMPV6, echo), 54},
	{"target of a neighbour advertisement", open(54, 8), ipv6(unix.IPPROTO_ICMPV6, echo), 62},
	{"type of ICMPv6 behind an extension header", open(46, 16), ipv6(unix.IPPROTO_HOPOPTS, hopByHop(unix.IPPROTO_ICMPV6, echo)), 62},
	{"extension header", open(54, 0), ipv6(unix.IPPROTO_HOPOPTS, hopByHop(unix.IPPROTO_UDP, udp(nil))), 54},
	{"sender of ARP", open(28, 0), ether(unix.ETH_P_ARP, make([]byte, 28)), 28},
}

// Without the program the kernel writes into the headers: that is the attack. With it, no such frame
// arrives, and each is counted.
func TestForgeries(t *testing.T) {
	inHost(t, false, func(h *host) {
		for _, f := range forgeries {
			got := h.send(t, f.header, f.frame)
			if len(got) != 1 || bytes.Equal(got[0][f.changed:f.changed+2], f.frame[f.changed:f.changed+2]) {
				t.Errorf("%s, without the program: %d frames arrive, want one with other bytes at %d: this shows nothing", f.name, len(got), f.changed)
			}
		}
	})
	inHost(t, true, func(h *host) {
		for i, f := range forgeries {
			if got := h.send(t, f.header, f.frame); len(got) > 0 {
				t.Errorf("%s: a frame arrives: % x", f.name, got)
			}
			if n, err := h.filter.Drops(); n != uint64(i+1) || err != nil {
				t.Errorf("%s: %d drops, %v, want %d", f.name, n, err, i+1)
			}
		}
	})
}
