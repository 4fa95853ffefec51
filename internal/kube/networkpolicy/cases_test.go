package networkpolicy

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The grid is that of the API's tests: pods a, b and c in the namespaces x, y and z, each
// with the ports 80 and 81 of every protocol.
func grid() (c Cluster) {
	c.Addresses = Addresses{Pods: anywhere, Nodes: anywhere}
	for i, ns := range []string{"x", "y", "z"} {
		c.Namespaces = append(c.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"ns": ns, corev1.LabelMetadataName: ns}}})
		for j, name := range []string{"a", "b", "c"} {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Labels: map[string]string{"pod": name}}}
			p.Status.PodIP = netip.AddrFrom4([4]byte{10, byte(i), 0, byte(j + 1)}).String()
			p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}, {IP: netip.AddrFrom16([16]byte{0xfd, 7: byte(i), 15: byte(j + 1)}).String()}}
			p.Status.HostIP = "192.0.2.1"
			p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
				{Name: "serve-80-tcp", ContainerPort: 80}, {Name: "serve-81-tcp", ContainerPort: 81, Protocol: corev1.ProtocolTCP},
				{Name: "serve-80-udp", ContainerPort: 80, Protocol: corev1.ProtocolUDP},
			}}}
			c.Pods = append(c.Pods, p)
		}
	}
	return c
}

// link is a connection between pods of the grid, named as "x/a".
type link struct {
	from, to string
	Service
}

// reaches asks both ends, in both families.
func reaches(t *testing.T, c Cluster, rules map[types.NamespacedName]Rules, l link) bool {
	t.Helper()
	find := func(name string) *corev1.Pod {
		for _, p := range c.Pods {
			if p.Namespace+"/"+p.Name == name {
				return p
			}
		}
		t.Fatalf("no pod %s", name)
		return nil
	}
	from, to := find(l.from), find(l.to)
	var answers []bool
	for i := range from.Status.PodIPs {
		out := connection{from, false, netip.MustParseAddr(to.Status.PodIPs[i].IP), l.Service}
		in := connection{to, true, netip.MustParseAddr(from.Status.PodIPs[i].IP), l.Service}
		answers = append(answers, translated(rules, out) && translated(rules, in))
	}
	if answers[0] != answers[1] {
		t.Errorf("%v: IPv4 %t, IPv6 %t", l, answers[0], answers[1])
	}
	return answers[0]
}

func labelled(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func expression(key string, o metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: o, Values: values}}}
}

func from(pods, namespaces *metav1.LabelSelector) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: pods, NamespaceSelector: namespaces}
}

func block(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

func port(p corev1.Protocol, number any, last ...int32) networkingv1.NetworkPolicyPort {
	port := networkingv1.NetworkPolicyPort{Protocol: &p}
	switch n := number.(type) {
	case int:
		port.Port = new(intstr.FromInt32(int32(n)))
	case string:
		port.Port = new(intstr.FromString(n))
	}
	if len(last) > 0 {
		port.EndPort = &last[0]
	}
	return port
}

// policies are in the namespace x.
func ingress(pods *metav1.LabelSelector, rules ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "in"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: *pods, Ingress: rules, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
	}}
}

func egress(pods *metav1.LabelSelector, rules ...networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "out"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: *pods, Egress: rules, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
	}}
}

type (
	in    = networkingv1.NetworkPolicyIngressRule
	out   = networkingv1.NetworkPolicyEgressRule
	peers = []networkingv1.NetworkPolicyPeer
	ports = []networkingv1.NetworkPolicyPort
)

const tcp, udp, sctp = corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP

// The cases of the API's own tests: each policy allows exactly some links of the grid.
func TestGrid(t *testing.T) {
	everything, a := &metav1.LabelSelector{}, labelled("pod", "a")
	toA := func(l link) bool { return l.to == "x/a" }
	fromA := func(l link) bool { return l.from == "x/a" }
	inX := func(name string) bool { return strings.HasPrefix(name, "x/") }
	tests := []struct {
		name     string
		policies []*networkingv1.NetworkPolicy
		allowed  func(link) bool
	}{
		{"none", nil, func(link) bool { return true }},
		{"deny ingress to a namespace", []*networkingv1.NetworkPolicy{ingress(everything)}, func(l link) bool { return !inX(l.to) }},
		{"deny everything", []*networkingv1.NetworkPolicy{ingress(everything), egress(everything)}, func(l link) bool { return !inX(l.to) && !inX(l.from) }},
		{"deny ingress to one pod", []*networkingv1.NetworkPolicy{ingress(a)}, func(l link) bool { return !toA(l) }},
		{"types left out", []*networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "x"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: *a}}},
			func(l link) bool { return !toA(l) }},
		{"types left out, with egress", []*networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "x"}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *a, Egress: []out{{To: peers{from(labelled("pod", "b"), nil)}}}}}},
			func(l link) bool { return !toA(l) && (!fromA(l) || l.to == "x/b") }},
		{"egress alone does not isolate from ingress", []*networkingv1.NetworkPolicy{egress(a)}, func(l link) bool { return !fromA(l) }},
		{"allow all ingress", []*networkingv1.NetworkPolicy{ingress(everything, in{})}, func(link) bool { return true }},
		{"from pods of the namespace", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(labelled("pod", "b"), nil)}})},
			func(l link) bool { return !toA(l) || l.from == "x/b" }},
		{"from all pods of the namespace", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(everything, nil)}})},
			func(l link) bool { return !toA(l) || inX(l.from) }},
		{"from namespaces", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(nil, labelled("ns", "y"))}})},
			func(l link) bool { return !toA(l) || strings.HasPrefix(l.from, "y/") }},
		{"from a namespace by the default label", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(nil, labelled(corev1.LabelMetadataName, "y"))}})},
			func(l link) bool { return !toA(l) || strings.HasPrefix(l.from, "y/") }},
		{"from all namespaces", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(nil, everything)}})}, func(link) bool { return true }},
		{"from namespaces by expressions", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(nil, expression("ns", metav1.LabelSelectorOpNotIn, "x"))}})},
			func(l link) bool { return !toA(l) || !inX(l.from) }},
		{"from pods or namespaces", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(labelled("pod", "b"), nil), from(nil, labelled("ns", "y"))}})},
			func(l link) bool { return !toA(l) || l.from == "x/b" || strings.HasPrefix(l.from, "y/") }},
		{"from pods in namespaces", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(labelled("pod", "b"), labelled("ns", "y"))}})},
			func(l link) bool { return !toA(l) || l.from == "y/b" }},
		{"from several pods in several namespaces", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(
			expression("pod", metav1.LabelSelectorOpIn, "b", "c"), expression("ns", metav1.LabelSelectorOpIn, "y", "z"))}})},
			func(l link) bool { return !toA(l) || !inX(l.from) && !strings.HasSuffix(l.from, "/a") }},
		{"selector that selects none", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(labelled("pod", "none"), nil)}})},
			func(l link) bool { return !toA(l) }},
		{"one port", []*networkingv1.NetworkPolicy{ingress(a, in{Ports: ports{port(tcp, 81)}})},
			func(l link) bool { return !toA(l) || l.Service == Service{tcp, 81, 81} }},
		{"one port of some peers", []*networkingv1.NetworkPolicy{ingress(a, in{From: peers{from(nil, labelled("ns", "y"))}, Ports: ports{port(tcp, 81)}})},
			func(l link) bool {
				return !toA(l) || strings.HasPrefix(l.from, "y/") && l.Service == Service{tcp, 81, 81}
			}},
		{"several policies add up", []*networkingv1.NetworkPolicy{
			ingress(a, in{From: peers{from(nil, labelled("ns", "y"))}, Ports: ports{port(tcp, 81)}}),
			ingress(a, in{From: peers{from(nil, labelled("ns", "z"))}, Ports: ports{port(tcp, 80)}}),
		}, func(l link) bool {
			return !toA(l) || strings.HasPrefix(l.from, "y/") && l.Service == Service{tcp, 81, 81} || strings.HasPrefix(l.from, "z/") && l.Service == Service{tcp, 80, 80}
		}},
		{"an allowing policy beats a denying one", []*networkingv1.NetworkPolicy{ingress(a), ingress(a, in{})}, func(link) bool { return true }},
		{"protocol UDP", []*networkingv1.NetworkPolicy{ingress(a, in{Ports: ports{port(udp, 80)}})},
			func(l link) bool { return !toA(l) || l.Service == Service{udp, 80, 80} }},
		{"protocol SCTP without port", []*networkingv1.NetworkPolicy{ingress(a, in{Ports: ports{port(sctp, nil)}})},
			func(l link) bool { return !toA(l) || l.Protocol == sctp }},
		{"range of ports", []*networkingv1.NetworkPolicy{egress(a, out{Ports: ports{port(tcp, 81, 90)}})},
			func(l link) bool { return !fromA(l) || l.Service == Service{tcp, 81, 81} }},
		{"named port", []*networkingv1.NetworkPolicy{ingress(a, in{Ports: ports{port(tcp, "serve-81-tcp")}})},
			func(l link) bool { return !toA(l) || l.Service == Service{tcp, 81, 81} }},
		{"named port of another protocol", []*networkingv1.NetworkPolicy{ingress(a, in{Ports: ports{port(tcp, "serve-80-udp")}})},
			func(l link) bool { return !toA(l) }},
		{"named port of the peers", []*networkingv1.NetworkPolicy{egress(a, out{To: peers{from(nil, labelled("ns", "y"))}, Ports: ports{port(tcp, "serve-80-tcp")}})},
			func(l link) bool {
				return !fromA(l) || strings.HasPrefix(l.to, "y/") && l.Service == Service{tcp, 80, 80}
			}},
		{"named port that nobody has", []*networkingv1.NetworkPolicy{egress(a, out{Ports: ports{port(tcp, "none")}})}, func(l link) bool { return !fromA(l) }},
		{"block", []*networkingv1.NetworkPolicy{egress(a, out{To: peers{block("10.1.0.0/16"), block("fd00:0:0:1::/64")}})},
			func(l link) bool { return !fromA(l) || strings.HasPrefix(l.to, "y/") }},
		{"block with exceptions", []*networkingv1.NetworkPolicy{egress(a, out{To: peers{block("10.1.0.0/16", "10.1.0.2/32"), block("fd00:0:0:1::/64", "fd00:0:0:1::2/128")}})},
			func(l link) bool { return !fromA(l) || l.to == "y/a" || l.to == "y/c" }},
		{"exception that another policy allows", []*networkingv1.NetworkPolicy{
			egress(a, out{To: peers{block("10.1.0.0/16", "10.1.0.2/32"), block("fd00:0:0:1::/64", "fd00:0:0:1::2/128")}}),
			egress(a, out{To: peers{block("10.1.0.2/32"), block("fd00:0:0:1::2/128")}}),
		}, func(l link) bool { return !fromA(l) || strings.HasPrefix(l.to, "y/") }},
		{"ingress and egress of both ends", []*networkingv1.NetworkPolicy{
			ingress(a, in{From: peers{from(labelled("pod", "b"), nil)}}), egress(labelled("pod", "b"), out{Ports: ports{port(tcp, 80)}}),
		}, func(l link) bool {
			return (!toA(l) || l.from == "x/b") && (l.from != "x/b" || l.Service == Service{tcp, 80, 80})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := grid()
			c.Policies = tt.policies
			result := new(Translator).Translate(c)
			rules, err := result.Rules, result.Invalid
			if err != nil {
				t.Fatal(err)
			}
			for _, from := range c.Pods {
				for _, to := range c.Pods {
					for _, s := range []Service{{tcp, 80, 80}, {tcp, 81, 81}, {udp, 80, 80}, {sctp, 80, 80}} {
						l := link{from.Namespace + "/" + from.Name, to.Namespace + "/" + to.Name, s}
						if got, want := reaches(t, c, rules, l), tt.allowed(l); got != want {
							t.Errorf("%s to %s, %s %d: allowed %t, want %t", l.from, l.to, s.Protocol, s.First, got, want)
						}
					}
				}
			}
		})
	}
}

// Pods that have no address yet, have ended or use the host's network are no peers; the
// node of a pod always is.
func TestPeersWithoutAddress(t *testing.T) {
	c := grid()
	c.Pods[1].Status.PodIP, c.Pods[1].Status.PodIPs = "", nil
	c.Pods[2].Status.Phase = corev1.PodFailed
	c.Pods[3].Spec.HostNetwork = true
	c.Policies = []*networkingv1.NetworkPolicy{ingress(labelled("pod", "a"), in{From: peers{from(nil, &metav1.LabelSelector{})}})}
	result := new(Translator).Translate(c)
	rules := result.Rules
	if err := result.Invalid; err != nil {
		t.Fatal(err)
	}
	d := rules[types.NamespacedName{Namespace: "x", Name: "a"}].Ingress
	if d == nil {
		t.Fatal("x/a is not isolated")
	}
	for address, want := range map[string]bool{
		c.Pods[2].Status.PodIP: false, c.Pods[3].Status.PodIP: false, c.Pods[4].Status.PodIP: true, "192.0.2.1": true, "192.0.2.2": false,
	} {
		if got := translated(rules, connection{c.Pods[0], true, netip.MustParseAddr(address), Service{tcp, 80, 80}}); got != want {
			t.Errorf("from %s: allowed %t, want %t", address, got, want)
		}
	}
	if r, ok := rules[types.NamespacedName{Namespace: "x", Name: "b"}]; !ok || r.Ingress != nil {
		t.Errorf("the pod without address has rules %+v, %t, want such that allow everything", r, ok)
	}
}

// What is invalid allows nothing, is named, and leaves the rest in force.
func TestInvalid(t *testing.T) {
	c := grid()
	c.Policies = []*networkingv1.NetworkPolicy{ingress(labelled("pod", "a"),
		in{From: peers{block("10.1.0.0/99")}}, in{From: peers{block("10.1.0.0/16", "x")}},
		in{From: peers{from(expression("pod", "Near", "b"), nil)}}, in{From: peers{from(labelled("pod", "c"), nil)}})}
	result := new(Translator).Translate(c)
	rules, err := result.Rules, result.Invalid
	if err == nil || strings.Count(err.Error(), "policy x/in: ") != 3 {
		t.Errorf("got error %v, want three of policy x/in", err)
	}
	for _, p := range c.Pods {
		from := p.Namespace + "/" + p.Name
		if got, want := reaches(t, c, rules, link{from, "x/a", Service{tcp, 80, 80}}), from == "x/c"; got != want {
			t.Errorf("from %s: allowed %t, want %t", from, got, want)
		}
	}
}
