package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"unnest.io/unnest/internal/plan/cluster"
)

// spread is a topology spread constraint by node, over the nodes that its pods may run on.
type spread struct {
	namespace string
	selector  labels.Selector
	pods      int64 // that have it, and match
	skew      int64
	domains   int
	eligible  func(*corev1.Node) bool
}

func (d *Dump) spread(p *pod, o *corev1.Pod, c *corev1.TopologySpreadConstraint) {
	switch {
	case c.WhenUnsatisfiable == corev1.ScheduleAnyway:
		p.count(preferences)
		return
	case c.TopologyKey != corev1.LabelHostname:
		d.keys[c.TopologyKey] = true
		p.count(spreadZone)
		return
	}
	selector, err := selectorOf(c.LabelSelector, o.Labels, c.MatchLabelKeys, nil)
	if err != nil || c.MaxSkew < 1 {
		p.count(badSelector)
		return
	}
	p.count(spreadNode)
	s := &spread{namespace: o.Namespace, selector: selector, skew: int64(c.MaxSkew)}
	if c.MinDomains != nil {
		s.domains = int(*c.MinDomains)
	}
	spec := corev1.PodSpec{}
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
		spec.NodeSelector = o.Spec.NodeSelector
		if a := o.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}
		}
	}
	taints := c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	if taints {
		spec.Tolerations = o.Spec.Tolerations
	}
	s.eligible = eligible(&spec, taints)
	where, _ := json.Marshal(spec) // of texts and numbers never fails
	key := fmt.Sprint(s.namespace, " ", selector, " ", s.skew, " ", s.domains, " ", taints, " ", string(where))
	if d.spreads[key] == nil {
		d.spreads[key] = s
		d.order = append(d.order, s)
	}
	if selector.Matches(labels.Set(o.Labels)) {
		d.spreads[key].pods++
	}
}

// eligible returns whether a pod may run on a node by its labels and taints (NodeAffinity and
// TaintToleration of the scheduler). Taints that pass do not count.
func eligible(spec *corev1.PodSpec, taints bool) func(*corev1.Node) bool {
	required, tolerations := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity), spec.Tolerations
	return func(n *corev1.Node) bool {
		if ok, err := required.Match(n); err != nil || !ok {
			return false
		}
		_, untolerated := helpers.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, tolerations, keepsAway, true)
		return !taints || !untolerated
	}
}

// keepsAway reports whether pods that do not tolerate the taint must not run on its node, as long
// as it lasts.
func keepsAway(t *corev1.Taint) bool {
	return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(passing, func(prefix string) bool { return strings.HasPrefix(t.Key, prefix) })
}

// passing are prefixes of the keys of taints that go by themselves: the node is not ready, is cordoned, or is about to be removed.
var passing = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/", "ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"}

// limit returns the limit of a spread, of which all pods take that it counts. A VM may have as
// many as the skew, whatever is on others.
func (d *Dump) limit(s *spread, kinds []*kind, number int32) cluster.Limit {
	l := cluster.Limit{Name: fmt.Sprint("pods of the spread of ", s.selector), Most: s.skew, Legal: cluster.Unlimited, Skew: s.skew, MinDomains: s.domains, Nodes: map[string]bool{}}
	for _, k := range kinds {
		if k.namespace == s.namespace && s.selector.Matches(k.labels) {
			k.takes = append(k.takes, cluster.Take{Limit: number, Amount: 1})
			l.Total += k.pods
		}
	}
	if s.pods < l.Total { // the others may be anywhere
		l.Total = cluster.Unlimited
	}
	for name, n := range d.nodes {
		if _, named := n.Labels[corev1.LabelHostname]; named && s.eligible(n) {
			l.Nodes[name] = true
		}
	}
	return l
}
