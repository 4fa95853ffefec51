package networkpolicy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/hostapi/policylimit"
)

// policy is a policy, with what has followed from the latest snapshot.
type policy struct {
	name, namespace                 string
	targets                         labels.Selector
	isolatesIngress, isolatesEgress bool
	ingress, egress                 []*rule
	errs                            []error
	wide                            int // selectors that may select every namespace

	within  *namespace // whose pods are selected
	pods    []*pod
	counted int // the generation of the snapshot from which matched follows
	matched int
	found   int    // the one from which peers, allow and size follow
	allow   []Rule // of egress
	fresh   bool   // allow follows from the rules' peers
	size    policylimit.Size
	refused bool
}

type rule struct {
	ports     []networkingv1.NetworkPolicyPort
	named     bool // one of the ports has a name
	services  []Service
	everyone  bool
	blocks    []iprange.Range
	selectors []*selector

	from  []*namespace // in which peers were looked for
	peers []iprange.Range
	pods  []*pod // among the peers, those that are selected as pods
}

// selector selects peers.
type selector struct {
	pods       labels.Selector
	namespaces labels.Selector // nil: the policy's own
	name       string          // of the only namespace that it may select, "": any

	labels  *map[string]labels.Set // of the namespaces when matched was found
	matched []string
}

func compile(object *networkingv1.NetworkPolicy) *policy {
	p := &policy{name: object.Name, namespace: object.Namespace}
	p.targets = p.selector(&object.Spec.PodSelector)
	p.isolatesIngress, p.isolatesEgress = directions(object.Spec)
	if p.isolatesIngress {
		for _, r := range object.Spec.Ingress {
			p.ingress = append(p.ingress, p.rule(r.From, r.Ports))
		}
	}
	if p.isolatesEgress {
		for _, r := range object.Spec.Egress {
			p.egress = append(p.egress, p.rule(r.To, r.Ports))
		}
	}
	return p
}

// directions returns those in which a policy isolates.
func directions(s networkingv1.NetworkPolicySpec) (ingress, egress bool) {
	if len(s.PolicyTypes) == 0 { // the API server fills them in
		return true, len(s.Egress) > 0
	}
	return slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeIngress), slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeEgress)
}

func (p *policy) fail(err error) {
	p.errs = append(p.errs, fmt.Errorf("policy %s/%s: %w", p.namespace, p.name, err))
}

// selector returns what a selector selects; nil selects all.
func (p *policy) selector(s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	compiled, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		p.fail(err)
		return labels.Nothing()
	}
	return compiled
}

func (p *policy) rule(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) *rule {
	r := &rule{ports: ports, named: slices.ContainsFunc(ports, named), everyone: len(peers) == 0}
	if !r.named {
		r.services = resolve(ports, &pod{})
	}
	seen := map[string]bool{}
	for _, peer := range peers {
		if peer.IPBlock != nil {
			block, err := parseBlock(*peer.IPBlock)
			if err != nil {
				p.fail(err)
			}
			r.blocks = append(r.blocks, block...)
			continue
		}
		if text, err := json.Marshal(peer); err == nil && seen[string(text)] {
			continue // once more the same
		} else if err == nil {
			seen[string(text)] = true
		}
		s := &selector{pods: p.selector(peer.PodSelector)}
		if peer.NamespaceSelector != nil {
			s.namespaces = p.selector(peer.NamespaceSelector)
			if s.name, _ = s.namespaces.RequiresExactMatch(corev1.LabelMetadataName); s.name == "" {
				p.wide++
			}
		}
		r.selectors = append(r.selectors, s)
	}
	r.blocks = iprange.Union(r.blocks)
	return r
}

func (p *policy) rules() []*rule { return slices.Concat(p.ingress, p.egress) }

// pairs returns how many pairs of a selector and a namespace matches looks at.
func (p *policy) pairs(s *snapshot) int { return p.wide * len(s.namespaces) }

// matches returns how many pairs of a selector or a port's name and a pod there are to look at, with pairs.
func (p *policy) matches(s *snapshot) int {
	if p.counted == s.generation {
		return p.matched
	}
	targets := len(s.podsOf(p.namespace))
	n := p.pairs(s) + targets
	for i, r := range p.rules() {
		if r.named && i < len(p.ingress) {
			n += targets * len(r.ports)
		} else if r.named && r.everyone {
			n += s.pods * len(r.ports)
		}
		for _, selector := range r.selectors {
			for _, in := range selector.in(s, p.namespace) {
				n += len(in.pods)
			}
		}
	}
	p.counted, p.matched = s.generation, n
	return n
}

// in returns the namespaces that a selector of a policy selects.
func (s *selector) in(now *snapshot, own string) (all []*namespace) {
	if s.namespaces == nil {
		if n := now.byName[own]; n != nil {
			all = append(all, n)
		}
		return all
	}
	if s.labels != now.labels {
		s.labels, s.matched = now.labels, nil
		candidates := now.namespaces
		if s.name != "" {
			candidates = []*namespace{now.byName[s.name]}
		}
		for _, n := range candidates {
			if n != nil && n.exists && s.namespaces.Matches(n.labels) {
				s.matched = append(s.matched, n.name)
			}
		}
	}
	for _, name := range s.matched {
		all = append(all, now.byName[name])
	}
	return all
}

// find finds the pods that the policy selects, and the peers of its rules unless it is refused.
func (p *policy) find(s *snapshot, refused bool) {
	if own := s.byName[p.namespace]; own != p.within {
		p.within, p.pods = own, nil
		if own != nil {
			p.pods = slices.DeleteFunc(slices.Clone(own.pods), func(t *pod) bool { return !p.targets.Matches(t.labels) })
		}
	}
	if p.refused = refused; refused || p.found == s.generation {
		return
	}
	p.found = s.generation
	for _, r := range p.rules() {
		if r.find(s, p.namespace) {
			p.fresh = false
		}
	}
	if !p.fresh {
		p.allow, p.fresh = nil, true
		for _, r := range p.egress {
			p.allow = append(p.allow, r.egress()...)
		}
	}
	p.size = p.sizeNow()
}

// find finds the peers of the rule, and reports whether they have changed.
func (r *rule) find(s *snapshot, own string) bool {
	if r.everyone {
		if r.named && !slices.Equal(r.from, s.namespaces) {
			r.from, r.pods, r.peers = s.namespaces, nil, everyone
			for _, n := range s.namespaces {
				r.pods = append(r.pods, n.pods...)
			}
			return true
		}
		first := r.peers == nil
		r.peers = everyone
		return first
	}
	var from []*namespace
	for _, selector := range r.selectors {
		from = append(from, selector.in(s, own)...)
	}
	if r.peers != nil && slices.Equal(from, r.from) {
		return false
	}
	r.from, r.pods, r.peers = from, nil, slices.Clone(r.blocks)
	found := map[*pod]bool{}
	for _, selector := range r.selectors {
		for _, n := range selector.in(s, own) {
			for _, p := range n.pods {
				if !found[p] && selector.pods.Matches(p.labels) {
					found[p] = true
					r.pods, r.peers = append(r.pods, p), append(r.peers, p.addresses...)
				}
			}
		}
	}
	r.peers = append([]iprange.Range{}, iprange.Union(r.peers)...) // nil: not found yet
	return true
}

// sizeNow returns the size of the rules of the pods.
func (p *policy) sizeNow() (s policylimit.Size) {
	for _, r := range p.ingress {
		if !r.named {
			s.Add(len(p.pods), len(r.peers), len(r.services))
			continue
		}
		for _, target := range p.pods {
			s.Add(1, len(r.peers), len(resolve(r.ports, target)))
		}
	}
	for _, r := range p.allow {
		s.Add(len(p.pods), len(r.Peers), len(r.Services))
	}
	return s
}

// add adds the rules to those of the pods, or, if the policy is refused, isolates the pods only.
func (p *policy) add(all map[types.NamespacedName]Rules, refused bool) {
	for _, target := range p.pods {
		rules := all[target.name]
		if p.isolatesIngress {
			rules.Ingress = isolate(rules.Ingress, target)
		}
		if p.isolatesEgress {
			rules.Egress = isolate(rules.Egress, target)
		}
		all[target.name] = rules
		if refused {
			continue
		}
		for _, r := range p.ingress {
			services := r.services
			if r.named {
				services = resolve(r.ports, target)
			}
			if len(r.peers) > 0 && (len(r.ports) == 0 || len(services) > 0) {
				rules.Ingress.Allow = append(rules.Ingress.Allow, Rule{r.peers, services})
			}
		}
		if p.isolatesEgress {
			rules.Egress.Allow = append(rules.Egress.Allow, p.allow...)
		}
	}
}

// isolate returns a direction of a pod, isolated. The pod's node is always a peer.
func isolate(d *Direction, p *pod) *Direction {
	switch {
	case d != nil:
		return d
	case len(p.node) > 0:
		return &Direction{Allow: []Rule{{Peers: p.node}}}
	}
	return &Direction{}
}

// egress translates a rule. A named port is that of each peer, so the peers that have the
// same numbers share a rule.
func (r *rule) egress() (allow []Rule) {
	if len(r.peers) == 0 {
		return nil
	}
	if len(r.ports) == 0 {
		return []Rule{{Peers: r.peers}}
	}
	var numbers, names []networkingv1.NetworkPolicyPort
	for _, p := range r.ports {
		if named(p) {
			names = append(names, p)
		} else {
			numbers = append(numbers, p)
		}
	}
	if services := resolve(numbers, &pod{}); len(services) > 0 {
		allow = append(allow, Rule{r.peers, services})
	}
	return append(allow, byNames(names, r.pods)...)
}

func byNames(names []networkingv1.NetworkPolicyPort, pods []*pod) (allow []Rule) {
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
		allow = append(allow, Rule{iprange.Union(rule.Peers), rule.Services})
	}
	return allow
}
