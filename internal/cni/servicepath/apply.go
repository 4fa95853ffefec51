package servicepath

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/cni/podnic"
)

// apply makes a side of a path in the calling thread's network namespace. The
// link must exist.
func (s side) apply() error {
	for _, c := range s.sysctls {
		err := podnic.SetSysctl(c.name, c.value)
		if err != nil && !(c.value == "0" && errors.Is(err, fs.ErrNotExist)) { // the kernel lacks the feature
			return err
		}
	}
	l, err := netlinksafe.LinkByName(s.link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", s.link, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("bring up %s: %w", s.link, err)
	}
	for _, a := range s.addresses {
		if err := netlink.AddrReplace(l, &netlink.Addr{IPNet: ipNet(a), Scope: int(netlink.SCOPE_LINK)}); err != nil {
			return fmt.Errorf("set address %s of %s: %w", a, s.link, err)
		}
	}
	for _, n := range s.neighbours {
		e := &netlink.Neigh{LinkIndex: l.Attrs().Index, IP: n.addr.AsSlice(), HardwareAddr: n.mac, State: netlink.NUD_PERMANENT}
		if err := netlink.NeighSet(e); err != nil {
			return fmt.Errorf("set neighbour %s of %s: %w", n.addr, s.link, err)
		}
	}
	for _, r := range s.routes {
		if err := netlink.RouteReplace(r.entry(l)); err != nil {
			return fmt.Errorf("set route to %s by %s: %w", r.to, s.link, err)
		}
	}
	for _, v6 := range s.rules {
		if err := netlink.RuleAdd(answerRule(v6)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add rule for answers: %w", err)
		}
	}
	return nil
}

func (r route) entry(l netlink.Link) *netlink.Route {
	e := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(r.to), Table: r.table}
	if r.from.IsValid() {
		e.Src = r.from.AsSlice()
	}
	if r.via.IsValid() {
		e.Gw, e.Flags = r.via.AsSlice(), int(netlink.FLAG_ONLINK)
	} else {
		e.Scope = netlink.SCOPE_LINK
	}
	return e
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// answerRule routes marked packets by the table answers.
func answerRule(v6 bool) *netlink.Rule {
	mask := uint32(mark)
	r := netlink.NewRule()
	r.Priority, r.Table, r.Mark, r.Mask, r.Family = rulePriority, answers, mark, &mask, family(v6)
	return r
}

func family(v6 bool) int {
	if v6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// delRules removes the rules of both families, as far as they exist.
func delRules() error {
	for _, v6 := range []bool{false, true} {
		err := netlink.RuleDel(answerRule(v6))
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("delete rule for answers: %w", err)
		}
	}
	return nil
}

// check compares a side with the calling thread's network namespace.
func (s side) check() error {
	l, err := netlinksafe.LinkByName(s.link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", s.link, err)
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("link %s is down", s.link)
	}
	addresses, err := netlinksafe.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", s.link, err)
	}
	for _, a := range s.addresses {
		if !slices.ContainsFunc(addresses, func(h netlink.Addr) bool { return h.Equal(netlink.Addr{IPNet: ipNet(a)}) }) {
			return fmt.Errorf("link %s lacks the address %s", s.link, a)
		}
	}
	neighbours, err := netlink.NeighList(l.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list neighbours of %s: %w", s.link, err)
	}
	for _, n := range s.neighbours {
		if !slices.ContainsFunc(neighbours, func(e netlink.Neigh) bool {
			return e.IP.Equal(n.addr.AsSlice()) && e.HardwareAddr.String() == n.mac.String()
		}) {
			return fmt.Errorf("link %s lacks the neighbour %s", s.link, n.addr)
		}
	}
	for _, r := range s.routes {
		if err := r.check(l); err != nil {
			return err
		}
	}
	for _, v6 := range s.rules {
		have, err := netlinksafe.RuleListFiltered(family(v6), answerRule(v6), netlink.RT_FILTER_TABLE|netlink.RT_FILTER_MARK)
		if err != nil {
			return fmt.Errorf("list rules: %w", err)
		}
		if len(have) == 0 {
			return fmt.Errorf("the rule for answers by %s is missing", s.link)
		}
	}
	return nil
}

func (r route) check(l netlink.Link) error {
	want := r.entry(l)
	if want.Table == 0 {
		want.Table = unix.RT_TABLE_MAIN
	}
	have, err := netlinksafe.RouteListFiltered(family(r.to.Addr().Is6()), want, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes of %s: %w", l.Attrs().Name, err)
	}
	if !slices.ContainsFunc(have, func(e netlink.Route) bool {
		return e.Dst != nil && e.Dst.String() == want.Dst.String() && e.Gw.Equal(want.Gw)
	}) {
		return fmt.Errorf("the route to %s by %s is missing", r.to, l.Attrs().Name)
	}
	return nil
}
