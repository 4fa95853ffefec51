package servicepath

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/podnic"
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
		if err := netlink.AddrReplace(l, a); err != nil {
			return fmt.Errorf("set address %s of %s: %w", a.IPNet, s.link, err)
		}
	}
	for _, n := range s.neighbours {
		if err := netlink.NeighSet(n); err != nil {
			return fmt.Errorf("set neighbour %s of %s: %w", n.IP, s.link, err)
		}
	}
	for _, r := range s.routes {
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("set route to %s by %s: %w", r.Dst, s.link, err)
		}
	}
	for _, r := range s.rules {
		if err := netlink.RuleAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add rule for answers: %w", err)
		}
	}
	return nil
}

// delRules removes the rules of a table of both families, as far as they exist and the kernel has rules.
func delRules(table int) error {
	for _, v6 := range []bool{false, true} {
		err := netlink.RuleDel(markRule(v6, table))
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("delete rule for marked packets: %w", err)
		}
	}
	return nil
}

// check compares a side with the calling thread's network namespace.
func (s side) check() error {
	var addresses []net.IPNet
	for _, a := range s.addresses {
		addresses = append(addresses, *a.IPNet)
	}
	if err := podnic.Check(s.link, nil, addresses); err != nil {
		return err
	}
	for _, n := range s.neighbours {
		have, err := netlink.NeighList(n.LinkIndex, netlink.FAMILY_ALL)
		for errors.Is(err, netlink.ErrDumpInterrupted) { // the list has changed meanwhile
			have, err = netlink.NeighList(n.LinkIndex, netlink.FAMILY_ALL)
		}
		if err != nil {
			return fmt.Errorf("list neighbours of %s: %w", s.link, err)
		}
		if !slices.ContainsFunc(have, func(h netlink.Neigh) bool {
			return h.IP.Equal(n.IP) && h.HardwareAddr.String() == n.HardwareAddr.String()
		}) {
			return fmt.Errorf("link %s lacks the neighbour %s", s.link, n.IP)
		}
	}
	for _, r := range s.routes {
		if err := podnic.CheckRoute(r); err != nil {
			return fmt.Errorf("link %s: %w", s.link, err)
		}
	}
	for _, r := range s.rules {
		have, err := netlinksafe.RuleListFiltered(r.Family, r, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_MARK)
		if err != nil {
			return fmt.Errorf("list rules: %w", err)
		}
		if len(have) == 0 {
			return fmt.Errorf("the rule for answers by %s is missing", s.link)
		}
	}
	return nil
}
