package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/summary"
)

// File is a file with its text.
type File struct {
	Name string
	Text []byte
}

// fields is a JSON object.
type fields = map[string]any

// group is VMs of one model in a pool.
type group struct {
	name  string // valid in all clouds
	pool  summary.PoolCost
	model string
	count int
}

// VMs returns the VMs that a cluster should have as files for tools, and where each pod goes. On
// AWS, and where the provider is unknown, they are Karpenter's NodePools, node groups of eksctl's
// configuration and of Terraform; on Google Cloud and Azure node pools of Terraform. With whole,
// they are those for whole pods.
func VMs(t summary.Today, whole bool) []File {
	var pools []any
	var groups []group
	placement := fields{}
	for i, p := range t.Pools {
		last := p.Final()
		vms := last.SplitVMs
		if whole {
			vms = last.PackedVMs
		}
		name, _ := kubeName(fmt.Sprintf("unnest-%d-%s", i, p.Name), maxNamespace, "")
		if len(vms) > 0 {
			pools = append(pools, nodePool(name, p, vms))
		}
		for k, model := range slices.Sorted(maps.Keys(vms)) {
			groups = append(groups, group{fmt.Sprintf("unnest-%d-%d-%s", i, k, strings.NewReplacer(".", "-", "_", "-").Replace(strings.ToLower(model))), p, model, vms[model]})
		}
		if !whole || last.PodsSplit == 0 {
			placement[p.Name] = last.Placement
		}
	}
	files := []File{{"placement.json", text(placement)}}
	switch t.Provider {
	case "gce":
		return append(files, terraform("nodepools.tf.json", "google_container_node_pool", groups, googlePool, map[string]string{"cluster_name": "string", "location": "string"}))
	case "azure":
		return append(files, terraform("nodepools.tf.json", "azurerm_kubernetes_cluster_node_pool", groups, azurePool, map[string]string{"cluster_id": "string"}))
	}
	var eksctl []any
	for _, g := range groups {
		eksctl = append(eksctl, nodeGroup(g))
	}
	return append(files, File{"karpenter.json", text(fields{"apiVersion": "v1", "kind": "List", "items": pools})},
		File{"eksctl-nodegroups.json", text(fields{"managedNodeGroups": eksctl})},
		terraform("nodegroups.tf.json", "aws_eks_node_group", groups, awsGroup, map[string]string{"cluster_name": "string", "node_role_arn": "string", "subnet_ids": "map(list(string))"}))
}

func text(v any) []byte {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encode maps, lists and texts: %v", err)) // they can be encoded
	}
	return append(data, '\n')
}

// taints splits KEY=VALUE:EFFECT.
func taints(p summary.PoolCost, effects map[string]string) (all []any) {
	for _, t := range p.Taints {
		key, rest, _ := strings.Cut(t, "=")
		value, effect, _ := strings.Cut(rest, ":")
		taint := fields{"key": key, "effect": effect}
		if effects != nil {
			taint["effect"] = effects[effect]
		}
		if value != "" {
			taint["value"] = value
		}
		all = append(all, taint)
	}
	return all
}

func nodePool(name string, p summary.PoolCost, vms map[string]int) fields {
	requirement := func(key string, values ...string) fields {
		return fields{"key": key, "operator": "In", "values": values}
	}
	requirements := []any{requirement("node.kubernetes.io/instance-type", slices.Sorted(maps.Keys(vms))...), requirement("karpenter.sh/capacity-type", capacity[p.Spot])}
	if p.Zone != "" {
		requirements = append(requirements, requirement("topology.kubernetes.io/zone", p.Zone))
	}
	spec := fields{"requirements": requirements, "nodeClassRef": fields{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
	if len(p.Taints) > 0 {
		spec["taints"] = taints(p, nil)
	}
	count := 0
	for _, n := range vms {
		count += n
	}
	notes := fields{"unnest.io/pool": p.Name}
	if text := missing(p, allowedByKarpenter); text != "" {
		notes["unnest.io/missing-labels"] = text
	}
	return fields{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": fields{"name": name, "annotations": notes},
		"spec": fields{"template": fields{"metadata": fields{"labels": labels(p, allowedByKarpenter)}, "spec": spec}, "limits": fields{"nodes": fmt.Sprint(room(count))},
			"disruption": fields{"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5m"}}}
}

// capacity is the label of Karpenter for VMs on demand and spot VMs.
var capacity = map[bool]string{false: "on-demand", true: "spot"}

func nodeGroup(of group) fields {
	p := of.pool
	g := fields{"name": of.name, "instanceType": of.model, "desiredCapacity": of.count, "minSize": 0, "maxSize": room(of.count), "labels": labels(p, allowedByKubelet)}
	if p.Spot {
		g["spot"] = true
	}
	if p.Zone != "" {
		g["availabilityZones"] = []string{p.Zone}
	}
	if len(p.Taints) > 0 {
		g["taints"] = taints(p, nil)
	}
	return g
}
