package loopback

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mostAddresses is how many addresses of a fraction are served by all fractions.
const mostAddresses = 64

// aliases is the route that makes IPv6 aliases local (see bpf/alias.h). IPv4 aliases are in
// 127.0.0.0/8, which is local.
func aliases() *netlink.Route {
	return &netlink.Route{
		LinkIndex: lo.Index, Family: unix.AF_INET6, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL,
		Dst: &net.IPNet{IP: net.ParseIP("fd68:6f73:746c:6f00::"), Mask: net.CIDRMask(96, 128)},
	}
}

// AddAliases makes IPv6 aliases local in this thread's network namespace, if lo has IPv6.
func AddAliases() error {
	off, err := readNumber(disableIPv6("lo"))
	if errors.Is(err, fs.ErrNotExist) || off != 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if err := netlink.RouteReplace(aliases()); err != nil {
		return fmt.Errorf("make %s local: %w", aliases().Dst, err)
	}
	return nil
}

func removeAliases() error {
	err := netlink.RouteDel(aliases())
	if err == nil || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return fmt.Errorf("remove route of %s: %w", aliases().Dst, err)
}

// outside returns the pod's links that lead outside: all but lo and the segment's NIC,
// which may be nil.
func outside(nic netlink.Link) (links []netlink.Link, err error) {
	all, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range all {
		a := l.Attrs()
		if a.Flags&net.FlagLoopback == 0 && (nic == nil || a.Index != nic.Attrs().Index) && a.EncapType == "ether" {
			links = append(links, l)
		}
	}
	return links, nil
}

// openToOutside has all fractions serve the addresses that the pod has now.
func openToOutside(nic netlink.Link, programs *loopbackObjects) error {
	links, err := outside(nic)
	if err != nil {
		return err
	}
	count := 0
	for _, l := range links {
		routes, err := netlinksafe.RouteList(l, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("list routes of %s: %w", l.Attrs().Name, err)
		}
		mtu := l.Attrs().MTU
		for _, r := range routes {
			if r.MTU > 0 {
				mtu = min(mtu, r.MTU)
			}
		}
		addresses, err := netlinksafe.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, address := range addresses {
			a, ok := netip.AddrFromSlice(address.IP)
			if !ok || a.IsLinkLocalUnicast() || count == mostAddresses {
				continue
			}
			if err := programs.HostloAddresses.Put(a.As16(), uint32(mtu)); err != nil {
				return fmt.Errorf("write map hostlo_addresses: %w", err)
			}
			count++
		}
		if err := attach(l, programs.EnterPod, netlink.HANDLE_MIN_INGRESS); err != nil {
			return err
		}
	}
	return nil
}

// closeToOutside undoes openToOutside.
func closeToOutside(nic netlink.Link) error {
	links, err := outside(nic)
	if err != nil {
		return err
	}
	for _, l := range links {
		f, err := ours(l, netlink.HANDLE_MIN_INGRESS)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		if err := detach(l, netlink.HANDLE_MIN_INGRESS, false); err != nil {
			return err
		}
	}
	return nil
}
