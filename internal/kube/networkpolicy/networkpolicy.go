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
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Cluster is what the rules follow from.
type Cluster struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
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
	Peers    []netip.Prefix // sorted; none overlaps another
	Services []Service      // none: every protocol and port
}

// Service is a range of ports of the connection's destination.
type Service struct {
	Protocol    corev1.Protocol
	First, Last uint16
}

// Translate returns the rules of every pod that runs or is about to, except pods of the
// host's network. The error names the parts of policies that are invalid: a selector of
// pods then isolates none, a peer allows none.
func Translate(c Cluster) (map[types.NamespacedName]Rules, error) {
	t := newTranslation(c)
	all := map[types.NamespacedName]Rules{}
	for _, p := range t.pods {
		all[p.name] = Rules{}
	}
	for _, policy := range c.Policies {
		t.at = policy.Namespace + "/" + policy.Name
		targets := t.selected(policy.Namespace, &policy.Spec.PodSelector)
		ingress, egress := directions(policy.Spec)
		if ingress {
			t.addIngress(all, targets, policy)
		}
		if egress {
			t.addEgress(all, targets, policy)
		}
	}
	return all, errors.Join(t.errs...)
}

// directions returns those in which a policy isolates.
func directions(s networkingv1.NetworkPolicySpec) (ingress, egress bool) {
	if len(s.PolicyTypes) == 0 { // the API server fills them in
		return true, len(s.Egress) > 0
	}
	return slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeIngress), slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// pod is a pod with an address of its own, or without address yet.
type pod struct {
	*corev1.Pod
	name      types.NamespacedName
	addresses []netip.Prefix
	node      []netip.Prefix
}

type translation struct {
	pods       []pod
	namespaces map[string]labels.Set
	at         string // the policy under way
	errs       []error
}

func newTranslation(c Cluster) *translation {
	t := &translation{namespaces: map[string]labels.Set{}}
	for _, n := range c.Namespaces {
		t.namespaces[n.Name] = n.Labels
	}
	for _, p := range c.Pods {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !ended && !p.Spec.HostNetwork { // the address of a pod that has ended may be another's
			t.pods = append(t.pods, pod{p, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, podAddresses(p), nodeAddresses(p)})
		}
	}
	return t
}

func (t *translation) fail(err error) {
	t.errs = append(t.errs, fmt.Errorf("policy %s: %w", t.at, err))
}

// podAddresses returns the addresses of a pod, each as a prefix.
func podAddresses(p *corev1.Pod) []netip.Prefix {
	texts := []string{p.Status.PodIP}
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	return hosts(texts)
}

// nodeAddresses returns the addresses of a pod's node, whose probes of the pod the API
// promises.
func nodeAddresses(p *corev1.Pod) []netip.Prefix {
	texts := []string{p.Status.HostIP}
	for _, ip := range p.Status.HostIPs {
		texts = append(texts, ip.IP)
	}
	return hosts(texts)
}

func hosts(texts []string) (all []netip.Prefix) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			a = a.Unmap().WithZone("")
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return disjoint(all)
}

// selected returns the pods of a namespace that a selector selects.
func (t *translation) selected(namespace string, s *metav1.LabelSelector) []pod {
	return t.matching(func(n string) bool { return n == namespace }, s)
}

// matching returns the pods of some namespaces that a selector selects; nil selects all.
func (t *translation) matching(namespace func(string) bool, s *metav1.LabelSelector) (found []pod) {
	matches := t.selector(s)
	for _, p := range t.pods {
		if namespace(p.Namespace) && matches(p.Labels) {
			found = append(found, p)
		}
	}
	return found
}

func (t *translation) selector(s *metav1.LabelSelector) func(map[string]string) bool {
	if s == nil {
		return func(map[string]string) bool { return true }
	}
	compiled, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.fail(err)
		compiled = labels.Nothing()
	}
	return func(l map[string]string) bool { return compiled.Matches(labels.Set(l)) }
}

// isolate returns a direction of a pod, isolated. The pod's node is always a peer.
func isolate(d *Direction, p pod) *Direction {
	switch {
	case d != nil:
		return d
	case len(p.node) > 0:
		return &Direction{Allow: []Rule{{Peers: p.node}}}
	}
	return &Direction{}
}

func (t *translation) addIngress(all map[types.NamespacedName]Rules, targets []pod, policy *networkingv1.NetworkPolicy) {
	var peers [][]netip.Prefix
	for _, r := range policy.Spec.Ingress {
		prefixes, _ := t.peers(policy.Namespace, r.From)
		peers = append(peers, prefixes)
	}
	for _, target := range targets {
		rules := all[target.name]
		rules.Ingress = isolate(rules.Ingress, target)
		for i, r := range policy.Spec.Ingress {
			services := resolve(r.Ports, target)
			if len(peers[i]) > 0 && (len(r.Ports) == 0 || len(services) > 0) {
				rules.Ingress.Allow = append(rules.Ingress.Allow, Rule{peers[i], services})
			}
		}
		all[target.name] = rules
	}
}

func (t *translation) addEgress(all map[types.NamespacedName]Rules, targets []pod, policy *networkingv1.NetworkPolicy) {
	var allow []Rule
	for _, r := range policy.Spec.Egress {
		allow = append(allow, t.egress(policy.Namespace, r)...)
	}
	for _, target := range targets {
		rules := all[target.name]
		rules.Egress = isolate(rules.Egress, target)
		rules.Egress.Allow = append(rules.Egress.Allow, allow...)
		all[target.name] = rules
	}
}

// egress translates a rule. A named port is that of each peer, so the peers that have the
// same numbers share a rule.
func (t *translation) egress(namespace string, r networkingv1.NetworkPolicyEgressRule) (allow []Rule) {
	peers, pods := t.peers(namespace, r.To)
	if len(peers) == 0 {
		return nil
	}
	if len(r.Ports) == 0 {
		return []Rule{{Peers: peers}}
	}
	var numbers, names []networkingv1.NetworkPolicyPort
	for _, p := range r.Ports {
		if named(p) {
			names = append(names, p)
		} else {
			numbers = append(numbers, p)
		}
	}
	if services := resolve(numbers, pod{}); len(services) > 0 {
		allow = append(allow, Rule{peers, services})
	}
	return append(allow, byNames(names, pods)...)
}

func byNames(names []networkingv1.NetworkPolicyPort, pods []pod) (allow []Rule) {
	byServices := map[string]*Rule{}
	for _, p := range pods {
		services := resolve(names, p)
		if len(services) == 0 || len(p.addresses) == 0 {
			continue
		}
		key := fmt.Sprint(services)
		if byServices[key] == nil {
			byServices[key] = &Rule{Services: services}
		}
		byServices[key].Peers = append(byServices[key].Peers, p.addresses...)
	}
	for _, key := range slices.Sorted(maps.Keys(byServices)) {
		rule := byServices[key]
		allow = append(allow, Rule{disjoint(rule.Peers), rule.Services})
	}
	return allow
}

// peers returns the addresses that a rule selects, and the pods among them that it selects
// as pods.
func (t *translation) peers(namespace string, all []networkingv1.NetworkPolicyPeer) (prefixes []netip.Prefix, pods []pod) {
	if len(all) == 0 {
		return everyone, t.pods
	}
	for _, peer := range all {
		if peer.IPBlock != nil {
			block, err := parseBlock(*peer.IPBlock)
			if err != nil {
				t.fail(err)
			}
			prefixes = append(prefixes, block...)
			continue
		}
		pods = append(pods, t.peerPods(namespace, peer)...)
	}
	for _, p := range pods {
		prefixes = append(prefixes, p.addresses...)
	}
	return disjoint(prefixes), pods
}

func (t *translation) peerPods(namespace string, peer networkingv1.NetworkPolicyPeer) []pod {
	if peer.NamespaceSelector == nil {
		return t.selected(namespace, peer.PodSelector)
	}
	matches := t.selector(peer.NamespaceSelector)
	in := map[string]bool{}
	for name, l := range t.namespaces {
		in[name] = matches(l)
	}
	return t.matching(func(n string) bool { return in[n] }, peer.PodSelector)
}
