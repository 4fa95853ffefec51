package servicepath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/podnic"
)

// outside is the guest's routing table for the connections of paths with sources: it has the
// pods behind the guest's own NIC, where the host filters, and not behind their paths.
const outside = answers + 1

// source is the address that the pod's connections to services have outside the guest. The
// guest answers for it on its own NIC, and routes it to the path, so it is not an address of
// the guest itself.
type source struct {
	path string // the guest's end
	nic  string // the guest's own
	addr netip.Addr
}

// addSources gives the path its sources. A source that is not in a subnet of a NIC of the
// guest is left out: nobody would find it there.
func (p Path) addSources(guestEnd *netlink.LinkAttrs) error {
	for _, a := range p.Sources {
		i := slices.IndexFunc(p.Addresses, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
		if i < 0 {
			continue
		}
		nic, err := onLink(a)
		if err != nil {
			return fmt.Errorf("find route to source %s: %w", a, err)
		}
		if nic == nil {
			continue
		}
		if err := p.addSource(guestEnd, nic, a); err != nil {
			return fmt.Errorf("add source %s: %w", a, err)
		}
	}
	return nil
}

// onLink returns the NIC in whose subnet an address is, nil if there is none.
func onLink(a netip.Addr) (*netlink.LinkAttrs, error) {
	routes, err := netlink.RouteGet(a.AsSlice())
	none := []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EAFNOSUPPORT, unix.EOPNOTSUPP}
	if slices.ContainsFunc(none, func(e error) bool { return errors.Is(err, e) }) {
		return nil, nil
	}
	if err != nil || len(routes) == 0 || routes[0].Gw != nil || routes[0].Type != unix.RTN_UNICAST {
		return nil, err
	}
	l, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return nil, err
	}
	return l.Attrs(), nil
}

func (p Path) addSource(guestEnd, nic *netlink.LinkAttrs, a netip.Addr) error {
	for _, c := range nicSysctls(nic.Name, a.Is6()) {
		if err := podnic.SetSysctl(c.name, c.value); err != nil {
			return err
		}
	}
	s := source{guestEnd.Name, nic.Name, a}
	if err := filterSource(s); err != nil {
		return err
	}
	routes := []*netlink.Route{hostRoute(guestEnd.Index, a, 0)}
	for _, own := range p.Addresses {
		if own.Is4() == a.Is4() {
			routes = append(routes, hostRoute(nic.Index, own, outside))
		}
	}
	for _, r := range routes {
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("set route to %s: %w", r.Dst, err)
		}
	}
	if err := netlink.RuleAdd(markRule(a.Is6(), outside)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add rule for services: %w", err)
	}
	return netlink.NeighSet(proxy(nic.Index, a))
}

// nicSysctls let the guest answer at once for sources, and accept on its NIC the packets of
// pods to which it has a route over their paths.
func nicSysctls(nic string, v6 bool) []sysctl {
	if v6 {
		return []sysctl{{"ipv6/conf/" + nic + "/proxy_ndp", "1"}, {"ipv6/neigh/" + nic + "/proxy_delay", "0"}}
	}
	return []sysctl{{"ipv4/conf/" + nic + "/rp_filter", "2"}, {"ipv4/neigh/" + nic + "/proxy_delay", "0"}}
}

func hostRoute(link int, a netip.Addr, table int) *netlink.Route {
	return &netlink.Route{LinkIndex: link, Dst: ipNet(netip.PrefixFrom(a, a.BitLen())), Scope: netlink.SCOPE_LINK, Table: table}
}

// proxy makes the guest answer ARP or neighbour discovery for an address.
func proxy(nic int, a netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: nic, Family: familyOf(a.Is6()), Flags: netlink.NTF_PROXY, IP: a.AsSlice()}
}

func familyOf(v6 bool) int {
	if v6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// delSources removes what addSources has made for paths, also when their veths are gone.
func delSources(of func(path string) bool) error {
	all, err := listSources()
	for _, s := range all {
		if of(s.path) {
			err = errors.Join(err, delProxy(s), unfilterSource(s))
		}
	}
	return errors.Join(err, delOutside())
}

func delProxy(s source) error {
	l, err := podnic.FindLink(s.nic)
	if l == nil || err != nil {
		return err
	}
	err = netlink.NeighDel(proxy(l.Attrs().Index, s.addr))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("stop answering for %s: %w", s.addr, err)
	}
	return nil
}

// delOutside removes the routes of pods that have no path any more. It lists the paths last, because
// an Add at the same time makes the path's route first. It reads each list once, whatever
// the number of pods.
func delOutside() (failed error) {
	for _, v6 := range []bool{false, true} {
		routes, err := netlinksafe.RouteListFiltered(familyOf(v6), &netlink.Route{Table: outside}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list routes to pods: %w", err)
		}
		if len(routes) == 0 {
			continue
		}
		paths, err := netlinksafe.RouteListFiltered(familyOf(v6), &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list routes to paths: %w", err)
		}
		reached := map[string]bool{}
		for _, r := range paths {
			reached[r.Dst.String()] = true
		}
		for _, r := range routes {
			if reached[r.Dst.String()] {
				continue
			}
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				failed = errors.Join(failed, fmt.Errorf("delete route to %s: %w", r.Dst, err))
			}
		}
	}
	return failed
}

// checkSources compares the sources of a path with the guest.
func checkSources(guestEnd *netlink.LinkAttrs) error {
	all, err := listSources()
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.path != guestEnd.Name {
			continue
		}
		l, err := netlinksafe.LinkByName(s.nic)
		if err == nil {
			err = podnic.CheckRoute(hostRoute(guestEnd.Index, s.addr, 0))
		}
		if err != nil {
			return fmt.Errorf("source %s: %w", s.addr, err)
		}
		proxies, err := netlink.NeighProxyList(l.Attrs().Index, familyOf(s.addr.Is6()))
		if err != nil {
			return fmt.Errorf("list addresses for which the guest answers: %w", err)
		}
		if !slices.ContainsFunc(proxies, func(n netlink.Neigh) bool { return n.IP.Equal(s.addr.AsSlice()) }) {
			return fmt.Errorf("source %s: the guest does not answer for it on %s", s.addr, s.nic)
		}
		if err := checkChains(sourceChains(table())); err != nil {
			return err
		}
	}
	return nil
}
