package podnic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// carrierWait bounds the wait for a NIC's carrier after it came up.
const carrierWait = time.Second

// Announce tells the neighbours of the pod's link the MAC of its addresses: by a
// gratuitous ARP request for IPv4 (RFC 5944, §4.6), by an unsolicited neighbour
// advertisement for IPv6 (RFC 4861, §7.2.6). A bridge or a neighbour may still have
// an entry of a former NIC with the same address.
//
// The addresses are the link's and ready for use. So an IPv6 address has to be set
// without duplicate address detection (IFA_F_NODAD).
func Announce(ctx context.Context, pod ns.NetNS, link string, addrs []netip.Addr) error {
	err := pod.Do(func(ns.NetNS) error {
		l, err := awaitCarrier(ctx, link)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			err = errors.Join(err, announce(l, a))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("announce addresses of %s: %w", link, err)
	}
	return nil
}

// awaitCarrier returns the link, after carrierWait also without a carrier: it then
// has no neighbours. It does not wait for the operational state, which the kernel
// updates only once a second.
func awaitCarrier(ctx context.Context, name string) (netlink.Link, error) {
	wait, cancel := context.WithTimeout(ctx, carrierWait)
	defer cancel()
	l, err := await(wait, func(l netlink.Link) bool {
		return l.Attrs().Name == name && l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return netlink.LinkByName(name)
	}
	return l, err
}

var (
	broadcast = [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = netip.MustParseAddr("ff02::1")
	toNodes   = [8]byte{0x33, 0x33, 0, 0, 0, 1} // RFC 2464, §7
)

func announce(l netlink.Link, a netip.Addr) error {
	mac := l.Attrs().HardwareAddr
	if a.Is4() {
		return sendFrame(l, a, unix.ETH_P_ARP, broadcast, gratuitousARP(mac, a))
	}
	packet, err := unsolicitedAdvertisement(mac, a)
	if err != nil {
		return fmt.Errorf("advertise %s: %w", a, err)
	}
	return sendFrame(l, a, unix.ETH_P_IPV6, toNodes, packet)
}

// sendFrame bypasses the IP stack, which does not use a link for up to a second after
// it got its carrier, and the link's queue, which drops frames in the first moments.
func sendFrame(l netlink.Link, a netip.Addr, protocol uint16, to [8]byte, payload []byte) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open packet socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	if err == nil {
		err = unix.Sendto(fd, payload, 0, &unix.SockaddrLinklayer{
			Protocol: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol)),
			Ifindex:  l.Attrs().Index,
			Halen:    6,
			Addr:     to,
		})
	}
	if err != nil && !errors.Is(err, unix.ENOBUFS) { // ENOBUFS: the link has no carrier
		return fmt.Errorf("send announcement of %s: %w", a, err)
	}
	return nil
}

// gratuitousARP is an ARP request (RFC 826) for the sender's own address.
func gratuitousARP(mac net.HardwareAddr, a netip.Addr) []byte {
	ip := a.As4()
	p := []byte{0, 1, 8, 0, 6, 4, 0, 1} // Ethernet, IPv4, their address lengths, request
	p = append(append(p, mac...), ip[:]...)
	return append(append(p, 0, 0, 0, 0, 0, 0), ip[:]...)
}

// unsolicitedAdvertisement is an IPv6 packet (RFC 8200) from a to all nodes of
// the link, with a neighbour advertisement (RFC 4861, §4.4) of a's MAC that
// overrides their entries.
func unsolicitedAdvertisement(mac net.HardwareAddr, a netip.Addr) ([]byte, error) {
	body := []byte{1 << 5, 0, 0, 0} // override
	body = append(body, a.AsSlice()...)
	body = append(append(body, 2, 1), mac...) // target's link-layer address, in 8 bytes
	m := icmp.Message{Type: ipv6.ICMPTypeNeighborAdvertisement, Body: &icmp.RawBody{Data: body}}
	advertisement, err := m.Marshal(icmp.IPv6PseudoHeader(a.AsSlice(), allNodes.AsSlice()))
	if err != nil {
		return nil, err
	}
	p := []byte{6 << 4, 0, 0, 0, 0, byte(len(advertisement)), unix.IPPROTO_ICMPV6, 255}
	p = append(append(p, a.AsSlice()...), allNodes.AsSlice()...)
	return append(p, advertisement...), nil
}
