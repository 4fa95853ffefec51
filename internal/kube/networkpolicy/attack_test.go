package networkpolicy

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/hostapi/policylimit"
)

// blockExcept returns the block ::/0 with exceptions of one address each, which no two share a
// prefix of.
func blockExcept(n int) networkingv1.NetworkPolicyPeer {
	b := &networkingv1.IPBlock{CIDR: "::/0"}
	for i := range n {
		b.Except = append(b.Except, fmt.Sprintf("%x::%x/128", 0x2000+i, i))
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: b}
}

// A policy of 41 KB took 4 minutes and 22 seconds, and became 240,000 prefixes. Its result, on which
// all later work depends, grows with its text.
func TestAttackQuadraticPolicy(t *testing.T) {
	c := grid()
	policy := ingress(&metav1.LabelSelector{}, in{From: peers{blockExcept(3000)}})
	text, err := json.Marshal(policy)
	if err != nil || len(text) < 41<<10 {
		t.Fatalf("%d bytes, error %v", len(text), err)
	}
	c.Policies = []*networkingv1.NetworkPolicy{policy}
	result := new(Translator).Translate(c)
	rules := result.Rules
	if err := result.Invalid; err != nil {
		t.Fatal(err)
	}
	var shared *iprange.Range
	for _, name := range []string{"a", "b", "c"} {
		d := rules[types.NamespacedName{Namespace: "x", Name: name}].Ingress
		all := d.Allow[len(d.Allow)-1].Peers
		if len(all) != 3001 || shared != nil && shared != &all[0] {
			t.Errorf("x/%s: %d ranges, want 3,001 that the pods share", name, len(all))
		}
		shared = &all[0]
	}
}

// crowd returns the grid with many more pods in the namespace x, and 500 empty namespaces.
func crowd(n int) Cluster {
	c := grid()
	for i := range 500 {
		c.Namespaces = append(c.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("empty", i)}})
	}
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: fmt.Sprint("crowd", i), Labels: map[string]string{"pod": fmt.Sprint(i)}}}
		p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("fd00::1:%x", 2*i)}}
		c.Pods = append(c.Pods, p)
	}
	return c
}

// denyAll is another namespace's.
func denyAll() *networkingv1.NetworkPolicy {
	p := ingress(&metav1.LabelSelector{})
	p.Namespace = "y"
	return p
}

// counting counts how often selectors are asked.
type counting struct {
	labels.Selector
	asked *int
}

func (c counting) Matches(l labels.Labels) bool {
	*c.asked++
	return c.Selector.Matches(l)
}

// count has the selectors of policies count.
func (t *Translator) count(asked *int) {
	for _, p := range t.compiled {
		p.targets = counting{p.targets, asked}
		for _, r := range p.rules() {
			for _, s := range r.selectors {
				if s.pods = (counting{s.pods, asked}); s.namespaces != nil {
					s.namespaces = counting{s.namespaces, asked}
				}
			}
		}
	}
}

// Whatever a namespace's policies consist of, they are refused, or small; another namespace's
// deny-all takes effect, and costs nothing more when the large namespace changes nothing. When others change, it
// costs what Matches says.
func TestAttackLargeNamespace(t *testing.T) {
	everything := &metav1.LabelSelector{}
	distinct := func(n int) (all []in) {
		for i := range n {
			all = append(all, in{From: peers{from(labelled("pod", fmt.Sprint(i)), nil)}})
		}
		return all
	}
	namespaces := func(n int, o metav1.LabelSelectorOperator) (all peers) {
		for i := range n {
			all = append(all, from(nil, expression("ns", o, fmt.Sprint(i))))
		}
		return all
	}
	var egresses []out
	for i := range 1300 {
		egresses = append(egresses, out{Ports: ports{port(tcp, fmt.Sprint("p", i))}})
	}
	tests := []struct {
		name    string
		policy  *networkingv1.NetworkPolicy
		refused bool
	}{
		{"many exceptions for many pods", ingress(everything, in{From: peers{blockExcept(3000)}}), true},
		{"one selector again and again", ingress(labelled("pod", "a"), in{From: slices.Repeat(peers{from(everything, nil)}, 1600)}), false},
		{"a large namespace of which each pod allows all", ingress(everything, in{From: peers{from(everything, nil)}}), true},
		{"rules with one selector each", ingress(everything, slices.Repeat([]in{{From: peers{from(everything, nil)}}}, 1600)...), true},
		{"many selectors", ingress(everything, distinct(1600)...), true},
		{"many names of ports", egress(everything, egresses...), true},
		{"many selectors of empty namespaces", ingress(labelled("pod", "a"), in{From: namespaces(15000, metav1.LabelSelectorOpIn)}), true},
		{"many selectors of all namespaces", ingress(labelled("pod", "a"), in{From: namespaces(2000, metav1.LabelSelectorOpNotIn)}), true},
		{"many ports", ingress(everything, in{Ports: slices.Repeat(ports{port(tcp, 1), port(tcp, "a")}, 1000)}), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := crowd(4000)
			c.Policies = []*networkingv1.NetworkPolicy{tt.policy, denyAll()}
			var translator Translator
			first := translator.Translate(c)
			if got := slices.Equal(first.Refused, []string{"x"}); got != tt.refused || !tt.refused && len(first.Refused) > 0 {
				t.Errorf("refused %q, want x: %t", first.Refused, tt.refused)
			}
			if d := first.Rules[types.NamespacedName{Namespace: "y", Name: "a"}].Ingress; d == nil || len(d.Allow) > 1 {
				t.Errorf("the deny-all of y is %+v", d)
			}
			size, memory, shared := 0, 0, map[*iprange.Range]int{}
			for _, r := range first.Rules {
				for _, d := range []*Direction{r.Ingress, r.Egress} {
					if d != nil {
						for _, r := range d.Allow {
							size += len(r.Peers) + len(r.Services)
							shared[&r.Peers[0]] = len(r.Peers)
						}
					}
				}
			}
			for _, n := range shared {
				memory += n * policylimit.RangeMemory
			}
			if size > policylimit.StreamPeers+len(c.Pods)*policylimit.PodPeers || memory > policylimit.MaxStreamMemory+len(c.Pods)*policylimit.PodMemory {
				t.Errorf("the rules have %d peers and services, and take %d bytes", size, memory)
			}
			if d := first.Rules[types.NamespacedName{Namespace: "x", Name: "a"}]; d.Ingress == nil && d.Egress == nil {
				t.Error("a pod of x is not isolated")
			}
			asked := 0
			translator.count(&asked)
			again := testing.AllocsPerRun(1, func() { translator.Translate(c) })
			c.Policies = []*networkingv1.NetworkPolicy{denyAll()}
			var other Translator
			alone := testing.AllocsPerRun(1, func() { other.Translate(c) })
			if asked > 0 || again > alone+float64(3*len(c.Pods)) {
				t.Errorf("unchanged: selectors are asked %d times, and it takes %.0f allocations, %.0f without the policy", asked, again, alone)
			}
			c.Policies = []*networkingv1.NetworkPolicy{tt.policy, denyAll()}
			c.Namespaces[5] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "empty2", Labels: map[string]string{"ns": "changed"}}}
			if translator.Translate(c); asked > policylimit.Matches {
				t.Errorf("another namespace changes: selectors are asked %d times", asked)
			}
		})
	}
}

// So is a namespace of many policies that allow nothing, of which all pods are closed.
func TestAttackManyPolicies(t *testing.T) {
	c := crowd(4000)
	for i := range 2100 {
		p := ingress(labelled("pod", "a"))
		p.Name = fmt.Sprint(i)
		c.Policies = append(c.Policies, p)
	}
	c.Policies = append(c.Policies, denyAll())
	var translator Translator
	first := translator.Translate(c)
	for _, name := range []string{"a", "crowd7"} {
		if r := first.Rules[types.NamespacedName{Namespace: "x", Name: name}]; !slices.Equal(first.Refused, []string{"x"}) || r.Ingress == nil || r.Egress == nil {
			t.Errorf("refused %q, x/%s is %+v, want x and a closed pod", first.Refused, name, r)
		}
	}
	asked := 0
	translator.count(&asked)
	c.Pods = c.Pods[:len(c.Pods)-1]
	if translator.Translate(c); asked > policylimit.Matches {
		t.Errorf("a pod changes: selectors are asked %d times", asked)
	}
}

// What a daemon has no memory for is not sent to it.
func TestAttackMemoryOfDaemon(t *testing.T) {
	c := grid()
	c.Policies = []*networkingv1.NetworkPolicy{ingress(&metav1.LabelSelector{}, in{From: peers{blockExcept(3000)}}), denyAll()}
	var translator Translator
	for memory, want := range map[int][]string{0: nil, policylimit.StreamMemory(1000): {"x"}} {
		c.Memory = memory
		if got := translator.Translate(c).Refused; !slices.Equal(got, want) {
			t.Errorf("for %d bytes %q are refused, want %q", memory, got, want)
		}
	}
}

// What does not change is not computed again.
func TestTranslatorKeeps(t *testing.T) {
	c := grid()
	c.Policies = []*networkingv1.NetworkPolicy{ingress(&metav1.LabelSelector{}, in{From: peers{from(&metav1.LabelSelector{}, nil), blockExcept(100)}})}
	var translator Translator
	peersOf := func() *iprange.Range {
		return &translator.Translate(c).Rules[types.NamespacedName{Namespace: "x", Name: "a"}].Ingress.Allow[1].Peers[0]
	}
	first := peersOf()
	changed := c.Pods[8].DeepCopy()
	changed.Status.PodIPs = nil
	c.Pods[8] = changed // of z
	c.Pods[0] = c.Pods[0].DeepCopy()
	c.Pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}}
	if peersOf() != first {
		t.Error("peers are computed again when another namespace, or a condition of a pod, changes")
	}
	c.Pods[1] = c.Pods[1].DeepCopy()
	c.Pods[1].Status.PodIP, c.Pods[1].Status.PodIPs = "10.0.0.77", nil
	if peersOf() == first {
		t.Error("peers are not computed again when a pod of the namespace changes")
	}
}
