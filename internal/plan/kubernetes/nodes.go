package kubernetes

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"unnest/internal/plan/cluster"
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
	for _, key := range instanceLabels {
		if node.Model == "" {
			node.Model = n.Labels[key]
		}
	}
	for _, taint := range n.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule {
			node.Taints = append(node.Taints, taint.Key+"="+taint.Value+":"+string(taint.Effect))
		}
	}
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
