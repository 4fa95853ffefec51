package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/lab"
)

// ownNICAttack is what root of a guest sends from the guest's own NIC, on a bridge of the
// tenant.
type ownNICAttack struct {
	t         *testing.T
	netns     string // path of the host's network namespace
	bridge    string
	nic       string                                     // in the guest
	guest     func(script, stdin string) (string, error) // runs a script in the guest
	own, pods netip.Addr                                 // addresses of the guest and of a pod
}

// bridgePort receives every frame that reaches the host on the tenant's bridge.
type bridgePort struct{ fd int }

func (a ownNICAttack) listen() bridgePort {
	a.t.Helper()
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
	var fd int
	a.check(lab.Do(a.netns, func() (err error) {
		link, err := netlink.LinkByName(a.bridge)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index})
	}))
	a.t.Cleanup(func() { unix.Close(fd) })
	a.check(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	return bridgePort{fd}
}

// arrivesBefore reports whether a frame with the mark arrives before one with the mark end.
func (b bridgePort) arrivesBefore(mark, end string) (arrives, ended bool) {
	frame := make([]byte, 2048)
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
		size, err := unix.Read(b.fd, frame)
		switch {
		case err != nil: // none for a while
		case bytes.Contains(frame[:size], []byte(end)):
			return arrives, true
		case bytes.Contains(frame[:size], []byte(mark)):
			arrives = true
		}
	}
	return arrives, false
}

func (a ownNICAttack) check(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// send sends a frame from the guest's own NIC, with a virtio_net_hdr if it is not nil.
func (a ownNICAttack) send(frame, header []byte) {
	a.t.Helper()
	script := fmt.Sprintf("perl - $(cat /sys/class/net/%s/ifindex) %x 1 60 %x", a.nic, frame, header)
	if out, err := a.guest(script, sendFrames); err != nil || out != "1" {
		a.t.Fatalf("send from %s: %v: %s", a.nic, err, out)
	}
}

func hostileFrame(from net.HardwareAddr, etherType uint16, payload []byte, mark string) []byte {
	head := binary.BigEndian.AppendUint16(slices.Concat([]byte{255, 255, 255, 255, 255, 255}, from), etherType)
	return slices.Concat(head, payload, []byte(mark), make([]byte, 64))
}

// openChecksum is a virtio_net_hdr: the host is to write a checksum at an offset of the frame.
func openChecksum(at byte) []byte {
	return []byte{unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, 0, 0, 0, 0, 0, at, 0, 0, 0}
}

func arpReply(mac net.HardwareAddr, claimed netip.Addr) []byte {
	return slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 2}, mac, claimed.AsSlice(), mac, claimed.AsSlice())
}

// udp4 is a datagram to everybody, whose payload is filled up by the rest of the frame.
func udp4(from netip.Addr, source, destination uint16) []byte {
	head := slices.Concat([]byte{0x45, 0, 0, 60, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, from.AsSlice(), []byte{255, 255, 255, 255})
	sum := uint32(0)
	for i := 0; i < len(head); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(head[i:]))
	}
	binary.BigEndian.PutUint16(head[10:], ^uint16(sum+sum>>16))
	for _, v := range []uint16{source, destination, 40, 0} {
		head = binary.BigEndian.AppendUint16(head, v)
	}
	return head
}

func routerAdvertisement(mac net.HardwareAddr) []byte {
	linkLocal := [16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
	toAll := [16]byte{0xff, 2, 15: 1}
	return slices.Concat([]byte{0x60, 0, 0, 0, 0, 32, unix.IPPROTO_ICMPV6, 255}, linkLocal[:], toAll[:], []byte{134, 0, 0, 0, 64, 0, 7, 8})
}

// run wants that nobody receives what is not the guest's.
func (a ownNICAttack) run() {
	a.t.Helper()
	address, err := a.guest("cat /sys/class/net/"+a.nic+"/address", "")
	a.check(err)
	mac, err := net.ParseMAC(strings.TrimSpace(address))
	a.check(err)
	port := a.listen()
	other := net.HardwareAddr{2, 0x66, 0, 0, 0, 1}
	for i, c := range []struct {
		name    string
		from    net.HardwareAddr
		kind    uint16
		payload []byte
		header  []byte
		passes  bool
	}{
		{"ARP for its own address", mac, unix.ETH_P_ARP, arpReply(mac, a.own), nil, true},
		{"ARP for a pod's address", mac, unix.ETH_P_ARP, arpReply(mac, a.pods), nil, false},
		{"a pod's IPv4 address", mac, unix.ETH_P_IP, udp4(a.pods, 1000, 2000), nil, false},
		{"an answer of a DHCP server", mac, unix.ETH_P_IP, udp4(a.own, 67, 68), nil, false},
		{"a router advertisement", mac, unix.ETH_P_IPV6, routerAdvertisement(mac), nil, false},
		{"another MAC", other, unix.ETH_P_IP, udp4(a.own, 1000, 2000), nil, false},
		{"its own checksum, which is open", mac, unix.ETH_P_IP, udp4(a.own, 1000, 2000), openChecksum(14 + 20 + 6), true},
		{"a checksum in place of its IPv4 address", mac, unix.ETH_P_IP, udp4(a.own, 1000, 2000), openChecksum(14 + 14), false},
		{"a checksum in place of its port", mac, unix.ETH_P_IP, udp4(a.own, 1000, 2000), openChecksum(14 + 20), false},
	} {
		mark, end := fmt.Sprintf("frame%03d", i), fmt.Sprintf("ended%03d", i)
		a.send(hostileFrame(c.from, c.kind, c.payload, mark), c.header)
		a.send(hostileFrame(mac, unix.ETH_P_IP, udp4(a.own, 1000, 2000), end), nil)
		if passes, ended := port.arrivesBefore(mark, end); passes != c.passes || !ended {
			a.t.Errorf("%s from the guest's own NIC: arrives %v, want %v; the guest's own packet arrives %v", c.name, passes, c.passes, ended)
		}
	}
}
