// Package podnic is the guest's side of a pod's NIC: it finds a NIC that the VMM has
// just plugged, moves it into the pod's network namespace under the pod's name for
// it, or makes a VLAN of a trunk there, announces its addresses, and undoes each step.
//
// Where the NIC comes from and which addresses it gets do not belong here. Functions
// work in the network namespace of the calling thread, unless they are given another.
package podnic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNotPlugged is wrapped when a NIC does not appear in time.
var ErrNotPlugged = errors.New("not found")

// rescanTime is the time after which the guest's kernel is told to rescan its PCI
// buses. The kernel sometimes misses a NIC when many are plugged and unplugged at
// once; usually it finds one within 0.1 s.
const rescanTime = 3 * time.Second

// AwaitPlugged returns the link with the given MAC, which the VMM has just plugged.
// It waits at most for the given time, and then returns ErrNotPlugged.
func AwaitPlugged(ctx context.Context, mac net.HardwareAddr, wait time.Duration) (netlink.Link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, ErrNotPlugged)
	defer cancel()
	soon, cancelSoon := context.WithTimeout(ctx, rescanTime)
	defer cancelSoon()
	l, err := awaitMAC(soon, mac)
	if err != nil && ctx.Err() == nil {
		if err := os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0); err != nil {
			return nil, fmt.Errorf("rescan PCI buses for NIC %s: %w", mac, err)
		}
		l, err = awaitMAC(ctx, mac)
	}
	if errors.Is(err, ErrNotPlugged) {
		return nil, fmt.Errorf("%w within %v; check that the guest's kernel has hot-plug (pciehp or acpiphp) and virtio_net", err, wait)
	}
	return l, err
}

// awaitMAC returns the link with the given MAC. When ctx ends first, the error wraps
// its cause.
func awaitMAC(ctx context.Context, mac net.HardwareAddr) (netlink.Link, error) {
	link, err := await(ctx, func(l netlink.Link) bool { return hasMAC(l, mac) })
	if err != nil {
		return nil, fmt.Errorf("wait for NIC %s: %w", mac, err)
	}
	return link, nil
}

func hasMAC(l netlink.Link, mac net.HardwareAddr) bool {
	return bytes.Equal(l.Attrs().HardwareAddr, mac)
}

// errEventsLost means that link events may have been dropped, usually by a full
// socket buffer. The links have to be listed again.
var errEventsLost = errors.New("link events lost")

// await returns the first link that matches, among the present ones and those that
// appear or change until ctx ends.
func await(ctx context.Context, match func(netlink.Link) bool) (netlink.Link, error) {
	for {
		link, err := awaitOnce(ctx, match)
		if !errors.Is(err, errEventsLost) {
			return link, err
		}
	}
}

// awaitOnce subscribes before it lists, so that it misses no link.
func awaitOnce(ctx context.Context, match func(netlink.Link) bool) (netlink.Link, error) {
	updates, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	if err := netlink.LinkSubscribe(updates, done); err != nil {
		return nil, fmt.Errorf("subscribe to link events: %w", err)
	}
	defer func() {
		close(done)
		for range updates { // until the sender has seen done and closes it
		}
	}()
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	if i := slices.IndexFunc(links, match); i >= 0 {
		return links[i], nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case u, ok := <-updates:
			if !ok {
				return nil, errEventsLost
			}
			if u.Header.Type != unix.RTM_DELLINK && match(u.Link) {
				return u.Link, nil
			}
		}
	}
}

// Check returns an error unless the link has the given MAC (nil: any), is up, and has
// all the given addresses with their prefix lengths.
func Check(link string, mac net.HardwareAddr, addrs []net.IPNet) error {
	l, err := netlinksafe.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", link, err)
	}
	if mac != nil && !hasMAC(l, mac) {
		return fmt.Errorf("link %s has the MAC %s, want %s", link, l.Attrs().HardwareAddr, mac)
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("link %s is down", link)
	}
	have, err := netlinksafe.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", link, err)
	}
	for _, want := range addrs {
		if !slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.Equal(netlink.Addr{IPNet: &want}) }) {
			return fmt.Errorf("link %s lacks the address %s", link, &want)
		}
	}
	return nil
}

// CheckRoute returns an error unless the kernel has a route to want's destination with
// its gateway, in its table (0: main), on its link or, without one, on any link.
func CheckRoute(want *netlink.Route) error {
	table, family, by := want.Table, netlink.FAMILY_V4, netlink.RT_FILTER_TABLE
	if table == 0 {
		table = unix.RT_TABLE_MAIN
	}
	if want.Dst.IP.To4() == nil {
		family = netlink.FAMILY_V6
	}
	if want.LinkIndex != 0 {
		by |= netlink.RT_FILTER_OIF
	}
	have, err := netlinksafe.RouteListFiltered(family, &netlink.Route{Table: table, LinkIndex: want.LinkIndex}, by)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, h := range have {
		if h.Dst != nil && h.Dst.String() == want.Dst.String() && (h.Gw.Equal(want.Gw) ||
			slices.ContainsFunc(h.MultiPath, func(hop *netlink.NexthopInfo) bool { return hop.Gw.Equal(want.Gw) })) {
			return nil
		}
	}
	return fmt.Errorf("the route to %s is missing", want.Dst)
}

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// PCIAddress returns the address of a link's PCI device, such as "0000:05:00.0", and
// "" for a link without one, such as a VLAN. It asks the driver: sysfs shows only the
// links of the network namespace that it was mounted in.
func PCIAddress(link string) (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("find PCI address of %s: open socket: %w", link, err)
	}
	defer func() { _ = unix.Close(fd) }()
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, link)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find PCI address of %s: ask its driver: %w", link, err)
	}
	address := unix.ByteSliceToString(info.Bus_info[:])
	if !pciAddress.MatchString(address) {
		return "", nil // another bus, or the driver's word for none
	}
	return address, nil
}
