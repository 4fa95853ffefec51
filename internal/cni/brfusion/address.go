package brfusion

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// address sets the result's addresses and routes at a link of the calling
// thread's network namespace. What it sets goes with the link. An IPv6 address
// serves at once: nobody else has it, as the host daemon or the IPAM plugin sees
// to, so the kernel need not ask (RFC 4862, §5.4).
func address(link string, r *types100.Result) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	for _, ip := range r.IPs {
		a := &netlink.Addr{IPNet: &ip.Address}
		if is6(ip.Address.IP) {
			a.Flags = unix.IFA_F_NODAD
			if err := enableIPv6(link); err != nil {
				return err
			}
		}
		if err := netlink.AddrReplace(l, a); err != nil {
			return fmt.Errorf("set address %s: %w", &ip.Address, err)
		}
	}
	for _, route := range r.Routes {
		if err := netlink.RouteAddEcmp(entry(route, r.IPs, l)); err != nil {
			return fmt.Errorf("set route to %s: %w", &route.Dst, err)
		}
	}
	return nil
}

// enableIPv6 undoes what runtimes set in a pod without IPv6, and keeps the
// addresses when the link is down for a moment.
func enableIPv6(link string) error {
	for _, s := range [][2]string{{"lo/disable_ipv6", "0"}, {link + "/disable_ipv6", "0"}, {link + "/keep_addr_on_down", "1"}} {
		path := filepath.Join("/proc/sys/net/ipv6/conf", s[0])
		have, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("enable IPv6: the guest's kernel has none: %w", err)
		}
		if err == nil && string(have) == s[1]+"\n" {
			continue // it may be read-only
		}
		if err := os.WriteFile(path, []byte(s[1]), 0); err != nil {
			return fmt.Errorf("enable IPv6: %w", err)
		}
	}
	return nil
}

// entry is the kernel's form of a route. A missing next hop is the gateway of the
// first address of its family that has one (CNI specification, section 5).
func entry(r *types.Route, ips []*types100.IPConfig, l netlink.Link) *netlink.Route {
	e := &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: &r.Dst, Gw: nextHop(r, ips),
		MTU: r.MTU, AdvMSS: r.AdvMSS, Priority: r.Priority,
	}
	if r.Table != nil {
		e.Table = *r.Table
	}
	if r.Scope != nil {
		e.Scope = netlink.Scope(*r.Scope)
	}
	return e
}

func nextHop(r *types.Route, ips []*types100.IPConfig) net.IP {
	if r.GW != nil {
		return r.GW
	}
	for _, ip := range ips {
		if ip.Gateway != nil && is6(ip.Gateway) == is6(r.Dst.IP) {
			return ip.Gateway
		}
	}
	return nil
}

// plain are the addresses without their prefix lengths.
func plain(ips []*types100.IPConfig) (addrs []netip.Addr) {
	for _, ip := range ips {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

// prefixed are the addresses as the host daemon takes them.
func prefixed(ips []*types100.IPConfig) (addrs []string) {
	for _, ip := range ips {
		addrs = append(addrs, ip.Address.String())
	}
	return addrs
}
