package trace

import (
	"encoding/json"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"unnest/internal/plan/cluster"
)

// nodeKubectl has the fields of a node (core/v1) that matter here.
type nodeKubectl struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
		Taints     []struct {
			Key    string `json:"key"`
			Value  string `json:"value"`
			Effect string `json:"effect"`
		} `json:"taints"`
	} `json:"spec"`
	Status struct {
		Capacity    map[string]resource.Quantity `json:"capacity"`
		Allocatable map[string]resource.Quantity `json:"allocatable"`
	} `json:"status"`
}

// node reads a node. A node that was read before is skipped.
func (t *kubectlDump) node(raw []byte) error {
	var n nodeKubectl
	err := json.Unmarshal(raw, &n)
	if err == nil && n.Metadata.Name == "" {
		err = errors.New("a node has no name")
	}
	if err != nil {
		return t.broken(err)
	}
	why := Node
	if slices.ContainsFunc(t.rep.Nodes, func(o cluster.Node) bool { return o.Name == n.Metadata.Name }) {
		why = Repeated
	}
	t.rep.add(request{why: why})
	if why == Repeated {
		return nil
	}
	node := cluster.Node{Name: n.Metadata.Name, Labels: n.Metadata.Labels, Provider: n.Spec.ProviderID}
	for _, key := range instanceLabels {
		if node.Model == "" {
			node.Model = n.Metadata.Labels[key]
		}
	}
	for _, taint := range n.Spec.Taints {
		if taint.Effect != "PreferNoSchedule" {
			node.Taints = append(node.Taints, taint.Key+"="+taint.Value+":"+taint.Effect)
		}
	}
	node.Capacity, _ = requests(n.Status.Capacity)
	node.Allocatable, _ = requests(n.Status.Allocatable)
	pods := n.Status.Allocatable["pods"]
	node.Pods = int(pods.Value())
	t.rep.Nodes = append(t.rep.Nodes, node)
	return nil
}

// instanceLabels name the model of a node's VM, the newer label first.
var instanceLabels = []string{"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"}
