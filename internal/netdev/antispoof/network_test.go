package antispoof

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/thread"
)

var (
	mac1      = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	mac2      = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	forged    = net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
	broadcast = net.HardwareAddr{255, 255, 255, 255, 255, 255}
)

// network is a bridge with ports p1, p2 and p3 in the namespace host; p4 is on
// no bridge. The guests' ends of the ports, g1 to g4, are in another namespace, and
// send only what a test sends.
type network struct {
	t            *testing.T
	host, guests netns.NsHandle
	guest        map[string]int // packet socket of each guest's end
	serial       uint32
}

// inNetwork runs f in the host's namespace of a fresh network, which ends with
// the test.
func inNetwork(t *testing.T, f func(*network)) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	_ = thread.Do(func() error { // t.Fatal ends its goroutine, and the thread with it
		n := &network{t: t, guest: map[string]int{}}
		n.guests = n.newNS()
		defer n.guests.Close()
		n.host = n.newNS()
		defer n.host.Close()
		n.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0xff}}}))
		n.up("br0")
		// It would trim packets.
		n.check(os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0))
		n.check(os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-ip6tables", []byte("0"), 0))
		for _, number := range []string{"1", "2", "3", "4"} {
			n.plug("p"+number, "g"+number)
		}
		defer func() {
			for _, fd := range n.guest {
				unix.Close(fd)
			}
		}()
		p4, err := netlink.LinkByName("p4")
		n.check(err)
		n.check(netlink.LinkSetNoMaster(p4))
		f(n)
		return nil
	})
}

func (n *network) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *network) newNS() netns.NsHandle {
	n.t.Helper()
	ns, err := netns.New()
	n.check(err)
	err = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if !errors.Is(err, os.ErrNotExist) {
		n.check(err)
	}
	return ns
}

func (n *network) up(name string) {
	n.t.Helper()
	link, err := netlink.LinkByName(name)
	n.check(err)
	n.check(netlink.LinkSetUp(link))
}

func (n *network) plug(port, guest string) {
	n.t.Helper()
	bridge, err := netlink.LinkByName("br0")
	n.check(err)
	attrs := netlink.LinkAttrs{Name: port, MasterIndex: bridge.Attrs().Index, MTU: 16384}
	n.check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: guest, PeerNamespace: netlink.NsFd(n.guests)}))
	n.up(port)
	n.check(netns.Set(n.guests))
	n.up(guest)
	n.guest[guest] = n.packetSocket(guest)
	n.check(netns.Set(n.host))
}

func (n *network) packetSocket(name string) int {
	n.t.Helper()
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	n.check(err)
	link, err := netlink.LinkByName(name)
	n.check(err)
	n.check(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index}))
	n.check(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
	n.check(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20))
	n.check(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	return fd
}

// send sends a frame from a guest's end, with a unique number behind it, and returns
// the bytes to look for at the receiver.
func (n *network) send(guest string, frame []byte) []byte {
	n.t.Helper()
	n.serial++
	frame = binary.BigEndian.AppendUint32(bytes.Clone(frame), n.serial)
	if _, err := unix.Write(n.guest[guest], frame); err != nil {
		n.t.Fatalf("send from %s: %v", guest, err)
	}
	return frame
}

// patience is for what must happen, on any machine.
const patience = time.Minute

// arrives reports whether the guest receives the frame in time. The kernel removes the
// VLAN tag of a frame for a packet socket.
func (n *network) arrives(guest string, frame []byte, limit time.Duration) bool {
	n.t.Helper()
	if kind := frame[12]; (kind == 0x81 || kind == 0x88) && len(frame) > 18 && frame[13]&0x57 == 0 {
		frame = append(bytes.Clone(frame[:12]), frame[16:]...)
	}
	got := make([]byte, 1<<15)
	for end := time.Now().Add(limit); time.Now().Before(end); {
		size, err := unix.Read(n.guest[guest], got)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		n.check(err)
		if bytes.Equal(got[:size], frame) {
			return true
		}
	}
	return false
}

func (n *network) drops(t *Table) map[string]uint64 {
	n.t.Helper()
	drops, err := t.Drops()
	n.check(err)
	return drops
}

// dropsFor waits until another frame is dropped, and returns the reasons.
func (n *network) dropsFor(t *Table, before map[string]uint64) string {
	n.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var reasons string
		for reason, count := range n.drops(t) {
			for range count - before[reason] {
				reasons += reason
			}
		}
		if reasons != "" || time.Now().After(end) {
			return reasons
		}
	}
}

// ether returns an Ethernet frame.
func ether(to, from net.HardwareAddr, kind uint16, payload []byte) []byte {
	frame := append(bytes.Clone(to), from...)
	return append(binary.BigEndian.AppendUint16(frame, kind), payload...)
}

func tagged(kind uint16, frame []byte) []byte {
	tag := binary.BigEndian.AppendUint16(nil, kind)
	return append(append(bytes.Clone(frame[:12]), append(tag, 0, 5)...), frame[12:]...)
}

func arp(op byte, senderMAC net.HardwareAddr, sender, target string) []byte {
	p := append([]byte{0, 1, 8, 0, 6, 4, 0, op}, senderMAC...)
	p = append(p, netip.MustParseAddr(sender).AsSlice()...)
	p = append(p, make([]byte, 6)...)
	return append(p, netip.MustParseAddr(target).AsSlice()...)
}

// ipv4 returns a packet with a valid header checksum.
func ipv4(protocol byte, from, to string, payload []byte) []byte {
	p := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0}
	binary.BigEndian.PutUint16(p[2:], uint16(20+len(payload)))
	p = append(p, netip.MustParseAddr(from).AsSlice()...)
	p = append(p, netip.MustParseAddr(to).AsSlice()...)
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum>>16+sum))
	return append(p, payload...)
}

// fragment4 makes a packet the first fragment of a larger one.
func fragment4(p []byte) []byte {
	p[6] |= 0x20
	sum := uint32(^binary.BigEndian.Uint16(p[10:])) + 0x2000
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum>>16+sum))
	return p
}

func ipv6(next byte, from, to string, payload []byte) []byte {
	p := []byte{0x60, 0, 0, 0, 0, 0, next, 255}
	binary.BigEndian.PutUint16(p[4:], uint16(len(payload)))
	p = append(p, netip.MustParseAddr(from).AsSlice()...)
	p = append(p, netip.MustParseAddr(to).AsSlice()...)
	return append(p, payload...)
}

func datagram(from, to uint16) []byte {
	p := binary.BigEndian.AppendUint16(nil, from)
	return append(binary.BigEndian.AppendUint16(p, to), 0, 12, 0, 0, 'd', 'a', 't', 'a')
}

// icmp6 returns an ICMPv6 message with an address in it, as in neighbour discovery.
func icmp6(kind byte, target string) []byte {
	return append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, netip.MustParseAddr(target).AsSlice()...)
}
