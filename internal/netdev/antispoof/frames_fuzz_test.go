package antispoof

import (
	"bytes"
	"encoding/binary"
	"flag"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/checksum"
	"unnest.io/unnest/internal/netdev/tap"
)

// vnetHeader is the size of the header before each frame of a TAP (struct virtio_net_hdr).
const vnetHeader = 10

// fuzzedBridge is a bridge with two TAPs. A guest that has 10.0.0.1 and fd00::1 is behind p1,
// which is guarded; p2 receives what passes.
type fuzzedBridge struct{ from, to int }

func newFuzzedBridge(f *testing.F) *fuzzedBridge {
	f.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		f.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	host, err := ns.TempNetNS()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { host.Close() })
	z := &fuzzedBridge{}
	err = host.Do(func(ns.NetNS) error {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
		a := netlink.NewLinkAttrs()
		a.Name = "br0"
		bridge := &netlink.Bridge{LinkAttrs: a, MulticastSnooping: new(bool)} // else the bridge itself sends
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		table, err := Open()
		if err != nil {
			return err
		}
		f.Cleanup(func() { table.Close() })
		if err := table.Set(Port{"p1", mac1, addrs("10.0.0.1", "fd00::1"), false, -1}); err != nil {
			return err
		}
		checksums, err := checksum.Load()
		if err != nil {
			return err
		}
		f.Cleanup(func() { checksums.Close() })
		for name, fd := range map[string]*int{"p1": &z.from, "p2": &z.to} {
			file, err := tap.Open(tap.Device{Name: name, Bridge: "br0", MTU: 1500})
			if err != nil {
				return err
			}
			f.Cleanup(func() { file.Close() })
			*fd = int(file.Fd())
		}
		if err := checksums.Attach("p1"); err != nil {
			return err
		}
		return netlink.LinkSetUp(bridge)
	})
	if err != nil {
		f.Fatal(err)
	}
	return z
}

// received returns the frames that have passed.
func (z *fuzzedBridge) received(t *testing.T) (frames [][]byte) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(z.to), Events: unix.POLLIN}}, 0)
		if err == unix.EINTR { //nolint:errorlint // a system call's own
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return frames
		}
		frame := make([]byte, 1<<17)
		size, err := unix.Read(z.to, frame)
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame[vnetHeader:size])
	}
}

// spoofs says what is wrong with a frame of the guest, "" when it may pass. It does not
// share code with the rules.
func spoofs(frame []byte) string {
	address := func(from, size int) netip.Addr {
		if len(frame) < from+size {
			return netip.Addr{}
		}
		a, _ := netip.AddrFromSlice(frame[from : from+size])
		return a
	}
	own := addrs("10.0.0.1", "fd00::1", linkLocal1)
	if !bytes.Equal(frame[6:12], mac1) {
		return "MAC"
	}
	switch kind := binary.BigEndian.Uint16(frame[12:]); kind {
	case unix.ETH_P_IP:
		if !slices.Contains(own, address(26, 4)) {
			return "source of IPv4"
		}
		if at := 14 + 4*int(frame[14]&15); frame[23] == unix.IPPROTO_IGMP && binary.BigEndian.Uint16(frame[20:])&0x1fff == 0 && len(frame) > at && frame[at] == groupQuery {
			return "router"
		}
	case unix.ETH_P_ARP:
		probe := address(28, 4) == netip.IPv4Unspecified() && address(38, 4) == own[0]
		if len(frame) < 32 || !bytes.Equal(frame[22:28], mac1) || address(28, 4) != own[0] && !probe {
			return "sender of ARP"
		}
	case unix.ETH_P_IPV6:
		source := address(22, 16)
		if !slices.Contains(own, source) && source != netip.IPv6Unspecified() {
			return "source of IPv6"
		}
		if len(frame) > 54 && frame[20] == unix.IPPROTO_ICMPV6 && slices.Contains([]byte{listenerQuery, routerAdvertisement, redirect}, frame[54]) {
			return "router"
		}
	default:
		return "type of frame"
	}
	return ""
}

// No frame with another's source passes, whatever the guest writes, also with headers that
// ask the kernel to segment it.
func FuzzFrames(f *testing.F) {
	z := newFuzzedBridge(f)
	seed := func(frame []byte) { f.Add(append(make([]byte, vnetHeader), frame...)) }
	for _, from := range []string{"10.0.0.1", "10.0.0.9"} {
		udp := ether(broadcast, mac1, unix.ETH_P_IP, ipv4(unix.IPPROTO_UDP, from, "10.0.0.2", datagram(1000, 2000)))
		seed(udp)
		for _, kind := range []byte{groupQuery, 0x22} {
			seed(ether(broadcast, mac1, unix.ETH_P_IP, ipv4(unix.IPPROTO_IGMP, from, "224.0.0.1", []byte{kind, 1, 0, 0, 0, 0, 0, 0})))
		}
		seed(tagged(unix.ETH_P_8021Q, udp))
		seed(ether(broadcast, mac1, unix.ETH_P_ARP, arp(1, mac1, from, "10.0.0.2")))
		tcp := ether(mac2, mac1, unix.ETH_P_IP, ipv4(unix.IPPROTO_TCP, from, "10.0.0.2", make([]byte, 3000)))
		f.Add(append([]byte{1, 1, 54, 0, 0, 4, 34, 0, 16, 0}, tcp...)) // to be segmented
	}
	for _, from := range []string{"fd00::1", linkLocal1, "::", "fd00::9"} {
		for _, kind := range []byte{128, 134, 135, 136} {
			seed(ether(broadcast, mac1, unix.ETH_P_IPV6, ipv6(unix.IPPROTO_ICMPV6, from, all6, icmp6(kind, "fd00::1"))))
		}
	}
	seed(ether(broadcast, forged, unix.ETH_P_IP, ipv4(unix.IPPROTO_UDP, "10.0.0.1", "10.0.0.2", datagram(1, 2))))
	passed := 0
	f.Cleanup(func() {
		if passed == 0 && flag.Lookup("test.fuzz").Value.String() == "" { // else in other processes
			f.Error("no frame has passed")
		}
	})
	f.Fuzz(func(t *testing.T, frame []byte) {
		z.received(t)
		if _, err := unix.Write(z.from, frame); err != nil {
			return // the kernel refuses a header that makes no sense
		}
		for _, got := range z.received(t) {
			passed++
			if what := spoofs(got); what != "" {
				t.Errorf("a frame with another's %s passes: % x", what, got[:min(len(got), 80)])
			}
		}
	})
}
