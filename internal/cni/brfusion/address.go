package brfusion

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/podnic"
)

// configure sets the result's addresses and routes on a link of the calling thread's
// network namespace. They end with the link. IPv6 addresses are usable at once,
// without duplicate address detection (RFC 4862, §5.4): the host daemon or the IPAM
// plugin has made sure that they are unique.
func configure(l netlink.Link, r *types100.Result) error {
	for _, ip := range r.IPs {
		a := &netlink.Addr{IPNet: &ip.Address}
		if is6(ip.Address.IP) {
			a.Flags = unix.IFA_F_NODAD
			if err := enableIPv6(l.Attrs().Name); err != nil {
				return err
			}
		}
		if err := netlink.AddrReplace(l, a); err != nil {
			return fmt.Errorf("set address %s: %w", &ip.Address, err)
		}
	}
	for _, route := range r.Routes {
		if err := netlink.RouteAddEcmp(kernelRoute(route, r.IPs, l)); err != nil {
			return fmt.Errorf("set route to %s: %w", &route.Dst, err)
		}
	}
	return nil
}

// enableIPv6 reverts the settings of runtimes for pods without IPv6, and keeps the
// addresses while the link is down.
func enableIPv6(link string) error {
	for _, s := range [][2]string{{"lo/disable_ipv6", "0"}, {link + "/disable_ipv6", "0"}, {link + "/keep_addr_on_down", "1"}} {
		if err := podnic.SetSysctl("ipv6/conf/"+s[0], s[1]); err != nil {
			return fmt.Errorf("enable IPv6: %w", err)
		}
	}
	return nil
}

// kernelRoute is the kernel's form of a route, whose destination has no bits after its prefix. The default next hop is the
// gateway of the first address of the same family that has one (CNI specification, section 5).
func kernelRoute(r *types.Route, ips []*types100.IPConfig, l netlink.Link) *netlink.Route {
	k := &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: r.Dst.IP.Mask(r.Dst.Mask), Mask: r.Dst.Mask}, Gw: r.GW,
		MTU: r.MTU, AdvMSS: r.AdvMSS, Priority: r.Priority,
	}
	for _, ip := range ips {
		if k.Gw == nil && ip.Gateway != nil && is6(ip.Gateway) == is6(r.Dst.IP) {
			k.Gw = ip.Gateway
		}
	}
	if r.Table != nil {
		k.Table = *r.Table
	}
	if r.Scope != nil {
		k.Scope = netlink.Scope(*r.Scope)
	}
	return k
}

func is6(ip net.IP) bool { return ip.To4() == nil }

// plain are the addresses without their prefix lengths.
func plain(ips []*types100.IPConfig) (addrs []netip.Addr) {
	for _, ip := range ips {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

// prefixed are the addresses in the form of the host daemon's API.
func prefixed(ips []*types100.IPConfig) (addrs []string) {
	for _, ip := range ips {
		addrs = append(addrs, ip.Address.String())
	}
	return addrs
}
