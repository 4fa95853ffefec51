package manifest

import (
	"fmt"
	"strings"
)

// terraform returns a file with a resource for each group, and the variables that they use by
// their types.
func terraform(name, kind string, groups []group, resource func(group) fields, variables map[string]string) File {
	all, types := fields{}, fields{}
	for _, g := range groups {
		all[strings.ReplaceAll(g.name, "-", "_")] = resource(g)
	}
	for variable, kind := range variables {
		types[variable] = fields{"type": kind}
	}
	return File{name, text(fields{"variable": types, "resource": fields{kind: all}})}
}

// terraformEffects are the effects of taints as the providers of AWS and Google name them.
var terraformEffects = map[string]string{"NoSchedule": "NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}

func awsGroup(of group) fields {
	p := of.pool
	g := fields{"cluster_name": "${var.cluster_name}", "node_group_name": of.name, "node_role_arn": "${var.node_role_arn}", "subnet_ids": fmt.Sprintf("${var.subnet_ids[%q]}", p.Zone),
		"instance_types": []string{of.model}, "scaling_config": fields{"desired_size": of.count, "min_size": 0, "max_size": room(of.count)}, "labels": labels(p, allowedByKubelet)}
	if p.Spot {
		g["capacity_type"] = "SPOT"
	}
	if len(p.Taints) > 0 {
		g["taint"] = taints(p, terraformEffects)
	}
	return g
}

func googlePool(of group) fields {
	p := of.pool
	config := fields{"machine_type": of.model, "spot": p.Spot, "labels": labels(p, allowedByKubelet)}
	if len(p.Taints) > 0 {
		config["taint"] = taints(p, terraformEffects)
	}
	g := fields{"name": cut(of.name, 40), "cluster": "${var.cluster_name}", "location": "${var.location}", "initial_node_count": of.count,
		"autoscaling": fields{"min_node_count": 0, "max_node_count": room(of.count)}, "node_config": config}
	if p.Zone != "" {
		g["node_locations"] = []string{p.Zone}
	}
	return g
}

// azurePool returns a node pool of AKS. Its name has at most 12 letters and digits.
func azurePool(of group) fields {
	p := of.pool
	number := strings.Split(of.name, "-") // unnest, pool, group, model
	g := fields{"name": cut("u"+number[1]+"x"+number[2], 12), "kubernetes_cluster_id": "${var.cluster_id}", "vm_size": of.model, "auto_scaling_enabled": true,
		"node_count": of.count, "min_count": 0, "max_count": room(of.count), "node_labels": labels(p, allowedByKubelet)}
	if zone := p.Zone; zone != "" {
		g["zones"] = []string{zone[strings.LastIndex(zone, "-")+1:]} // eastus-1 is zone 1 of eastus
	}
	if len(p.Taints) > 0 {
		g["node_taints"] = p.Taints
	}
	if p.Spot {
		g["priority"], g["eviction_policy"] = "Spot", "Delete"
	}
	return g
}

func cut(name string, most int) string { return strings.TrimRight(name[:min(len(name), most)], "-") }
