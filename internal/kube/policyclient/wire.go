package policyclient

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"google.golang.org/protobuf/proto"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/kube/networkpolicy"
)

const (
	messageSize = 48 << 10 // from which the rules of a pod go on in another message
)

// requests returns what sets the policy of a pod.
func requests(name string, p podState) (all []*hostdpb.ApplyRequest) {
	r := p.rules
	first := &hostdpb.PodPolicy{Pod: name, Uid: string(p.uid), Node: p.node, Ingress: direction(r.Ingress), Egress: direction(r.Egress)}
	for _, a := range p.addresses {
		first.Addresses = append(first.Addresses, a.String())
	}
	all = []*hostdpb.ApplyRequest{{Pod: first}}
	message, size := first, proto.Size(first)
	add := func(rule *hostdpb.PolicyRule, to func(*hostdpb.PodPolicy) *hostdpb.PolicyDirection) {
		if size += proto.Size(rule) + 8; size > messageSize {
			message, size = &hostdpb.PodPolicy{Pod: name, Ingress: direction(r.Ingress), Egress: direction(r.Egress)}, proto.Size(rule)
			all = append(all, &hostdpb.ApplyRequest{More: message})
		}
		d := to(message)
		d.Allow = append(d.Allow, rule)
	}
	for _, rule := range rules(r.Ingress) {
		add(rule, (*hostdpb.PodPolicy).GetIngress)
	}
	for _, rule := range rules(r.Egress) {
		add(rule, (*hostdpb.PodPolicy).GetEgress)
	}
	return all
}

// direction returns a direction that is isolated as d is, without rules.
func direction(d *networkpolicy.Direction) *hostdpb.PolicyDirection {
	if d == nil {
		return nil
	}
	return &hostdpb.PolicyDirection{}
}

// rules returns the rules of a direction, each small enough for a message.
func rules(d *networkpolicy.Direction) (all []*hostdpb.PolicyRule) {
	if d == nil {
		return nil
	}
	for _, r := range d.Allow {
		var services []*hostdpb.PolicyService
		for _, s := range r.Services {
			services = append(services, &hostdpb.PolicyService{Protocol: protocols[s.Protocol], First: uint32(s.First), Last: uint32(s.Last)})
		}
		parts := slices.Collect(slices.Chunk(services, policylimit.RuleServices))
		if len(services) == 0 {
			parts = append(parts, nil)
		}
		for chunk := range slices.Chunk(r.Peers, policylimit.RulePeers) {
			var peers []string
			for _, p := range chunk {
				peers = append(peers, p.String())
			}
			for _, part := range parts {
				all = append(all, &hostdpb.PolicyRule{Peers: peers, Services: part})
			}
		}
	}
	return all
}

var protocols = map[corev1.Protocol]hostdpb.Protocol{
	corev1.ProtocolTCP:  hostdpb.Protocol_PROTOCOL_TCP,
	corev1.ProtocolUDP:  hostdpb.Protocol_PROTOCOL_UDP,
	corev1.ProtocolSCTP: hostdpb.Protocol_PROTOCOL_SCTP,
}
