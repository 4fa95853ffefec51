package splitpod

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resources "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Placement is where the fractions of a pod have room.
type Placement struct {
	Host  string
	Nodes []string // of each fraction, which the scheduler prefers
}

// Place returns the host whose nodes have room for all fractions, each on a node of its own: of
// several the one with the most processor time left, then the first by name. It looks at requests,
// taints, node selectors, node affinity and the nodes that reach volumes. Fractions that have a host and are not scheduled yet
// take room there first, also companions that do not exist yet. Whoever writes node selectors into other pods takes none: only the
// controller writes PodLabel. For SpanNetwork the host is SpanNetwork, which nodes of any hosts have. Place only reads in.
func Place(fractions []*corev1.Pod, in Cluster) (Placement, error) {
	rooms := map[types.NodeName]corev1.ResourceList{}
	hosts := map[string][]*corev1.Node{}
	for _, n := range in.Nodes {
		if host := n.Labels[HostLabel]; host != "" && (host == SpanNetwork) == byNetwork(fractions[0]) {
			hosts[host] = append(hosts[host], n)
		}
		rooms[types.NodeName(n.Name)] = maps.Clone(n.Status.Allocatable)
	}
	if len(hosts) == 0 {
		value := map[bool]string{true: "=" + SpanNetwork}[byNetwork(fractions[0])]
		return Placement{}, fmt.Errorf("no node has the label %s%s, by which Unnest's DaemonSet says which nodes can share a segment", HostLabel, value)
	}
	waiting, exists := map[string][]*corev1.Pod{}, map[types.NamespacedName]bool{}
	for _, p := range in.Pods {
		exists[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = true
	}
	for _, p := range in.Pods {
		switch {
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case p.Spec.NodeName != "":
			take(rooms[types.NodeName(p.Spec.NodeName)], p)
		case p.Labels[PodLabel] != "" && p.Spec.NodeSelector[HostLabel] != "" && !slices.ContainsFunc(fractions, func(f *corev1.Pod) bool { return f.UID != "" && f.UID == p.UID }):
			host := p.Spec.NodeSelector[HostLabel]
			waiting[host] = append(waiting[host], p)
			if !gated(p) {
				continue
			}
			companions, _ := Companions(p) // an error: it has none
			waiting[host] = append(waiting[host], slices.DeleteFunc(companions, func(c *corev1.Pod) bool {
				return exists[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}]
			})...)
		}
	}
	best, most := Placement{}, int64(-1)
	var why []string
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		for _, p := range waiting[host] {
			suits := slices.DeleteFunc(slices.Clone(hosts[host]), func(n *corev1.Node) bool { return !fits(p, n, rooms, nil) })
			if len(suits) > 0 {
				i := slices.IndexFunc(suits, func(n *corev1.Node) bool { return n.Name == preferred(p) })
				take(rooms[types.NodeName(suits[max(i, 0)].Name)], p)
			}
		}
		cpu := func(n *corev1.Node) int64 {
			q := rooms[types.NodeName(n.Name)][corev1.ResourceCPU]
			return q.MilliValue()
		}
		slices.SortFunc(hosts[host], func(a, b *corev1.Node) int {
			return cmp.Or(cmp.Compare(cpu(b), cpu(a)), strings.Compare(a.Name, b.Name))
		})
		names, fit := match(fractions, hosts[host], rooms, in.Volumes)
		left := int64(0)
		for _, n := range hosts[host] {
			left += cpu(n)
		}
		switch {
		case fit < len(fractions):
			why = append(why, fmt.Sprintf("host %s: %d of %d fit on its nodes", host, fit, len(fractions)))
		case left > most:
			best, most = Placement{host, names}, left
		}
	}
	if best.Host == "" {
		return Placement{}, errors.New("no host has a node with room for each fraction: " + strings.Join(why, "; "))
	}
	return best, nil
}

func byNetwork(p *corev1.Pod) bool { return p.Annotations[SpanAnnotation] == SpanNetwork }

// take reduces what a node has left by what the pod requests.
func take(room corev1.ResourceList, p *corev1.Pod) {
	for name, q := range requests(p) {
		if left, ok := room[name]; ok {
			left = left.DeepCopy()
			left.Sub(q)
			room[name] = left
		}
	}
}

func requests(p *corev1.Pod) corev1.ResourceList {
	all := resources.PodRequests(p, resources.PodResourcesOptions{})
	all[corev1.ResourcePods] = resource.MustParse("1")
	return all
}

// fits reports whether the node takes the pod. volumes are those of Cluster.
func fits(p *corev1.Pod, n *corev1.Node, rooms map[types.NodeName]corev1.ResourceList, volumes map[string]*corev1.NodeSelector) bool {
	if n.Spec.Unschedulable {
		return false
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n); err != nil || !ok {
		return false
	}
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && volumes[c.ClaimName] != nil {
			if s, err := nodeaffinity.NewNodeSelector(volumes[c.ClaimName]); err != nil || !s.Match(n) {
				return false
			}
		}
	}
	blocks := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	if _, untolerated := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, p.Spec.Tolerations, blocks, false); untolerated {
		return false
	}
	for name, q := range requests(p) {
		left := rooms[types.NodeName(n.Name)][name]
		if !q.IsZero() && left.Cmp(q) < 0 {
			return false
		}
	}
	return true
}

// match returns a node for each of the fractions, empty for none, and how many have one: as many as can have one at the same
// time (Kuhn's algorithm for bipartite matching).
func match(fractions []*corev1.Pod, nodes []*corev1.Node, rooms map[types.NodeName]corev1.ResourceList, volumes map[string]*corev1.NodeSelector) (names []string, count int) {
	of := make([]int, len(nodes)) // fraction of each node, from 1; 0: none
	var assign func(f int, tried []bool) bool
	assign = func(f int, tried []bool) bool {
		for i, n := range nodes {
			if tried[i] || !fits(fractions[f-1], n, rooms, volumes) {
				continue
			}
			tried[i] = true
			if of[i] == 0 || assign(of[i], tried) {
				of[i] = f
				return true
			}
		}
		return false
	}
	for f := len(fractions); f > 0; f-- { // so that the first has the first node, if it can
		if assign(f, make([]bool, len(nodes))) {
			count++
		}
	}
	names = make([]string, len(fractions))
	for i, f := range of {
		if f > 0 {
			names[f-1] = nodes[i].Name
		}
	}
	return names, count
}

// prefer makes the scheduler prefer a node. In the default profile, only PreferNoSchedule taints weigh more than one preference.
// It replaces what it has added for the node before.
func prefer(s *corev1.PodSpec, node, before string) {
	if s.Affinity == nil {
		s.Affinity = &corev1.Affinity{}
	}
	if s.Affinity.NodeAffinity == nil {
		s.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	terms := &s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	term := func(node string) corev1.PreferredSchedulingTerm {
		return corev1.PreferredSchedulingTerm{Weight: 100, Preference: corev1.NodeSelectorTerm{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}
	}
	*terms = append(slices.DeleteFunc(*terms, func(t corev1.PreferredSchedulingTerm) bool { return reflect.DeepEqual(t, term(before)) }), term(node))
}

// preferred returns the node that prefer has named; empty: none.
func preferred(p *corev1.Pod) string {
	if p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil {
		for _, t := range slices.Backward(p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) {
			if f := t.Preference.MatchFields; len(f) > 0 {
				return f[0].Values[0]
			}
		}
	}
	return ""
}

// byNumber compares fractions.
func byNumber(a, b *corev1.Pod) int {
	return cmp.Or(len(a.Labels[FractionLabel])-len(b.Labels[FractionLabel]), strings.Compare(a.Labels[FractionLabel], b.Labels[FractionLabel]))
}
