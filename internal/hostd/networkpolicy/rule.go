package networkpolicy

import (
	"fmt"
	"math"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/netdev/isolation"
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

func parsePeers(texts []string) ([]iprange.Range, error) {
	var all []iprange.Range
	for _, text := range texts {
		r, err := iprange.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("peer: %w", err)
		}
		all = append(all, r)
	}
	return iprange.Union(all), nil
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
