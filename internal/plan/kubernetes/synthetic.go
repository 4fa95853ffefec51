package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
)

// SyntheticCluster describes a random EKS cluster: nodes in three zones, of two node groups and
// two nodes with GPUs, and workloads with the rules that clusters have.
type SyntheticCluster struct {
	Seed  uint64
	Nodes int // 0: 50
	// Rules are the kinds of rules, from 0 and below RuleKinds, that workloads have in turn. Empty: all, in this order.
	Rules []int
}

// RuleKinds is the number of kinds of rules that a SyntheticCluster knows.
const RuleKinds = 10

// fields is a JSON object.
type fields = map[string]any

// generatedNode is a node with what is free on it.
type generatedNode struct {
	name, zone, model, group string
	cpu, memory, pods        int // free: thousandths of a vCPU, MiB, pods
	apps                     map[string]bool
}

// generatedModels are sizes as EKS reports them: thousandths of a vCPU and MiB allocatable, MiB
// of capacity, pods.
var generatedModels = map[string]struct{ vcpu, cpu, memory, capacity, pods int }{
	"m6i.2xlarge": {8, 7910, 30_210, 31_480, 58}, "m6i.4xlarge": {16, 15_890, 59_690, 62_960, 234},
	"r6i.xlarge": {4, 3920, 30_290, 31_560, 58}, "g5.xlarge": {4, 3920, 14_640, 15_740, 58},
}

type generator struct {
	random *rand.Rand
	nodes  []*generatedNode
	items  []any
	count  int
}

// WriteDump writes what "kubectl get nodes,pods,pdb,pv,csinodes,ns -A -o json" prints.
func (s SyntheticCluster) WriteDump(w io.Writer) error {
	s.Nodes = cmp.Or(s.Nodes, 50)
	g := &generator{random: rand.New(rand.NewPCG(s.Seed, 50))}
	for i := range s.Nodes {
		g.node(i)
	}
	g.daemons()
	if len(s.Rules) == 0 {
		for kind := range RuleKinds {
			s.Rules = append(s.Rules, kind)
		}
	}
	for app := range max(1, 6*s.Nodes/5) {
		g.app(app, s.Rules[app%len(s.Rules)])
	}
	for _, n := range g.nodes[:min(2, len(g.nodes))] {
		g.put(n, generatedPod{namespace: "ml", owner: "train", kind: "Job", cpu: []int{2000}, memory: []int{8192}, gpu: true,
			spec: fields{"tolerations": []any{fields{"key": "dedicated", "value": "gpu"}}}})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(fields{"apiVersion": "v1", "kind": "List", "items": g.items})
}

func (g *generator) node(i int) {
	zone := "us-east-1" + string("abc"[i%3])
	model, group := "m6i.4xlarge", "general"
	switch {
	case i < 2:
		model, group = "g5.xlarge", "gpu"
	case i%8 == 7:
		model, group = "r6i.xlarge", "memory"
	case i%2 == 0:
		model = "m6i.2xlarge"
	}
	m := generatedModels[model]
	n := &generatedNode{fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", i/8, 10+i), zone, model, group, m.cpu, m.memory, m.pods, map[string]bool{}}
	g.nodes = append(g.nodes, n)
	var taints []any
	if group != "general" {
		taints = append(taints, fields{"key": "dedicated", "value": group, "effect": "NoSchedule"})
	}
	resources := func(cpu string, memory int) fields {
		return fields{"cpu": cpu, "memory": fmt.Sprintf("%dMi", memory), "pods": fmt.Sprint(m.pods)}
	}
	g.items = append(g.items, fields{"apiVersion": "v1", "kind": "Node",
		"metadata": fields{"name": n.name, "labels": fields{"node.kubernetes.io/instance-type": model, "topology.kubernetes.io/zone": zone,
			"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": n.name, "workload": group, "eks.amazonaws.com/capacityType": "ON_DEMAND"}},
		"spec":   fields{"providerID": "aws:///" + zone + "/i-" + fmt.Sprintf("%017x", i), "taints": taints},
		"status": fields{"capacity": resources(fmt.Sprint(m.vcpu), m.capacity), "allocatable": resources(fmt.Sprintf("%dm", m.cpu), m.memory)}},
		fields{"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": fields{"name": n.name},
			"spec": fields{"drivers": []any{fields{"name": "ebs.csi.aws.com", "nodeID": n.name, "allocatable": fields{"count": 25}}}}})
}

// generatedPod is what pods of a workload have in common.
type generatedPod struct {
	namespace, owner, kind string
	cpu, memory            []int // of the containers
	spec, labels           fields
	notes                  fields
	gpu, claims            bool
}

func (g *generator) put(n *generatedNode, p generatedPod) {
	var containers []any
	for i, cpu := range p.cpu {
		n.cpu, n.memory = n.cpu-cpu, n.memory-p.memory[i]
		requests := fields{}
		if cpu > 0 {
			requests = fields{"cpu": fmt.Sprintf("%dm", cpu), "memory": fmt.Sprintf("%dMi", p.memory[i])}
		}
		if p.gpu {
			requests["nvidia.com/gpu"] = "1"
		}
		containers = append(containers, fields{"name": []string{"app", "proxy", "exporter", "cache"}[i], "image": "registry.example.com/" + p.owner, "resources": fields{"requests": requests}})
	}
	n.pods--
	n.apps[p.owner] = true
	g.count++
	spec := fields{"nodeName": n.name, "containers": containers}
	for key, value := range p.spec {
		spec[key] = value
	}
	if p.claims {
		g.volume(n.zone, p.namespace, fmt.Sprintf("data-%s-%05x", p.owner, g.count), spec)
	}
	g.items = append(g.items, fields{"apiVersion": "v1", "kind": "Pod",
		"metadata": fields{"name": fmt.Sprintf("%s-%05x", p.owner, g.count), "namespace": p.namespace, "uid": fmt.Sprintf("00000000-0000-4000-8000-%012x", g.count), "labels": p.labels,
			"annotations": p.notes, "ownerReferences": []any{fields{"kind": p.kind, "name": p.owner, "uid": p.owner, "controller": true}}},
		"spec": spec, "status": fields{"phase": "Running"}})
}

// volume adds a volume of a zone, which a pod claims.
func (g *generator) volume(zone, namespace, name string, spec fields) {
	spec["volumes"] = []any{fields{"name": "data", "persistentVolumeClaim": fields{"claimName": name}}}
	g.items = append(g.items, fields{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": fields{"name": "pv-" + name},
		"spec": fields{"accessModes": []string{"ReadWriteOnce"}, "claimRef": fields{"namespace": namespace, "name": name},
			"nodeAffinity": fields{"required": fields{"nodeSelectorTerms": []any{fields{"matchExpressions": []any{fields{"key": "topology.kubernetes.io/zone", "operator": "In", "values": []string{zone}}}}}}}}})
}

func (g *generator) daemons() {
	for _, d := range []struct {
		name        string
		cpu, memory int
	}{{"aws-node", 50, 64}, {"kube-proxy", 100, 64}, {"ebs-csi-node", 30, 120}, {"node-exporter", 50, 64}, {"fluent-bit", 100, 150}} {
		for _, n := range g.nodes {
			g.put(n, generatedPod{namespace: "kube-system", owner: d.name, kind: "DaemonSet", cpu: []int{d.cpu}, memory: []int{d.memory}, spec: fields{"hostNetwork": d.name == "aws-node"}})
		}
	}
}

// app adds a workload with a kind of rules.
func (g *generator) app(i, rules int) {
	name := fmt.Sprintf("app-%03d", i)
	labels := fields{"app": name, "team": fmt.Sprint("team-", i%7)}
	p := generatedPod{namespace: fmt.Sprintf("ns-%02d", i%12), owner: name, kind: "ReplicaSet", labels: labels, spec: fields{}}
	selector := fields{"matchLabels": fields{"app": name}}
	group, apart := "general", false
	for range 1 + g.random.IntN(3) {
		p.cpu = append(p.cpu, 50*(1+g.random.IntN(16)))
		p.memory = append(p.memory, 128*(1+g.random.IntN(11)))
	}
	switch rules {
	case 1:
		p.kind = "StatefulSet"
		p.claims = true
	case 2:
		apart = true
		p.spec["affinity"] = fields{"podAntiAffinity": fields{"requiredDuringSchedulingIgnoredDuringExecution": []any{fields{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}}}}
	case 3:
		p.spec["topologySpreadConstraints"] = []any{fields{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}}
	case 4:
		group = "memory"
		p.spec["nodeSelector"] = fields{"workload": group}
		p.spec["tolerations"] = []any{fields{"key": "dedicated", "value": group}}
		p.cpu, p.memory = []int{200, 100}, []int{4096, 512}
	case 5:
		p.spec["priority"] = 1000
		p.notes = fields{"karpenter.sh/do-not-disrupt": "true"}
	case 6:
		p.cpu, p.memory = []int{0}, []int{0}
	case 7:
		p.spec["affinity"] = fields{"nodeAffinity": fields{"requiredDuringSchedulingIgnoredDuringExecution": fields{"nodeSelectorTerms": []any{fields{"matchExpressions": []any{fields{"key": "kubernetes.io/arch", "operator": "In", "values": []string{"amd64"}}}}}}}}
	}
	placed := 0
	for range 2 + g.random.IntN(10) {
		if n := g.roomiest(group, p, apart); n != nil {
			g.put(n, p)
			placed++
		}
	}
	if i%4 == 0 {
		g.items = append(g.items, fields{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": fields{"name": name, "namespace": p.namespace},
			"spec": fields{"selector": selector}, "status": fields{"disruptionsAllowed": i % 8 / 4, "expectedPods": placed}})
	}
}

// roomiest returns the node of a group with the largest part free, as the scheduler prefers, nil
// if none has room.
func (g *generator) roomiest(group string, p generatedPod, apart bool) *generatedNode {
	var best *generatedNode
	most := 0.0
	for _, n := range g.nodes {
		cpu, memory := n.cpu, n.memory
		for i := range p.cpu {
			cpu, memory = cpu-p.cpu[i], memory-p.memory[i]
		}
		m := generatedModels[n.model]
		left := float64(cpu)/float64(m.cpu) + float64(memory)/float64(m.memory)
		if n.group == group && cpu >= 0 && memory >= 0 && n.pods > 0 && !(apart && n.apps[p.owner]) && left > most {
			best, most = n, left
		}
	}
	return best
}
