package splitpod

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// networkNode is a node whose runtime calls hostlo, with an address.
func networkNode(name string, addresses ...string) *corev1.Node {
	n := node(name, SpanNetwork, "4")
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.1"})
	return n
}

// networkPod returns a pod of two fractions that has been released, and its companion.
func networkPod(t *testing.T, p *corev1.Pod, nodes []*corev1.Node) (_, c *corev1.Pod) {
	t.Helper()
	if err := Admit(p, Options{Span: SpanNetwork}); err != nil {
		t.Fatal(err)
	}
	s, err := Next(p, nil, Cluster{Nodes: nodes, Pods: []*corev1.Pod{p}})
	if err != nil || s.Prepare.Host != SpanNetwork {
		t.Fatalf("the pod has no place: %+v, %v", s, err)
	}
	Prepare(p, s.Prepare)
	s, err = Next(p, nil, Cluster{})
	if err != nil || len(s.Create) != 1 || s.Create[0].Spec.NodeSelector[HostLabel] != SpanNetwork || Unplaced(p) {
		t.Fatalf("%+v, %v; node selector %v", s, err, p.Spec.NodeSelector)
	}
	c = s.Create[0]
	s, err = Next(p, []*corev1.Pod{c}, Cluster{})
	if err != nil || len(s.Release) != 2 || s.Release[1] != p {
		t.Fatalf("%+v, %v", s, err)
	}
	Release(c)
	Release(p)
	return p, c
}

// Fractions of a pod whose nodes need no common host get the addresses of all nodes once each has one, under a number that no
// other pod has, also if the controller is killed in between.
func TestConnect(t *testing.T) {
	nodes := []*corev1.Node{networkNode("x", "10.0.0.1", "fd00::1"), networkNode("y", "fd00::2", "10.0.0.2")}
	p, c := networkPod(t, newPod("a;b", "a", "b"), nodes)
	if !Unplaced(p) {
		t.Error("the next step is taken without the nodes")
	}
	for _, on := range []string{"", "y"} {
		c.Spec.NodeName = on
		if s, err := Next(p, []*corev1.Pod{c}, Cluster{Nodes: nodes}); err != nil || len(s.Connect) > 0 || s.Ready == nil || *s.Ready {
			t.Errorf("connected before all have nodes: %+v, %v", s, err)
		}
	}
	p.Spec.NodeName = "x"
	s, err := Next(p, []*corev1.Pod{c}, Cluster{Nodes: nodes})
	if err != nil || len(s.Connect) != 2 || s.Connect[0].Name != p.Name || s.Connect[1].Name != c.Name {
		t.Fatalf("%+v, %v", s, err)
	}
	vni := networkOf(s.Connect[0]).VNI
	for i, fraction := range []int{1, 2} {
		want := fmt.Sprintf(`{"vni":%d,"fraction":%d,"nodes":["10.0.0.1","10.0.0.2"],"names":["x","y"]}`, vni, fraction)
		if got := s.Connect[i].Annotations[NetworkAnnotation]; vni == 0 || got != want {
			t.Errorf("noted in %s: %s, want %s", s.Connect[i].Name, got, want)
		}
	}
	if f, err := Encrypted(s.Connect[1]); err != nil || f.Annotations[NetworkAnnotation] != fmt.Sprintf(`{"vni":%d,"fraction":2,"nodes":null,"names":["x","y"]}`, vni) {
		t.Errorf("encrypted: %s, %v", f.Annotations[NetworkAnnotation], err)
	}
	other := newPod("", "a")
	other.Annotations[NetworkAnnotation] = fmt.Sprintf(`{"vni":%d}`, vni)
	again, err := Next(p, []*corev1.Pod{c}, Cluster{Nodes: nodes, Pods: []*corev1.Pod{other}})
	if err != nil || networkOf(again.Connect[1]).VNI == vni {
		t.Errorf("the number of another pod is taken: %v", err)
	}
	again, err = Next(p, []*corev1.Pod{c}, Cluster{Nodes: nodes, Pods: s.Connect}) // the cache of all pods is ahead
	if err != nil || networkOf(again.Connect[0]).VNI != vni {
		t.Errorf("the pod's own number is taken: %v", err)
	}
	p = s.Connect[0] // the controller is killed
	again, err = Next(p, []*corev1.Pod{c}, Cluster{})
	if err != nil || len(again.Connect) != 1 || again.Connect[0].Annotations[NetworkAnnotation] != s.Connect[1].Annotations[NetworkAnnotation] {
		t.Errorf("the companion gets another segment: %+v, %v", again, err)
	}
	c = s.Connect[1]
	if s, err := Next(p, []*corev1.Pod{c}, Cluster{}); err != nil || len(s.Connect) > 0 || Unplaced(p) {
		t.Errorf("connected again: %+v, %v", s, err)
	}
}

// Of a pod with init containers all fractions have nodes before these run, and companions start after they have ended.
func TestConnectInit(t *testing.T) {
	nodes := []*corev1.Node{networkNode("x", "10.0.0.1"), networkNode("y", "10.0.0.2")}
	p, c := networkPod(t, initialize(newPod("a;b", "a", "b")), nodes)
	p.Spec.NodeName, c.Spec.NodeName = "x", "y"
	s, err := Next(p, []*corev1.Pod{c}, Cluster{Nodes: nodes})
	if err != nil || len(s.Connect) != 1 || s.Connect[0].Name != p.Name {
		t.Fatalf("%+v, %v", s, err)
	}
	p = s.Connect[0]
	if s, err := Next(p, []*corev1.Pod{c}, Cluster{}); err != nil || len(s.Connect) > 0 {
		t.Errorf("while init containers run: %+v, %v", s, err)
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue})
	if s, err := Next(p, []*corev1.Pod{c}, Cluster{}); err != nil || len(s.Connect) != 1 || networkOf(s.Connect[0]).Fraction != 2 || networkOf(s.Connect[0]).VNI != networkOf(p).VNI {
		t.Errorf("after init containers: %+v, %v", s, err)
	}
}

// The nodes need addresses of one family.
func TestConnectFamilies(t *testing.T) {
	for _, tt := range []struct {
		x, y []string
		want string
	}{
		{[]string{"10.0.0.1", "fd00::1"}, []string{"fd00::2"}, `"nodes":["fd00::1","fd00::2"]`},
		{[]string{"10.0.0.1"}, []string{"fd00::2"}, "no internal addresses of a common family"},
		{[]string{"10.0.0.1"}, nil, "no internal addresses of a common family"},
	} {
		nodes := []*corev1.Node{networkNode("x", tt.x...), networkNode("y", tt.y...)}
		p, c := networkPod(t, newPod("a;b", "a", "b"), nodes)
		p.Spec.NodeName, c.Spec.NodeName = "x", "y"
		s, err := Next(p, []*corev1.Pod{c}, Cluster{Nodes: nodes})
		got := fmt.Sprint(err)
		if err == nil && len(s.Connect) > 0 {
			got = s.Connect[0].Annotations[NetworkAnnotation]
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%v and %v: got %s, want %s", tt.x, tt.y, got, tt.want)
		}
	}
}

// Released pods without a node take room from those that come later. A node whose runtime does not call hostlo gets no fraction.
func TestPlaceByNetwork(t *testing.T) {
	nodes := []*corev1.Node{networkNode("x"), networkNode("y")}
	p, _ := networkPod(t, newPod("a;b", "a", "b"), nodes)
	for host, want := range map[string]string{"": "1 of 2 fit", "a": "1 of 2 fit", SpanNetwork: "<nil>"} {
		waits := newPod("a;b", "a", "b")
		if err := Admit(waits, Options{Span: SpanNetwork}); err != nil {
			t.Fatal(err)
		}
		if _, err := Next(waits, nil, Cluster{Nodes: []*corev1.Node{nodes[0], node("z", host, "4")}}); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("with a node of host %q: %v, want %s", host, err, want)
		}
		if _, err := Next(waits, nil, Cluster{Nodes: []*corev1.Node{node("z", host, "4")}}); host != SpanNetwork && !strings.Contains(fmt.Sprint(err), HostLabel+"=network") {
			t.Errorf("without a node: %v", err)
		}
	}
	large := newPod("a;b", "a", "b")
	large.UID = "other"
	for i := range large.Spec.Containers {
		large.Spec.Containers[i].Resources = sized("3").Spec.Containers[0].Resources
	}
	if err := Admit(large, Options{Span: SpanNetwork}); err != nil {
		t.Fatal(err)
	}
	if _, err := Next(large, nil, Cluster{Nodes: nodes, Pods: []*corev1.Pod{p}}); err != nil {
		t.Error(err)
	}
	p.Spec.Containers[0].Resources = sized("2").Spec.Containers[0].Resources
	if _, err := Next(large, nil, Cluster{Nodes: nodes, Pods: []*corev1.Pod{p}}); err == nil || !strings.Contains(err.Error(), "1 of 2 fit") {
		t.Errorf("it has a place: %v", err)
	}
}
