package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest/internal/plan/summary"
)

// File is a file with its text.
type File struct {
	Name string
	Text []byte
}

// fields is a JSON object.
type fields = map[string]any

// VMs returns the VMs that a cluster should have as files for tools: Karpenter's NodePools, node
// groups of eksctl's configuration, node groups of Terraform, and where each pod goes. With whole,
// they are those for whole pods.
func VMs(t summary.Today, whole bool) []File {
	var pools, groups []any
	resources, placement := fields{}, fields{}
	for i, p := range t.Pools {
		vms := p.SplitVMs
		if whole {
			vms = p.PackedVMs
		}
		name, _ := kubeName(fmt.Sprintf("unnest-%d-%s", i, p.Name), maxNamespace, "")
		if len(vms) > 0 {
			pools = append(pools, nodePool(name, p, vms))
		}
		for k, model := range slices.Sorted(maps.Keys(vms)) {
			groupName := fmt.Sprintf("unnest-%d-%d-%s", i, k, strings.ReplaceAll(model, ".", "-"))
			groups = append(groups, nodeGroup(groupName, p, model, vms[model]))
			resources[strings.ReplaceAll(groupName, "-", "_")] = terraformGroup(groupName, p, model, vms[model])
		}
		if !whole || p.PodsSplit == 0 {
			placement[p.Name] = p.Placement
		}
	}
	variable := func(kind string) fields { return fields{"type": kind} }
	return []File{
		{"karpenter.json", text(fields{"apiVersion": "v1", "kind": "List", "items": pools})},
		{"eksctl-nodegroups.json", text(fields{"managedNodeGroups": groups})},
		{"nodegroups.tf.json", text(fields{
			"variable": fields{"cluster_name": variable("string"), "node_role_arn": variable("string"), "subnet_ids": variable("map(list(string))")},
			"resource": fields{"aws_eks_node_group": resources}})},
		{"placement.json", text(placement)},
	}
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
	requirements := []any{requirement("node.kubernetes.io/instance-type", slices.Sorted(maps.Keys(vms))...), requirement("karpenter.sh/capacity-type", "on-demand")}
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
	return fields{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": fields{"name": name, "annotations": fields{"unnest.io/pool": p.Name}},
		"spec": fields{"template": fields{"metadata": fields{"labels": labels(p)}, "spec": spec}, "limits": fields{"nodes": fmt.Sprint(count)},
			"disruption": fields{"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5m"}}}
}

func labels(p summary.PoolCost) map[string]string {
	if p.Labels == nil {
		return map[string]string{}
	}
	return p.Labels
}

func nodeGroup(name string, p summary.PoolCost, model string, n int) fields {
	g := fields{"name": name, "instanceType": model, "desiredCapacity": n, "minSize": 0, "maxSize": n, "labels": labels(p)}
	if p.Zone != "" {
		g["availabilityZones"] = []string{p.Zone}
	}
	if len(p.Taints) > 0 {
		g["taints"] = taints(p, nil)
	}
	return g
}

// terraformEffects are the effects of taints as the AWS provider names them.
var terraformEffects = map[string]string{"NoSchedule": "NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}

func terraformGroup(name string, p summary.PoolCost, model string, n int) fields {
	g := fields{"cluster_name": "${var.cluster_name}", "node_group_name": name, "node_role_arn": "${var.node_role_arn}", "subnet_ids": fmt.Sprintf("${var.subnet_ids[%q]}", p.Zone),
		"instance_types": []string{model}, "scaling_config": fields{"desired_size": n, "min_size": 0, "max_size": n}, "labels": labels(p)}
	if len(p.Taints) > 0 {
		g["taint"] = taints(p, terraformEffects)
	}
	return g
}
