// Package networkpolicy translates Kubernetes network policies (networking.k8s.io/v1) into
// the connections that each pod may have, by addresses, protocols and ports.
//
// Where the API leaves a choice: pods of the host's network have no policy, and only
// ipBlock selects them as peers; ipBlock also selects addresses of pods; a rule with ports
// allows no ICMP, a rule without allows every protocol.
//
// Watching the API server, and filtering packets, do not belong here.
package networkpolicy

import (
	"cmp"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/hostapi/policylimit"
)

// Cluster is what the rules follow from.
type Cluster struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
	Addresses  Addresses
	Memory     int // what the rules may take, in bytes: policylimit.StreamMemory of the daemon. 0: policylimit.MaxStreamMemory
}

// Rules are the connections that a pod may have. Answers are part of a connection.
type Rules struct {
	Ingress, Egress *Direction
}

// Direction is the isolation of a pod in one direction. nil: it may have every connection.
type Direction struct {
	Allow []Rule // connections that match one of them
}

// Rule matches the connections with one of the peers over one of the services.
type Rule struct {
	Peers    []iprange.Range // as iprange.Union returns them
	Services []Service       // none: every protocol and port
}

// Service is a range of ports of the connection's destination.
type Service struct {
	Protocol    corev1.Protocol
	First, Last uint16
}

// Translation is the rules of every pod that runs or is about to, except pods of the
// host's network.
type Translation struct {
	Rules map[types.NamespacedName]Rules
	// Refused are namespaces whose policies are too large, see package policylimit. They allow
	// nothing. If a namespace has too many policies for its pods, they isolate all of them.
	Refused []string
	// Invalid names the parts of policies that are invalid: a selector of pods then isolates
	// none, a peer allows none.
	Invalid error
}

// Translator translates the policies of a cluster that changes. It computes again only what
// follows from a change. The zero value is ready.
type Translator struct {
	snapshot snapshot
	compiled map[*networkingv1.NetworkPolicy]*policy
}

// Translate translates a cluster. Objects that have not changed since the last call are the
// same, and nobody changes them.
func (t *Translator) Translate(c Cluster) (result Translation) {
	t.snapshot = t.snapshot.next(c)
	last := t.compiled
	t.compiled = map[*networkingv1.NetworkPolicy]*policy{}
	result.Rules = map[types.NamespacedName]Rules{}
	for _, n := range t.snapshot.namespaces {
		for _, p := range n.pods {
			result.Rules[p.name] = Rules{}
		}
	}
	var all []*policy
	var errs []error
	targets, pairs, matches := map[string]int{}, map[string]int{}, map[string]int{}
	for _, object := range c.Policies {
		p := last[object]
		if p == nil {
			p = compile(object)
		}
		t.compiled[object] = p
		all, errs = append(all, p), append(errs, p.errs...)
		targets[p.namespace] += len(t.snapshot.podsOf(p.namespace))
		pairs[p.namespace] += p.pairs(&t.snapshot)
	}
	closed := policylimit.Refuse(targets, policylimit.Matches) // before anybody looks at what is too much
	for _, name := range closed {
		for _, target := range t.snapshot.podsOf(name) {
			result.Rules[target.name] = Rules{isolate(nil, target), isolate(nil, target)}
		}
		delete(pairs, name)
	}
	all = slices.DeleteFunc(all, func(p *policy) bool { return slices.Contains(closed, p.namespace) })
	result.Refused = slices.Concat(closed, policylimit.Refuse(pairs, policylimit.Matches))
	for _, p := range all {
		if !slices.Contains(result.Refused, p.namespace) {
			matches[p.namespace] += p.matches(&t.snapshot)
		}
	}
	result.Refused = append(result.Refused, policylimit.Refuse(matches, policylimit.Matches)...)
	memory, peers := map[string]int{}, map[string]int{}
	for _, p := range all {
		if p.find(&t.snapshot, slices.Contains(result.Refused, p.namespace)); !p.refused {
			memory[p.namespace] += p.size.Memory
			peers[p.namespace] += p.size.Peers
		}
	}
	large := policylimit.Refuse(memory, cmp.Or(c.Memory, policylimit.MaxStreamMemory))
	for _, name := range large {
		delete(peers, name)
	}
	result.Refused = slices.Concat(result.Refused, large, policylimit.Refuse(peers, policylimit.StreamPeers))
	for _, p := range all {
		p.add(result.Rules, slices.Contains(result.Refused, p.namespace))
	}
	result.Invalid = errors.Join(errs...)
	return result
}
