package podnic

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// setAddress gives a link an address without duplicate detection, and brings it up.
func setAddress(link, address string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	a.Flags = unix.IFA_F_NODAD
	return errors.Join(netlink.AddrAdd(l, a), netlink.LinkSetUp(l))
}

// neighbour is the MAC in the link's neighbour entry for an address.
func neighbour(link string, a netip.Addr) (net.HardwareAddr, error) {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return nil, err
	}
	all, err := netlink.NeighList(l.Attrs().Index, netlink.FAMILY_ALL)
	for _, n := range all {
		if n.IP.Equal(net.IP(a.AsSlice())) {
			return n.HardwareAddr, err
		}
	}
	return nil, err
}

// A neighbour with an entry of a former NIC learns the new NIC's MAC.
func TestAnnounce(t *testing.T) {
	pod, host := newNS(t), newNS(t)
	addrs := []netip.Addr{
		netip.MustParseAddr("10.9.9.7"), netip.MustParseAddr("10.9.9.8"),
		netip.MustParseAddr("fd09::7"), netip.MustParseAddr("fe80::7"),
	}
	in(t, pod, func() error {
		a := netlink.NewLinkAttrs()
		a.Name, a.HardwareAddr = "eth0", mac
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "br0", PeerNamespace: netlink.NsFd(host.Fd())})
	})
	in(t, host, func() error {
		if err := errors.Join(setAddress("br0", "10.9.9.1/24"), setAddress("br0", "fd09::1/64")); err != nil {
			return err
		}
		l, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		for _, a := range addrs {
			err = errors.Join(err, netlink.NeighSet(&netlink.Neigh{
				LinkIndex: l.Attrs().Index, State: netlink.NUD_REACHABLE,
				IP: a.AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9},
			}))
		}
		// The kernel ignores gratuitous ARP for an entry that is younger than a second.
		return errors.Join(err, unlockNeighbours("br0"))
	})
	in(t, pod, func() error {
		return errors.Join(setAddress("eth0", "10.9.9.7/24"), setAddress("eth0", "10.9.9.8/24"),
			setAddress("eth0", "fd09::7/64"), setAddress("eth0", "fe80::7/64"))
	})
	if err := Announce(t.Context(), pod, "eth0", addrs); err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		wantNeighbour(t, host, a, mac)
	}
}

func wantNeighbour(t *testing.T, host ns.NetNS, a netip.Addr, want net.HardwareAddr) {
	t.Helper()
	var got net.HardwareAddr
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		in(t, host, func() (err error) {
			got, err = neighbour("br0", a)
			return err
		})
		if bytes.Equal(got, want) {
			return
		}
	}
	t.Errorf("the neighbour has %s for %s, want %s", got, a, want)
}

func TestUnsolicitedAdvertisement(t *testing.T) {
	want := []byte{
		0x60, 0, 0, 0, 0, 32, 58, 255,
		0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7,
		0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
		136, 0, 0, 0, 0x20, 0, 0, 0,
		0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7,
		2, 1, 2, 0, 0, 0, 0, 1,
	}
	got, err := unsolicitedAdvertisement(mac, netip.MustParseAddr("fd09::7"))
	if err != nil {
		t.Fatal(err)
	}
	// RFC 4443, §2.3: over the pseudo-header and the message, with its own field,
	// the sum is all ones.
	if sum := sum16(got[8:40], []byte{0, 0, 0, 32, 0, 0, 0, 58}, got[40:]); sum != 0xffff {
		t.Errorf("checksum: the sum is %04x", sum)
	}
	got[42], got[43] = 0, 0
	if !bytes.Equal(got, want) {
		t.Errorf("got % x, want % x", got, want)
	}
}

func sum16(parts ...[]byte) uint16 {
	b := bytes.Join(parts, nil)
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	sum = sum&0xffff + sum>>16
	return uint16(sum + sum>>16)
}

// The announcement reaches the host also when the carrier appears just before: the
// kernel sets up the link's queue after the carrier.
func TestAnnounceWithNewCarrier(t *testing.T) {
	for i := range 100 {
		pod, host := newNS(t), newNS(t)
		in(t, pod, func() error {
			a := netlink.NewLinkAttrs()
			a.Name, a.HardwareAddr = "eth0", mac
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "br0", PeerNamespace: netlink.NsFd(host.Fd())}); err != nil {
				return err
			}
			return setUp("eth0")
		})
		var received int
		in(t, host, func() (err error) {
			received, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0x0608) // ETH_P_ARP in network order
			return errors.Join(err, unix.SetsockoptTimeval(received, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 300_000}))
		})
		up := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(i%20) * 200 * time.Microsecond)
			up <- host.Do(func(ns.NetNS) error { return setUp("br0") })
		}()
		if err := errors.Join(Announce(t.Context(), pod, "eth0", []netip.Addr{netip.MustParseAddr("10.9.9.7")}), <-up); err != nil {
			t.Error(err)
		}
		if _, _, err := unix.Recvfrom(received, make([]byte, 128), 0); err != nil {
			t.Errorf("link %d: no announcement: %v", i, err)
		}
		_, _, _ = unix.Close(received), pod.Close(), host.Close()
	}
}

func setUp(link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// unlockNeighbours allows the link's neighbour entries to change at any time.
func unlockNeighbours(link string) error {
	return os.WriteFile("/proc/sys/net/ipv4/neigh/"+link+"/locktime", []byte("0"), 0)
}
