package networkpolicy

import (
	"net/netip"
	"slices"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/netdev/isolation"
)

// serviceAddress is the address of a pod's connections to services, next to the first address
// of its family that the pod has; none: the zero Addr.
type serviceAddress struct{ pod, service netip.Addr }

// services are service addresses, with the peers that became others by them, which rules
// share as before.
type services struct {
	all   []serviceAddress
	peers map[*iprange.Range][]iprange.Range
}

func newServices(all []serviceAddress) services {
	return services{all, map[*iprange.Range][]iprange.Range{}}
}

// with returns d with the service addresses of those pods as peers that are peers, and of no
// others.
func (s services) with(d *isolation.Direction) *isolation.Direction {
	if d == nil || len(s.all) == 0 {
		return d
	}
	changed := &isolation.Direction{}
	for _, r := range d.Allow {
		if len(r.Peers) > 0 {
			first := &r.Peers[0]
			if s.peers[first] == nil {
				s.peers[first] = peersWith(r.Peers, s.all)
			}
			r.Peers = s.peers[first]
		}
		changed.Allow = append(changed.Allow, r)
	}
	return changed
}

// withPeers returns d with a rule that allows every connection with some addresses.
func withPeers(d *isolation.Direction, addresses []netip.Addr) *isolation.Direction {
	if d == nil || len(addresses) == 0 {
		return d
	}
	var peers []iprange.Range
	for _, a := range addresses {
		peers = append(peers, iprange.Range{First: a, Last: a})
	}
	return &isolation.Direction{Allow: append(slices.Clone(d.Allow), isolation.Rule{Peers: iprange.Union(peers)})}
}

// peersWith returns peers so that a service address is one if and only if its pod's address
// is. It returns the same slice if nothing changes.
func peersWith(peers []iprange.Range, all []serviceAddress) []iprange.Range {
	var more, fewer []iprange.Range
	for _, a := range all {
		service := iprange.Range{First: a.service, Last: a.service}
		switch is, want := iprange.Contains(peers, a.service), iprange.Contains(peers, a.pod); {
		case want && !is:
			more = append(more, service)
		case is && !want:
			fewer = append(fewer, service)
		}
	}
	if len(more)+len(fewer) == 0 {
		return peers
	}
	return iprange.Union(append(iprange.Subtract(peers, iprange.Union(fewer)), more...))
}
