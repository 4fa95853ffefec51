package servicepath

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
)

// Names and numbers of a path.
const (
	podEnd      = "svc0"
	guestPrefix = "unsv"             // of the guest's end; a hash of the owner follows
	aliasPrefix = "unnest-service: " // of the guest's end; network/container/interface follows
	// mark is the bit of a packet's and a connection's mark that says: came in by
	// svc0. Only the pod's own network namespace sees it.
	mark = 0x0100_0000
	// answers is the routing table of what is so marked.
	answers = 0x756e
	// rulePriority is before the main table's.
	rulePriority = 30_000
)

// The pod's next hops on svc0: link-local, and fixed, as the neighbour entry
// tells their MAC.
var (
	nextHop4 = netip.MustParseAddr("169.254.1.1")
	nextHop6 = netip.MustParseAddr("fe80::1")
)

// podLocal is svc0's own IPv4 address, the same in every pod. Nothing is sent
// from it; without one the kernel drops what it would answer by another link
// (__fib_validate_source in net/ipv4/fib_frontend.c), however loose rp_filter is.
var podLocal = netip.MustParsePrefix("169.254.1.2/32")

func nextHop(a netip.Addr) netip.Addr {
	if a.Is4() {
		return nextHop4
	}
	return nextHop6
}

// guestEnd is the name of the guest's end of the veth. It does not need the
// network's name: container and interface identify an attachment.
func (o Owner) guestEnd() string {
	sum := sha256.Sum256([]byte(o.Container + "/" + o.Interface))
	return guestPrefix + hex.EncodeToString(sum[:])[:11]
}

// alias tells a later process whose path it is.
func (o Owner) alias() string {
	return aliasPrefix + o.Network + "/" + o.Container + "/" + o.Interface
}

// ownerOf reads an alias.
func ownerOf(alias string) (o Owner, ok bool) {
	rest, ok := strings.CutPrefix(alias, aliasPrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return Owner{}, false
	}
	return Owner{Network: parts[0], Container: parts[1], Interface: parts[2]}, true
}

// plan is what a path consists of beside the veth and the packet filter.
type plan struct{ guest, pod side }

// side is a namespace's part of it.
type side struct {
	link       string
	sysctls    []sysctl
	addresses  []netip.Prefix
	neighbours []neighbour
	routes     []route
	rules      []bool // a rule for marked packets: true of IPv6, false of IPv4
}

// sysctl is one file below /proc/sys/net.
type sysctl struct{ file, value string }

type neighbour struct {
	addr netip.Addr
	mac  net.HardwareAddr
}

type route struct {
	to    netip.Prefix
	via   netip.Addr // zero: on the link
	from  netip.Addr // zero: the kernel's choice
	table int        // 0: main
}

// plan decides what is to be there. Of each family the pod's first address is the
// source of what it sends; a range of a family that it has no address of is left
// out.
func (p Path) plan(ends Ends) plan {
	guest, pod := side{link: ends.Guest.Name}, side{link: ends.Pod.Name}
	for _, v6 := range []bool{false, true} {
		first := netip.Addr{}
		for _, a := range p.Addresses {
			if a.Is6() != v6 {
				continue
			}
			if !first.IsValid() {
				first = a
			}
			guest.neighbours = append(guest.neighbours, neighbour{a, ends.Pod.MAC})
			guest.routes = append(guest.routes, route{to: netip.PrefixFrom(a, a.BitLen())})
		}
		if first.IsValid() {
			guest.sysctls = append(guest.sysctls, guestSysctls(ends.Guest.Name, v6)...)
			pod.sysctls = append(pod.sysctls, podSysctls(v6)...)
			pod.add(first, p.Ranges, ends.Guest.MAC)
		}
	}
	return plan{guest, pod}
}

// add is the pod's part for one family.
func (s *side) add(from netip.Addr, ranges []netip.Prefix, guest net.HardwareAddr) {
	via := nextHop(from)
	s.neighbours = append(s.neighbours, neighbour{via, guest})
	for _, r := range ranges {
		if r.Addr().Is4() == from.Is4() {
			s.routes = append(s.routes, route{to: r, via: via, from: from})
		}
	}
	all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	if from.Is4() {
		all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		s.addresses = append(s.addresses, podLocal)
	}
	s.routes = append(s.routes, route{to: all, via: via, table: answers})
	s.rules = append(s.rules, from.Is6())
}

// guestSysctls also switch off redirects to the pod, which a connection to its
// own service would bring about: the kernel sends them when either value says so,
// so that the other interfaces, which have their own, go on as before.
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

// podSysctls lets svc0 receive from where the pod would answer by its own NIC.
// IPv6 has no such check.
func podSysctls(v6 bool) []sysctl {
	if v6 {
		return []sysctl{{"ipv6/conf/" + podEnd + "/disable_ipv6", "0"}}
	}
	return []sysctl{{"ipv4/conf/" + podEnd + "/rp_filter", "2"}}
}
