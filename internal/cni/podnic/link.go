package podnic

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// FindLink returns the link of the given name, nil when there is none.
func FindLink(name string) (netlink.Link, error) {
	l, err := netlinksafe.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	return l, nil
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
	table, family, by := cmp.Or(want.Table, unix.RT_TABLE_MAIN), netlink.FAMILY_V4, netlink.RT_FILTER_TABLE
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

// SetSysctl sets a file below /proc/sys/net, which belongs to the calling thread's
// network namespace. It does not write a value that is right, as the file may be
// read-only. The error wraps fs.ErrNotExist when the kernel lacks the file.
func SetSysctl(name, value string) error {
	path := filepath.Join("/proc/sys/net", name)
	have, err := os.ReadFile(path)
	if err == nil && string(have) != value+"\n" {
		err = os.WriteFile(path, []byte(value), 0)
	}
	if err != nil {
		return fmt.Errorf("set sysctl net/%s to %s: %w", name, value, err)
	}
	return nil
}

// PluggedMAC returns the MAC of a link that a pod cannot change. A link without a device has only one that it can.
func PluggedMAC(a *netlink.LinkAttrs) net.HardwareAddr {
	if len(a.PermHWAddr) > 0 {
		return a.PermHWAddr
	}
	return a.HardwareAddr
}
