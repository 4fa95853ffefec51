package splitpod

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resources "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Place returns the host whose nodes have room for all fractions, each on a node of its own: of
// several the one with the most processor time left, then the first by name. It looks at requests,
// taints, node selectors and node affinity. pods are all of the cluster: those that have been
// released to a host and are not scheduled yet take room there first. For SpanNetwork the host is SpanNetwork, which
// nodes of any hosts have.
func Place(fractions []*corev1.Pod, nodes []*corev1.Node, pods []*corev1.Pod) (string, error) {
	rooms := map[types.NodeName]corev1.ResourceList{}
	hosts := map[string][]*corev1.Node{}
	for _, n := range nodes {
		if host := n.Labels[HostLabel]; host != "" && (host == SpanNetwork) == byNetwork(fractions[0]) {
			hosts[host] = append(hosts[host], n)
		}
		rooms[types.NodeName(n.Name)] = maps.Clone(n.Status.Allocatable)
	}
	if len(hosts) == 0 {
		value := map[bool]string{true: "=" + SpanNetwork}[byNetwork(fractions[0])]
		return "", fmt.Errorf("no node has the label %s%s, by which Unnest's DaemonSet says which nodes can share a segment", HostLabel, value)
	}
	waiting := map[string][]*corev1.Pod{}
	for _, p := range pods {
		switch {
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case p.Spec.NodeName != "":
			take(rooms[types.NodeName(p.Spec.NodeName)], p)
		case p.Spec.NodeSelector[HostLabel] != "" && !slices.ContainsFunc(fractions, func(f *corev1.Pod) bool { return f.UID != "" && f.UID == p.UID }):
			host := p.Spec.NodeSelector[HostLabel]
			waiting[host] = append(waiting[host], p)
		}
	}
	best, most := "", int64(-1)
	var why []string
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		for _, p := range waiting[host] {
			if i := slices.IndexFunc(hosts[host], func(n *corev1.Node) bool { return fits(p, n, rooms) }); i >= 0 {
				take(rooms[types.NodeName(hosts[host][i].Name)], p)
			}
		}
		fit, left := match(fractions, hosts[host], rooms), resource.Quantity{}
		for _, n := range hosts[host] {
			left.Add(rooms[types.NodeName(n.Name)][corev1.ResourceCPU])
		}
		switch {
		case fit < len(fractions):
			why = append(why, fmt.Sprintf("host %s: %d of %d fit on its nodes", host, fit, len(fractions)))
		case left.MilliValue() > most:
			best, most = host, left.MilliValue()
		}
	}
	if best == "" {
		return "", errors.New("no host has a node with room for each fraction: " + strings.Join(why, "; "))
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

// fits reports whether the node takes the pod.
func fits(p *corev1.Pod, n *corev1.Node, rooms map[types.NodeName]corev1.ResourceList) bool {
	if n.Spec.Unschedulable {
		return false
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n); err != nil || !ok {
		return false
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

// match returns how many fractions can have a node each at the same time (Kuhn's algorithm for
// bipartite matching).
func match(fractions []*corev1.Pod, nodes []*corev1.Node, rooms map[types.NodeName]corev1.ResourceList) (count int) {
	of := make([]int, len(nodes)) // fraction of each node, from 1; 0: none
	var assign func(f int, tried []bool) bool
	assign = func(f int, tried []bool) bool {
		for i, n := range nodes {
			if tried[i] || !fits(fractions[f-1], n, rooms) {
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
	for f := range fractions {
		if assign(f+1, make([]bool, len(nodes))) {
			count++
		}
	}
	return count
}

// byNumber compares fractions.
func byNumber(a, b *corev1.Pod) int {
	return cmp.Or(len(a.Labels[FractionLabel])-len(b.Labels[FractionLabel]), strings.Compare(a.Labels[FractionLabel], b.Labels[FractionLabel]))
}
