package podnet

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
	"golang.org/x/sys/unix"
)

// carrierWait bounds the wait for a NIC to carry frames after it came up.
const carrierWait = time.Second

// Announce tells the neighbours of the pod's link which MAC its IPv4 addresses
// have now, by one gratuitous ARP request each (RFC 5944, §4.6): a bridge or a
// neighbour may still know a former NIC of the same address.
func Announce(ctx context.Context, pod ns.NetNS, link string, addrs []netip.Addr) error {
	err := pod.Do(func(ns.NetNS) error {
		l, err := awaitCarrier(ctx, link)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if a.Is4() {
				err = errors.Join(err, broadcastARP(l, a))
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("announce addresses of %s: %w", link, err)
	}
	return nil
}

// awaitCarrier returns the link, with a carrier or not: whoever has none has no
// neighbour to tell. It does not wait for the operational state, which the kernel
// updates once a second only.
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

func broadcastARP(l netlink.Link, a netip.Addr) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open packet socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	to := &unix.SockaddrLinklayer{
		Protocol: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP)),
		Ifindex:  l.Attrs().Index,
		Halen:    6,
		Addr:     [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	}
	if err := unix.Sendto(fd, gratuitousARP(l.Attrs().HardwareAddr, a), 0, to); err != nil {
		return fmt.Errorf("send ARP for %s: %w", a, err)
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
