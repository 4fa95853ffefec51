package networkpolicy

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"unnest.io/unnest/internal/hostapi/iprange"
)

// connection is one that a pod has with a peer, in one direction.
type connection struct {
	pod     *corev1.Pod
	ingress bool
	peer    netip.Addr
	Service // one port
}

func (c connection) String() string {
	return fmt.Sprintf("%s/%s ingress %t, peer %s, %s %d", c.pod.Namespace, c.pod.Name, c.ingress, c.peer, c.Protocol, c.First)
}

// translated evaluates a connection by the rules.
func translated(rules map[types.NamespacedName]Rules, c connection) bool {
	r := rules[types.NamespacedName{Namespace: c.pod.Namespace, Name: c.pod.Name}]
	d := r.Egress
	if c.ingress {
		d = r.Ingress
	}
	return d == nil || slices.ContainsFunc(d.Allow, func(r Rule) bool {
		return slices.ContainsFunc(r.Peers, func(p iprange.Range) bool { return p.Contains(c.peer) }) &&
			(len(r.Services) == 0 || slices.ContainsFunc(r.Services, func(s Service) bool {
				return s.Protocol == c.Protocol && s.First <= c.First && c.First <= s.Last
			}))
	})
}

// specified evaluates a connection as the specification says, policy by policy.
func specified(cluster Cluster, c connection) bool {
	if slices.ContainsFunc(addresses(c.pod.Status.HostIP, c.pod.Status.HostIPs), func(a netip.Addr) bool { return a == c.peer }) {
		return true
	}
	isolated := false
	for _, policy := range cluster.Policies {
		s := policy.Spec
		applies := slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeEgress) || len(s.PolicyTypes) == 0 && len(s.Egress) > 0
		if c.ingress {
			applies = slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeIngress) || len(s.PolicyTypes) == 0
		}
		if !applies || policy.Namespace != c.pod.Namespace || !matches(&s.PodSelector, c.pod.Labels) {
			continue
		}
		isolated = true
		if c.ingress {
			for _, r := range s.Ingress {
				if peerMatches(cluster, policy.Namespace, r.From, c.peer) && portMatches(r.Ports, c.Service, c.pod) {
					return true
				}
			}
			continue
		}
		for _, r := range s.Egress {
			if egressMatches(cluster, policy.Namespace, r, c) {
				return true
			}
		}
	}
	return !isolated
}

// egressMatches tries every pod that the peer may be: a named port is that of a pod which
// the rule selects as a pod.
func egressMatches(cluster Cluster, namespace string, r networkingv1.NetworkPolicyEgressRule, c connection) bool {
	if peerMatches(cluster, namespace, r.To, c.peer) && portMatches(r.Ports, c.Service, nil) {
		return true
	}
	for _, p := range cluster.Pods {
		selected := len(r.To) == 0 || slices.ContainsFunc(r.To, func(to networkingv1.NetworkPolicyPeer) bool { return selects(cluster, namespace, to, p) })
		if is(p, c.peer) && selected && portMatches(r.Ports, c.Service, p) {
			return true
		}
	}
	return false
}

func peerMatches(cluster Cluster, namespace string, peers []networkingv1.NetworkPolicyPeer, address netip.Addr) bool {
	if len(peers) == 0 {
		return true
	}
	return slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if b := peer.IPBlock; b != nil {
			return netip.MustParsePrefix(b.CIDR).Contains(address) &&
				!slices.ContainsFunc(b.Except, func(e string) bool { return netip.MustParsePrefix(e).Contains(address) })
		}
		return slices.ContainsFunc(cluster.Pods, func(p *corev1.Pod) bool { return is(p, address) && selects(cluster, namespace, peer, p) })
	})
}

func selects(cluster Cluster, namespace string, peer networkingv1.NetworkPolicyPeer, p *corev1.Pod) bool {
	if peer.IPBlock != nil || peer.PodSelector != nil && !matches(peer.PodSelector, p.Labels) {
		return false
	}
	if peer.NamespaceSelector == nil {
		return p.Namespace == namespace
	}
	return slices.ContainsFunc(cluster.Namespaces, func(n *corev1.Namespace) bool {
		return n.Name == p.Namespace && matches(peer.NamespaceSelector, n.Labels)
	})
}

// is reports whether a pod with an address of its own has this one.
func is(p *corev1.Pod, address netip.Addr) bool {
	return !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning && slices.Contains(addresses(p.Status.PodIP, p.Status.PodIPs), address)
}

func addresses[T corev1.PodIP | corev1.HostIP](one string, more []T) (all []netip.Addr) {
	for _, ip := range more {
		all = append(all, netip.MustParseAddr(corev1.PodIP(ip).IP))
	}
	if one != "" {
		all = append(all, netip.MustParseAddr(one))
	}
	return all
}

func portMatches(ports []networkingv1.NetworkPolicyPort, s Service, destination *corev1.Pod) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		switch {
		case protocol != s.Protocol:
			return false
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			return destination != nil && slices.ContainsFunc(destination.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool {
				return c.Name == p.Port.StrVal && c.Protocol == protocol && c.ContainerPort == int32(s.First)
			})
		case p.EndPort != nil:
			return p.Port.IntVal <= int32(s.First) && int32(s.First) <= *p.EndPort
		}
		return p.Port.IntVal == int32(s.First)
	})
}

// matches knows the operators that the generator uses.
func matches(s *metav1.LabelSelector, l map[string]string) bool {
	for k, v := range s.MatchLabels {
		if l[k] != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, has := l[e.Key]
		switch e.Operator {
		case metav1.LabelSelectorOpExists:
			if !has {
				return false
			}
		case metav1.LabelSelectorOpNotIn:
			if has && slices.Contains(e.Values, value) {
				return false
			}
		}
	}
	return true
}

var (
	universe  = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.130", "fd00::1", "fd00::2", "fd00::8001", "192.0.2.1", "192.0.2.2", "2001:db8::1"}
	blocks    = []string{"0.0.0.0/0", "::/0", "10.0.0.0/24", "10.0.0.0/25", "10.0.0.2/31", "10.0.0.3/32", "fd00::/64", "fd00::/113", "fd00::2/128", "192.0.2.0/24"}
	protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	numbers   = []int32{0, 79, 80, 81, 90, 443, 65535}
)

func drawLabels(t *rapid.T) map[string]string {
	l := map[string]string{}
	for _, k := range []string{"app", "tier"} {
		if v := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, k); v != "" {
			l[k] = v
		}
	}
	return l
}

func drawSelector(t *rapid.T) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: drawLabels(t)}
	switch rapid.IntRange(0, 5).Draw(t, "expression") {
	case 0:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}
	case 1:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}}}
	}
	return s
}

func drawPod(t *rapid.T) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: drawLabels(t)}}
	p.Spec.HostNetwork = rapid.IntRange(0, 7).Draw(t, "host network") == 0
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded}).Draw(t, "phase")
	for _, a := range rapid.SliceOfNDistinct(rapid.SampledFrom(universe), 0, 2, rapid.ID).Draw(t, "addresses") {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
	p.Status.HostIP = rapid.SampledFrom([]string{"", "192.0.2.1", "192.0.2.2"}).Draw(t, "node")
	c := corev1.Container{}
	for range rapid.IntRange(0, 2).Draw(t, "container ports") {
		c.Ports = append(c.Ports, corev1.ContainerPort{
			Name: rapid.SampledFrom([]string{"web", "dns"}).Draw(t, "name"), Protocol: rapid.SampledFrom(protocols).Draw(t, "protocol"),
			ContainerPort: rapid.SampledFrom(numbers[1:]).Draw(t, "number"),
		})
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}

func drawPeers(t *rapid.T) (all []networkingv1.NetworkPolicyPeer) {
	for range rapid.IntRange(0, 2).Draw(t, "peers") {
		var p networkingv1.NetworkPolicyPeer
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			p.PodSelector = drawSelector(t)
		case 1:
			p.NamespaceSelector = drawSelector(t)
		case 2:
			p.PodSelector, p.NamespaceSelector = drawSelector(t), drawSelector(t)
		case 3:
			p.IPBlock = &networkingv1.IPBlock{CIDR: rapid.SampledFrom(blocks).Draw(t, "block"), Except: rapid.SliceOfN(rapid.SampledFrom(blocks), 0, 2).Draw(t, "except")}
		}
		all = append(all, p)
	}
	return all
}

func drawPorts(t *rapid.T) (all []networkingv1.NetworkPolicyPort) {
	for range rapid.IntRange(0, 2).Draw(t, "ports") {
		var p networkingv1.NetworkPolicyPort
		if rapid.Bool().Draw(t, "with protocol") {
			protocol := rapid.SampledFrom(protocols).Draw(t, "protocol")
			p.Protocol = &protocol
		}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			p.Port = new(intstr.FromInt32(rapid.SampledFrom(numbers).Draw(t, "port")))
		case 1:
			first := rapid.SampledFrom(numbers).Draw(t, "first")
			p.Port, p.EndPort = new(intstr.FromInt32(first)), new(rapid.Int32Range(first, 65535).Draw(t, "last"))
		case 2:
			p.Port = new(intstr.FromString(rapid.SampledFrom([]string{"web", "dns"}).Draw(t, "name")))
		}
		all = append(all, p)
	}
	return all
}

func drawPolicy(t *rapid.T) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{}
	p.Spec.PodSelector = *drawSelector(t)
	p.Spec.PolicyTypes = rapid.SliceOfDistinct(rapid.SampledFrom([]networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}), rapid.ID).Draw(t, "types")
	for range rapid.IntRange(0, 2).Draw(t, "ingress") {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: drawPeers(t), Ports: drawPorts(t)})
	}
	for range rapid.IntRange(0, 2).Draw(t, "egress") {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: drawPeers(t), Ports: drawPorts(t)})
	}
	return p
}

func drawCluster(t *rapid.T) (c Cluster) {
	c.Addresses = Addresses{Pods: anywhere, Nodes: anywhere}
	names := []string{"x", "y"}
	for _, n := range names {
		c.Namespaces = append(c.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: drawLabels(t)}})
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "pods") {
		p := drawPod(t)
		p.Name, p.Namespace = fmt.Sprint("pod", i), rapid.SampledFrom(names).Draw(t, "namespace")
		c.Pods = append(c.Pods, p)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "policies") {
		p := drawPolicy(t)
		p.Name, p.Namespace = fmt.Sprint("policy", i), rapid.SampledFrom(names).Draw(t, "namespace")
		c.Policies = append(c.Policies, p)
	}
	return c
}

// On random clusters the rules allow what the specification allows, and their peers
// overlap nowhere.
func TestTranslateAsSpecified(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster := drawCluster(t)
		result := new(Translator).Translate(cluster)
		rules := result.Rules
		if err := result.Invalid; err != nil {
			t.Fatal(err)
		}
		for name, r := range rules {
			checkDisjoint(t, name, r.Ingress)
			checkDisjoint(t, name, r.Egress)
		}
		for _, p := range cluster.Pods {
			_, has := rules[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]
			if want := !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning; has != want {
				t.Fatalf("pod %s has rules: %t, want %t", p.Name, has, want)
			} else if !has {
				continue
			}
			for _, peer := range universe {
				for _, protocol := range protocols {
					for _, n := range append(numbers, 82, 100) {
						for _, ingress := range []bool{true, false} {
							c := connection{p, ingress, netip.MustParseAddr(peer), Service{protocol, uint16(n), uint16(n)}}
							if got, want := translated(rules, c), specified(cluster, c); got != want {
								t.Fatalf("%v: allowed %t, want %t\n%+v", c, got, want, rules)
							}
						}
					}
				}
			}
		}
	})
}

// A cluster that changes has the same rules as one that is translated for the first time.
func TestTranslatorAsTranslate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var translator Translator
		c := drawCluster(t)
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			if got, want := translator.Translate(c), new(Translator).Translate(c); !reflect.DeepEqual(got, want) {
				t.Fatalf("rules are\n%+v\nwant\n%+v", got, want)
			}
			next := drawCluster(t)
			switch rapid.IntRange(0, 3).Draw(t, "what changes") {
			case 0:
				c.Namespaces = next.Namespaces
			case 1:
				c.Pods = append(slices.Clone(c.Pods[1:]), next.Pods[0])
				next.Pods[0].Name = fmt.Sprint("next", len(c.Pods))
			case 2:
				c.Pods = next.Pods
			case 3:
				c.Policies = next.Policies
			}
		}
	})
}

func checkDisjoint(t *rapid.T, name types.NamespacedName, d *Direction) {
	if d == nil {
		return
	}
	for _, r := range d.Allow {
		if len(r.Peers) == 0 {
			t.Fatalf("%s: a rule without peers: %+v", name, r)
		}
		if !slices.Equal(r.Peers, iprange.Union(r.Peers)) {
			t.Fatalf("%s: peers %v overlap or are not sorted", name, r.Peers)
		}
	}
}
