package networkpolicy

import (
	"maps"
	"net/netip"
	"slices"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/hostd/attachment"
)

// A policy client learns from the daemon which addresses the pods here have: the status of a
// pod is what its node has written.

// tellOwner has the client of a port's tenant told of the NICs of the port's pod.
func (p *Policies) tellOwner(port podPort) {
	if t := p.tenants[port.tenant]; t != nil && port.podUID != "" && port.podUID != attachment.NoPod {
		t.tell(func(s *Session) { s.owners[port.podUID] = true })
	}
}

func (t *tenant) tellRanges() { t.tell(func(s *Session) { s.ranges = true }) }

// NodesChanged says that Nodes returns others for a tenant.
func (p *Policies) NodesChanged(tenant string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tenants[tenant]; t != nil {
		t.tellRanges()
	}
}

// TakeOwnership returns what the client has to be told since the last call, nil for nothing.
func (p *Policies) TakeOwnership(s *Session) *hostdpb.Ownership {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owners) == 0 && !s.ranges {
		return nil
	}
	told := &hostdpb.Ownership{}
	if s.ranges && p.tenants[s.Tenant] != nil {
		told.Ranges, told.Memory = p.rangesOf(s.Tenant), uint64(policylimit.StreamMemory(len(p.tenants)))
	}
	addresses, nodes := map[string][]string{}, map[string]string{}
	for _, iface := range slices.Sorted(maps.Keys(p.ports)) {
		if port := p.ports[iface]; port.tenant == s.Tenant && s.owners[port.podUID] {
			nodes[port.podUID] = port.node
			for _, a := range port.addresses {
				addresses[port.podUID] = append(addresses[port.podUID], a.String())
			}
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(s.owners)) {
		told.Pods = append(told.Pods, &hostdpb.AttachedPod{Uid: uid, Addresses: addresses[uid], Node: nodes[uid]})
	}
	s.owners, s.ranges = map[string]bool{}, false
	return told
}

// StreamMemory returns how much memory a stream may take that begins now.
func (p *Policies) StreamMemory() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return policylimit.StreamMemory(len(p.tenants))
}

// rangesOf returns where the status of a pod or a node may name addresses: where the operator
// says, and the addresses that the guests have by the configuration.
func (p *Policies) rangesOf(tenant string) *hostdpb.AddressRanges {
	r := &hostdpb.AddressRanges{}
	t := p.tenants[tenant]
	for _, prefix := range t.podRanges {
		r.Pods = append(r.Pods, prefix.String())
	}
	for _, prefix := range t.nodeRanges {
		r.Nodes = append(r.Nodes, prefix.String())
	}
	if p.Nodes != nil {
		for _, a := range p.Nodes(tenant) {
			r.Nodes = append(r.Nodes, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	return r
}
