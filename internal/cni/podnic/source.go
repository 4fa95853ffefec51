package podnic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Rules by source are in a pod only, after those of the service path and before the main table.
const (
	sourcePriority = 30_100
	// sourceTable plus the index of an interface is its routing table.
	sourceTable = 0x756e_0000
)

// ErrAddressTwice is wrapped when two interfaces of a pod would have the same address.
var ErrAddressTwice = errors.New("another interface of the pod has the address")

// source is an interface of a pod with its addresses that are valid beyond the link.
type source struct {
	link      netlink.Link
	addresses []netip.Addr
}

func (s source) table() int { return sourceTable + s.link.Attrs().Index }

// CheckAddresses returns an error that wraps ErrAddressTwice if another interface of the calling
// thread's network namespace than the named one has one of the addresses. The kernel would answer for
// it by the first interface only.
func CheckAddresses(name string, addresses []netip.Addr) error {
	all, err := sources()
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, a := range addresses {
			if s.link.Attrs().Name != name && slices.Contains(s.addresses, a) {
				return fmt.Errorf("set address %s: %w: %s; give the networks ranges that do not overlap, or leave one of them out",
					a, ErrAddressTwice, s.link.Attrs().Name)
			}
		}
	}
	return nil
}

// RouteBySource makes each interface of the calling thread's network namespace send what has its
// address as source, if several have addresses. A NIC may send only from its own addresses, but
// the main table chooses an interface by the destination alone. Each interface gets a table with its
// routes of the main table, those that prefer its addresses, and without a default route of its own one
// by a gateway. gateways are those of the named interface.
func RouteBySource(name string, gateways []netip.Addr) error {
	all, err := sources()
	if err != nil || len(all) < 2 {
		return err
	}
	for _, s := range all {
		via := gateways
		if s.link.Attrs().Name != name {
			via = nil
		}
		if err := s.route(via); err != nil {
			return fmt.Errorf("route what %s sends by its addresses: %w", s.link.Attrs().Name, err)
		}
	}
	return nil
}

// ForgetSource removes the rules of the pod's named interface, of those that are gone, and of the last
// one that is left. The tables end with their interfaces.
func ForgetSource(pod ns.NetNS, name string) error {
	return pod.Do(func(ns.NetNS) error {
		all, err := sources()
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(s source) bool { return s.link.Attrs().Name == name })
		if len(all) < 2 {
			all = nil
		}
		for _, family := range families {
			err = errors.Join(err, forgetOthers(family, all))
		}
		if err != nil {
			return fmt.Errorf("remove rules for what %s sends: %w", name, err)
		}
		return nil
	})
}

var families = []int{netlink.FAMILY_V4, netlink.FAMILY_V6}

func forgetOthers(family int, kept []source) (failed error) {
	rules, err := sourceRules(family)
	if err != nil {
		return err
	}
	for _, r := range rules {
		if slices.ContainsFunc(kept, func(s source) bool { return s.table() == r.Table }) {
			continue
		}
		if err := netlink.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// sourceRules are the rules of RouteBySource.
func sourceRules(family int) ([]netlink.Rule, error) {
	rules, err := netlinksafe.RuleListFiltered(family, &netlink.Rule{Priority: sourcePriority}, netlink.RT_FILTER_PRIORITY)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // the kernel has no rules, or not this family
	}
	return rules, err
}

// sources are the interfaces with addresses that are valid beyond the link.
func sources() (all []source, err error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := netlinksafe.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
		}
		s := source{link: l}
		for _, a := range addresses {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && a.Scope == unix.RT_SCOPE_UNIVERSE {
				s.addresses = append(s.addresses, ip.Unmap())
			}
		}
		if len(s.addresses) > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}

// route sets the table and the rules of an interface. The rules come last, so that they never lead to
// a table without routes.
func (s source) route(gateways []netip.Addr) error {
	for _, family := range families {
		if err := s.fill(family, gateways); err != nil {
			return err
		}
	}
	for _, a := range s.addresses {
		r := netlink.NewRule()
		r.Priority, r.Table, r.Src, r.Family = sourcePriority, s.table(), netlink.NewIPNet(a.AsSlice()), nl.GetIPFamily(a.AsSlice())
		if err := netlink.RuleAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add rule for %s: %w; the guest's kernel needs policy routing (CONFIG_IP_MULTIPLE_TABLES, CONFIG_IPV6_MULTIPLE_TABLES)", a, err)
		}
	}
	return nil
}

// fill makes the table what the main table is now.
func (s source) fill(f int, gateways []netip.Addr) error {
	old, err := netlinksafe.RouteListFiltered(f, &netlink.Route{Table: s.table()}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range old {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove route to %s: %w", r.Dst, err)
		}
	}
	main, err := netlinksafe.RouteListFiltered(f, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range s.own(main, f, gateways) {
		if err := netlink.RouteAddEcmp(&r); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

// own returns the interface's routes of the main table, for its own table. Those to the link come
// first, because the kernel looks up gateways of the others there.
func (s source) own(main []netlink.Route, f int, gateways []netip.Addr) (all []netlink.Route) {
	hasDefault := false
	for _, r := range main {
		for _, hop := range hops(r) {
			src, _ := netip.AddrFromSlice(r.Src)
			if hop.LinkIndex != s.link.Attrs().Index && !slices.Contains(s.addresses, src.Unmap()) {
				continue
			}
			ones, _ := r.Dst.Mask.Size()
			hasDefault = hasDefault || ones == 0 && hop.LinkIndex == s.link.Attrs().Index
			all = append(all, netlink.Route{
				LinkIndex: hop.LinkIndex, Dst: r.Dst, Gw: hop.Gw, Flags: hop.Flags & int(netlink.FLAG_ONLINK), Table: s.table(),
				Src: r.Src, Scope: r.Scope, Priority: r.Priority, MTU: r.MTU, AdvMSS: r.AdvMSS,
			})
		}
	}
	slices.SortStableFunc(all, func(a, b netlink.Route) int { return len(a.Gw) - len(b.Gw) })
	for _, gw := range gateways {
		if nl.GetIPFamily(gw.AsSlice()) == f && !hasDefault && slices.ContainsFunc(s.addresses, func(a netip.Addr) bool { return a.Is4() == gw.Is4() }) {
			zero := netip.PrefixFrom(gw, 0).Masked()
			all = append(all, netlink.Route{
				LinkIndex: s.link.Attrs().Index, Gw: gw.AsSlice(), Table: s.table(),
				Dst: &net.IPNet{IP: zero.Addr().AsSlice(), Mask: net.CIDRMask(0, zero.Addr().BitLen())},
			})
			hasDefault = true
		}
	}
	return all
}

// hops are the next hops of a route, which may have several.
func hops(r netlink.Route) []*netlink.NexthopInfo {
	if len(r.MultiPath) > 0 {
		return r.MultiPath
	}
	return []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Flags: r.Flags}}
}
