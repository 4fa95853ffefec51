package networkpolicy

import (
	"net/netip"
	"slices"

	"unnest/internal/netdev/isolation"
)

// serviceAddress is the address of a pod's connections to services, next to the first address
// of its family that the pod has; none: the zero Addr.
type serviceAddress struct{ pod, service netip.Addr }

// withServices returns d with the service addresses of those pods as peers that are peers, and
// of no others.
func withServices(d *isolation.Direction, all []serviceAddress) *isolation.Direction {
	if d == nil || len(all) == 0 {
		return d
	}
	changed := &isolation.Direction{}
	for _, r := range d.Allow {
		r.Peers = peersWith(r.Peers, all)
		changed.Allow = append(changed.Allow, r)
	}
	return changed
}

// withPeers returns d with a rule that allows every connection with some addresses.
func withPeers(d *isolation.Direction, addresses []netip.Addr) *isolation.Direction {
	if d == nil || len(addresses) == 0 {
		return d
	}
	var peers []netip.Prefix
	for _, a := range addresses {
		peers = append(peers, netip.PrefixFrom(a, a.BitLen()))
	}
	return &isolation.Direction{Allow: append(slices.Clone(d.Allow), isolation.Rule{Peers: peers})}
}

// peersWith returns peers, none of which overlaps another, so that a service address is one if
// and only if its pod's address is.
func peersWith(peers []netip.Prefix, all []serviceAddress) []netip.Prefix {
	hosts, networks := map[netip.Addr]bool{}, []netip.Prefix(nil)
	for _, p := range peers {
		if p.IsSingleIP() {
			hosts[p.Addr()] = true
		} else {
			networks = append(networks, p)
		}
	}
	within := func(a netip.Addr) bool {
		return hosts[a] || slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	changed := slices.Clone(peers)
	for _, a := range all {
		switch is, want := within(a.service), within(a.pod); {
		case want && !is:
			changed = append(changed, netip.PrefixFrom(a.service, a.service.BitLen()))
		case is && !want:
			changed = without(changed, a.service)
		}
	}
	return changed
}

// without returns the addresses of peers except one.
func without(peers []netip.Prefix, except netip.Addr) (left []netip.Prefix) {
	for _, p := range peers {
		if !p.Contains(except) {
			left = append(left, p)
			continue
		}
		for bits := p.Bits() + 1; bits <= except.BitLen(); bits++ {
			sibling := except.AsSlice()
			sibling[(bits-1)/8] ^= 0x80 >> ((bits - 1) % 8)
			a, _ := netip.AddrFromSlice(sibling)
			left = append(left, netip.PrefixFrom(a, bits).Masked())
		}
	}
	return left
}
