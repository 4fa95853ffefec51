package kubernetes

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"unnest.io/unnest/internal/plan/cluster"
)

// Node reads a node (core/v1), and reports whether it was read before.
func (d *Dump) Node(raw []byte) (again bool, err error) {
	var n corev1.Node
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &n); err != nil {
		return false, err
	}
	if n.Name == "" {
		return false, errors.New("a node has no name")
	}
	if d.nodes[n.Name] != nil {
		return true, nil
	}
	d.nodes[n.Name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}, Spec: corev1.NodeSpec{Taints: n.Spec.Taints}}
	node := cluster.Node{Name: n.Name, Labels: n.Labels, Provider: n.Spec.ProviderID}
	zone := n.Labels[corev1.LabelTopologyZone]
	for _, key := range zones {
		zone = cmp.Or(zone, n.Labels[key])
	}
	if zone != n.Labels[corev1.LabelTopologyZone] {
		node.Labels = maps.Clone(n.Labels)
		node.Labels[corev1.LabelTopologyZone] = zone
	}
	for _, key := range instanceLabels {
		node.Model = cmp.Or(node.Model, n.Labels[key])
	}
	for _, taint := range n.Spec.Taints {
		if keepsAway(&taint) {
			node.Taints = append(node.Taints, taint.Key+"="+taint.Value+":"+string(taint.Effect))
		}
	}
	slices.Sort(node.Taints) // whose order means nothing
	node.Capacity, _ = Requests(n.Status.Capacity)
	node.Allocatable, _ = Requests(n.Status.Allocatable)
	node.Pods = int(n.Status.Allocatable.Pods().Value())
	node.Storage = bytesOf(*n.Status.Allocatable.StorageEphemeral())
	for name, q := range n.Status.Allocatable {
		if strings.HasPrefix(string(name), "attachable-volumes-") {
			d.attach(n.Name, bytesOf(q))
		}
	}
	d.Nodes = append(d.Nodes, node)
	return false, nil
}

// instanceLabels name the model of a node's VM, the newer label first.
var instanceLabels = []string{corev1.LabelInstanceTypeStable, corev1.LabelInstanceType}

// Namespace reads the labels of a namespace.
func (d *Dump) Namespace(raw []byte) error {
	var n struct {
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &n); err != nil {
		return err
	}
	d.namespaces[n.Name] = n.Labels
	return nil
}

// selects adds the demands about nodes.
func (d *Dump) selects(p *pod, s *corev1.PodSpec) {
	for key := range s.NodeSelector {
		d.keys[key] = true
		p.count(nodeSelector)
	}
	p.origin.Pinned = p.origin.Pinned || s.NodeSelector[corev1.LabelHostname] != ""
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		if d.nodeTerms(p, s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution) {
			p.count(nodeAffinity)
		}
		if len(s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
			p.count(preferences)
		}
	}
	for _, tolerated := range s.Tolerations {
		if !strings.HasPrefix(tolerated.Key, "node.kubernetes.io/") {
			p.count(tolerations)
		}
	}
}

// zones are the labels of nodes with which drivers of volumes name zones.
var zones = []string{corev1.LabelFailureDomainBetaZone, "topology.ebs.csi.aws.com/zone", "topology.gke.io/zone", "topology.disk.csi.azure.com/zone"}

// nodeTerms takes the labels that terms ask for, and reports whether there are any. A term that
// names a node pins the pod.
func (d *Dump) nodeTerms(p *pod, selector *corev1.NodeSelector) bool {
	if selector == nil {
		return false
	}
	for _, term := range selector.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if key := e.Key; slices.Contains(zones, key) {
				d.keys[corev1.LabelTopologyZone] = true
			} else {
				d.keys[key] = true
			}
			p.origin.Pinned = p.origin.Pinned || e.Key == corev1.LabelHostname
		}
		p.origin.Pinned = p.origin.Pinned || len(term.MatchFields) > 0
	}
	return len(selector.NodeSelectorTerms) > 0
}
