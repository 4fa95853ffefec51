package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
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

// Requests returns a patch of the pod template of each Deployment and StatefulSet whose
// containers should request something else, for kubectl patch --patch-file.
func Requests(changes []summary.Request) []File {
	type workload struct{ namespace, kind, name string }
	containers := map[workload]map[string][]any{}
	var order []workload
	for _, c := range changes {
		if c.Kind != "Deployment" && c.Kind != "StatefulSet" {
			continue
		}
		w := workload{c.Namespace, c.Kind, c.Workload}
		if containers[w] == nil {
			containers[w] = map[string][]any{}
			order = append(order, w)
		}
		list := "containers"
		if c.Sidecar {
			list = "initContainers"
		}
		requests := fields{}
		if c.To.VCPU > 0 {
			requests["cpu"] = fmt.Sprintf("%.0fm", math.Ceil(c.To.VCPU*1000-1e-6))
		}
		if c.To.GiB > 0 {
			requests["memory"] = memory(c.To.GiB)
		}
		containers[w][list] = append(containers[w][list], fields{"name": c.Container, "resources": fields{"requests": requests}})
	}
	var files []File
	for _, w := range order {
		files = append(files, File{fmt.Sprintf("%s_%s_%s.json", w.namespace, strings.ToLower(w.kind), w.name), text(fields{
			"apiVersion": "apps/v1", "kind": w.kind, "metadata": fields{"name": w.name, "namespace": w.namespace},
			"spec": fields{"template": fields{"spec": containers[w]}}})})
	}
	return files
}

// memory returns a request in mebibytes if these are whole, else in bytes: a rounded one could exceed the limit.
func memory(gib float64) string {
	if mib := gib * 1024; mib == math.Trunc(mib) {
		return fmt.Sprintf("%.0fMi", mib)
	}
	return fmt.Sprintf("%.0f", gib*(1<<30))
}

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

// reservedDomains are those of labels that clouds, Kubernetes and Karpenter set themselves, and
// refuse from others. Subdomains belong to them.
var reservedDomains = []string{"kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws", "eks.amazonaws.com", "k8s.aws", "csi.aws.com", "eksctl.io",
	"cloud.google.com", "gke.io", "kubernetes.azure.com", "disk.csi.azure.com"}

// allowedDomains are subdomains in which a tool may set labels.
var (
	allowedByKarpenter = []string{"node.kubernetes.io", "node-restriction.kubernetes.io", "kops.k8s.io"}
	allowedByKubelet   = []string{"node.kubernetes.io", "kubelet.kubernetes.io"}
)

// automatic are labels that each new VM has, because of its model, place and price.
var automatic = []string{"kubernetes.io/arch", "kubernetes.io/os", "kubernetes.io/hostname", "node.kubernetes.io/instance-type", "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/instance-type",
	"topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"}

// automaticPrefixes begin further ones.
var automaticPrefixes = []string{"karpenter.sh/capacity-type", "karpenter.k8s.aws/instance-", "eks.amazonaws.com/capacityType", "topology.ebs.csi.aws.com/", "topology.k8s.aws/", "topology.gke.io/", "topology.disk.csi.azure.com/"}

// labels returns those of a pool that a tool may set.
func labels(p summary.PoolCost, allowed []string) map[string]string {
	may := map[string]string{}
	for key, value := range p.Labels {
		if !reserved(key, allowed) && !slices.Contains(automatic, key) {
			may[key] = value
		}
	}
	return may
}

// missing returns the labels of a pool that pods select by, and that neither the tool sets nor a VM
// has by itself, as KEY=VALUE,….
func missing(p summary.PoolCost, allowed []string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		has := slices.Contains(automatic, key) || slices.ContainsFunc(automaticPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
		if reserved(key, allowed) && !has {
			all = append(all, key+"="+p.Labels[key])
		}
	}
	return strings.Join(all, ",")
}

func reserved(key string, allowed []string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && !slices.Contains(allowed, domain) && slices.ContainsFunc(reservedDomains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}

// room returns the most VMs of a group of which so many are needed, so that some can be replaced
// by new ones before they go.
func room(count int) int { return count + (count+9)/10 }
