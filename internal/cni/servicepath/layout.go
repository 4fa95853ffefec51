package servicepath

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
)

// Names and numbers of a path.
const (
	podEnd      = "svc0"
	guestPrefix = "unsv"             // of the guest's end; a hash of the owner follows
	aliasPrefix = "unnest-service: " // of the guest's end; network/container/interface follows
	// mark is, in the pod, the bit of a packet's and a connection's mark for "came in over
	// svc0". In the guest the bit means "a path's connection to a service".
	mark = 0x0100_0000
	// answers is the routing table for marked packets.
	answers = 0x756e
	// rulePriority is before the main table's.
	rulePriority = 30_000
)

// The pod's next hops on svc0. They are link-local and the same in every pod, as a
// permanent neighbour entry has their MAC.
var (
	nextHop4 = netip.MustParseAddr("169.254.1.1")
	nextHop6 = netip.MustParseAddr("fe80::1")
)

// podLocal is svc0's own IPv4 address, the same in every pod. Nothing is sent from
// it. Without an address the kernel drops packets that it would answer over another
// link, whatever rp_filter is (__fib_validate_source in net/ipv4/fib_frontend.c).
var podLocal = netip.MustParsePrefix("169.254.1.2/32")

// guestEnd is the name of the guest's end of the veth. It does not depend on the
// network: container and interface identify an attachment.
func (o Owner) guestEnd() string {
	sum := sha256.Sum256([]byte(o.Container + "/" + o.Interface))
	return guestPrefix + hex.EncodeToString(sum[:])[:11]
}

// alias tells later processes the owner.
func (o Owner) alias() string {
	return aliasPrefix + o.Network + "/" + o.Container + "/" + o.Interface
}

func ownerOf(alias string) (o Owner, ok bool) {
	rest, ok := strings.CutPrefix(alias, aliasPrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return Owner{}, false
	}
	return Owner{Network: parts[0], Container: parts[1], Interface: parts[2]}, true
}

// side is what a path consists of in one namespace, without the veth and the rules of
// the packet filter.
type side struct {
	link       string
	sysctls    []sysctl
	addresses  []*netlink.Addr
	neighbours []*netlink.Neigh
	routes     []*netlink.Route
	rules      []*netlink.Rule
}

// sysctl is a setting below /proc/sys/net.
type sysctl struct{ name, value string }

// layout returns both sides of a path. In each family the pod's first address is the
// source of its packets. Ranges of a family without an address are left out.
func (p Path) layout(ends Ends) (guest, pod side) {
	guest.link, pod.link = ends.Guest.Name, ends.Pod.Name
	for _, v6 := range []bool{false, true} {
		first := netip.Addr{}
		for _, a := range p.Addresses {
			if a.Is6() != v6 {
				continue
			}
			if !first.IsValid() {
				first = a
			}
			guest.addNeighbour(ends.Guest, a, ends.Pod)
			guest.routes = append(guest.routes, &netlink.Route{
				LinkIndex: ends.Guest.Index, Dst: ipNet(netip.PrefixFrom(a, a.BitLen())), Scope: netlink.SCOPE_LINK,
			})
		}
		if first.IsValid() {
			guest.sysctls = append(guest.sysctls, guestSysctls(ends.Guest.Name, v6)...)
			pod.addFamily(first, p.Ranges, ends)
		}
	}
	return guest, pod
}

// addFamily adds the pod's part for the family of the address from.
func (s *side) addFamily(from netip.Addr, ranges []netip.Prefix, ends Ends) {
	via, all := nextHop6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	setting := sysctl{"ipv6/conf/" + podEnd + "/disable_ipv6", "0"}
	if from.Is4() {
		via, all = nextHop4, netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		// svc0 receives packets that the pod would answer over its own NIC. IPv6 has
		// no such check.
		setting = sysctl{"ipv4/conf/" + podEnd + "/rp_filter", "2"}
		s.addresses = append(s.addresses, &netlink.Addr{IPNet: ipNet(podLocal), Scope: int(netlink.SCOPE_LINK)})
	}
	s.sysctls = append(s.sysctls, setting)
	s.addNeighbour(ends.Pod, via, ends.Guest)
	for _, r := range ranges {
		if r.Addr().Is4() == from.Is4() {
			s.addRoute(ends.Pod, netlink.Route{Dst: ipNet(r), Gw: via.AsSlice(), Src: from.AsSlice()})
		}
	}
	s.addRoute(ends.Pod, netlink.Route{Dst: ipNet(all), Gw: via.AsSlice(), Table: answers})
	s.rules = append(s.rules, markRule(from.Is6(), answers))
}

func (s *side) addRoute(link *netlink.LinkAttrs, r netlink.Route) {
	r.LinkIndex, r.Flags = link.Index, int(netlink.FLAG_ONLINK)
	s.routes = append(s.routes, &r)
}

// addNeighbour gives the address a the MAC of the other end.
func (s *side) addNeighbour(link *netlink.LinkAttrs, a netip.Addr, other *netlink.LinkAttrs) {
	s.neighbours = append(s.neighbours, &netlink.Neigh{
		LinkIndex: link.Index, IP: a.AsSlice(), HardwareAddr: other.HardwareAddr, State: netlink.NUD_PERMANENT,
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// markRule routes marked packets by a table.
func markRule(v6 bool, table int) *netlink.Rule {
	mask := uint32(mark)
	r := netlink.NewRule()
	r.Priority, r.Table, r.Mark, r.Mask, r.Family = rulePriority, table, mark, &mask, familyOf(v6)
	return r
}

// guestSysctls enable forwarding. They disable redirects, which the guest would send
// to a pod that connects to its own service. The kernel sends them if either value
// says so; other interfaces have their own value and are not affected.
func guestSysctls(link string, v6 bool) []sysctl {
	if v6 {
		return []sysctl{{"ipv6/conf/all/forwarding", "1"}, {"ipv6/conf/" + link + "/disable_ipv6", "0"}}
	}
	return []sysctl{
		{"ipv4/ip_forward", "1"},
		{"ipv4/conf/all/send_redirects", "0"},
		{"ipv4/conf/" + link + "/send_redirects", "0"},
	}
}
