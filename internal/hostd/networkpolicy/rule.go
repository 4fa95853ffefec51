package networkpolicy

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/netdev/isolation"
)

// parseRule checks a rule of a policy client.
func parseRule(m *hostdpb.PolicyRule) (r isolation.Rule, err error) {
	if r.Peers, err = parsePeers(m.GetPeers()); err != nil {
		return r, err
	}
	for _, s := range m.GetServices() {
		service, err := parseService(s)
		if err != nil {
			return r, err
		}
		r.Services = append(r.Services, service)
	}
	return r, nil
}

// parsePeers returns prefixes of which none overlaps another, as the packet filter needs
// them.
func parsePeers(texts []string) ([]netip.Prefix, error) {
	var all, kept []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Errorf("peer %.60q: want ADDRESS/PREFIX-LENGTH", text)
		}
		all = append(all, p.Masked())
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	for _, p := range all { // a prefix comes after those that contain it
		if n := len(kept); n == 0 || !kept[n-1].Overlaps(p) {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

func parseService(m *hostdpb.PolicyService) (isolation.Service, error) {
	first, last := m.GetFirst(), m.GetLast()
	switch {
	case first > last || last > math.MaxUint16:
		return isolation.Service{}, fmt.Errorf("ports %d to %d: want a range from 0 to %d", first, last, math.MaxUint16)
	case m.GetProtocol() != hostdpb.Protocol_PROTOCOL_TCP && m.GetProtocol() != hostdpb.Protocol_PROTOCOL_UDP && m.GetProtocol() != hostdpb.Protocol_PROTOCOL_SCTP:
		return isolation.Service{}, fmt.Errorf("protocol %d: want TCP, UDP or SCTP", m.GetProtocol())
	}
	return isolation.Service{Protocol: byte(m.GetProtocol()), First: uint16(first), Last: uint16(last)}, nil
}
