package scheduler

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
)

// kind is a kind of rules. It changes a pod of a workload; the choices are those of the workload.
type kind struct {
	name string
	// choose draws what the pods of a workload have in common, and returns what changes a replica.
	choose func(t *rapid.T, g *generator, app string) func(*v1.Pod)
}

// GoString returns the name, for reports of draws.
func (k kind) GoString() string { return k.name }

// hard returns the affinity of a pod, with empty parts.
func hard(p *v1.Pod) *v1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{}
	}
	return p.Spec.Affinity
}

// apart returns a kind of anti-affinity.
func apart(topology string, selector func(t *rapid.T, app string) v1.PodAffinityTerm) func(*rapid.T, *generator, string) func(*v1.Pod) {
	return func(t *rapid.T, _ *generator, app string) func(*v1.Pod) {
		term := selector(t, app)
		term.TopologyKey = topology
		return func(p *v1.Pod) {
			a := hard(p)
			if a.PodAntiAffinity == nil {
				a.PodAntiAffinity = &v1.PodAntiAffinity{}
			}
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, term)
		}
	}
}

// divided returns a kind of spread.
func divided(topology string, edit func(*rapid.T, *v1.TopologySpreadConstraint)) func(*rapid.T, *generator, string) func(*v1.Pod) {
	return func(t *rapid.T, _ *generator, app string) func(*v1.Pod) {
		c := spread(topology, rapid.Int32Range(1, 3).Draw(t, "skew"), label("app", app))
		edit(t, &c[0])
		return func(p *v1.Pod) { p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c...) }
	}
}

// on makes pods of a workload run on nodes with a label.
func on(requirement v1.NodeSelectorRequirement) func(*v1.Pod) {
	return func(p *v1.Pod) {
		hard(p).NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{requirement}}}}}
	}
}

func own(_ *rapid.T, app string) v1.PodAffinityTerm {
	return v1.PodAffinityTerm{LabelSelector: label("app", app)}
}

func ofTier(t *rapid.T, _ string) v1.PodAffinityTerm {
	return v1.PodAffinityTerm{LabelSelector: label("tier", rapid.SampledFrom(tiers).Draw(t, "tier"))}
}

var effects = []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute}

var tiers = []string{"data", "web"}

// kinds are the kinds of rules that random clusters have.
var kinds = []kind{
	{"host ports", func(t *rapid.T, _ *generator, _ string) func(*v1.Pod) {
		port := v1.ContainerPort{ContainerPort: 80, HostPort: rapid.SampledFrom([]int32{8080, 9100}).Draw(t, "port"), Protocol: rapid.SampledFrom([]v1.Protocol{"", v1.ProtocolTCP, v1.ProtocolUDP}).Draw(t, "protocol"),
			HostIP: rapid.SampledFrom([]string{"", "", "0.0.0.0", "127.0.0.1", "127.0.0.2"}).Draw(t, "address")}
		restarts := rapid.SampledFrom([]*v1.ContainerRestartPolicy{nil, nil, new(v1.ContainerRestartPolicyOnFailure)}).Draw(t, "restarts")
		return func(p *v1.Pod) {
			p.Spec.Containers[0].Ports, p.Spec.Containers[0].RestartPolicy = []v1.ContainerPort{port}, restarts
		}
	}},
	{"init containers", func(t *rapid.T, _ *generator, _ string) func(*v1.Pod) {
		cpu := *resource.NewMilliQuantity(int64(rapid.IntRange(1, 30).Draw(t, "cpu of init"))*100, resource.DecimalSI)
		return func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "init", Image: "example.com/app", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: cpu}}}}
		}
	}},
	{"the node's network", func(t *rapid.T, _ *generator, _ string) func(*v1.Pod) {
		port := rapid.SampledFrom([]int32{8443, 9100}).Draw(t, "port")
		return func(p *v1.Pod) {
			p.Spec.HostNetwork = true
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: port, HostPort: port}}
		}
	}},
	{"anti-affinity to replicas", apart(v1.LabelHostname, own)},
	{"anti-affinity to other pods", apart(v1.LabelHostname, ofTier)},
	{"anti-affinity in other namespaces", apart(v1.LabelHostname, func(t *rapid.T, app string) v1.PodAffinityTerm {
		term := ofTier(t, app)
		if rapid.Bool().Draw(t, "all namespaces") {
			term.NamespaceSelector = &meta.LabelSelector{}
		} else {
			term.Namespaces = []string{"a", "b"}
		}
		return term
	})},
	{"anti-affinity by zone", apart(v1.LabelTopologyZone, own)},
	{"affinity to other pods", func(t *rapid.T, _ *generator, app string) func(*v1.Pod) {
		term := ofTier(t, app)
		term.TopologyKey = rapid.SampledFrom([]string{v1.LabelHostname, v1.LabelTopologyZone}).Draw(t, "topology")
		return func(p *v1.Pod) {
			hard(p).PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}
		}
	}},
	{"spread over nodes", divided(v1.LabelHostname, func(*rapid.T, *v1.TopologySpreadConstraint) {})},
	{"spread over nodes by revision", divided(v1.LabelHostname, func(_ *rapid.T, c *v1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"pod-template-hash"} })},
	{"spread over nodes with policies", divided(v1.LabelHostname, func(t *rapid.T, c *v1.TopologySpreadConstraint) {
		policy := rapid.Ptr(rapid.SampledFrom([]v1.NodeInclusionPolicy{v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore}), true)
		c.NodeAffinityPolicy, c.NodeTaintsPolicy = policy.Draw(t, "affinity"), policy.Draw(t, "taints")
		c.MinDomains = rapid.Ptr(rapid.Int32Range(1, 4), true).Draw(t, "domains")
	})},
	{"spread over zones", divided(v1.LabelTopologyZone, func(*rapid.T, *v1.TopologySpreadConstraint) {})},
	{"node selectors", func(*rapid.T, *generator, string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	}},
	{"node affinity", func(t *rapid.T, g *generator, _ string) func(*v1.Pod) {
		return on(rapid.SampledFrom([]v1.NodeSelectorRequirement{
			{Key: "disk", Operator: v1.NodeSelectorOpDoesNotExist}, {Key: "disk", Operator: v1.NodeSelectorOpExists}, {Key: "disk", Operator: v1.NodeSelectorOpNotIn, Values: []string{"ssd"}},
			{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{g.zones[0]}}, {Key: v1.LabelInstanceTypeStable, Operator: v1.NodeSelectorOpNotIn, Values: []string{models[0].name}},
			{Key: "generation", Operator: v1.NodeSelectorOpGt, Values: []string{"1"}},
		}).Draw(t, "requirement"))
	}},
	{"selectors of what taints say", func(*rapid.T, *generator, string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"dedicated": "batch"} }
	}},
	{"tolerations", func(t *rapid.T, _ *generator, _ string) func(*v1.Pod) {
		all := rapid.Bool().Draw(t, "all")
		effect := rapid.SampledFrom(effects).Draw(t, "effect")
		return func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "dedicated", Operator: v1.TolerationOpEqual, Value: "batch", Effect: effect}}
			if all {
				p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
			}
		}
	}},
	{"ephemeral storage", func(t *rapid.T, _ *generator, _ string) func(*v1.Pod) {
		size := *resource.NewQuantity(int64(rapid.IntRange(1, 12).Draw(t, "GiB"))<<30, resource.BinarySI)
		return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests[v1.ResourceEphemeralStorage] = size }
	}},
	{"volumes", func(t *rapid.T, g *generator, app string) func(*v1.Pod) {
		in := rapid.SampledFrom(g.zones).Draw(t, "zone of volumes")
		return func(p *v1.Pod) {
			for i := range 4 {
				volume := g.volume(p, fmt.Sprintf("data%d-%s", i, p.Name))
				tied(volume, v1.LabelTopologyZone, in)
			}
		}
	}},
	{"volumes on disks of nodes", func(t *rapid.T, g *generator, app string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			volume := g.volume(p, "disk-"+p.Name)
			volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/disk"}}
			tied(volume, v1.LabelHostname, rapid.SampledFrom(g.nodes).Draw(t, "node of the disk").Name)
		}
	}},
	{"shared directories", func(t *rapid.T, _ *generator, _ string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "files", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].VolumeMounts = append(p.Spec.Containers[i].VolumeMounts, v1.VolumeMount{Name: "files", MountPath: "/files"})
			}
		}
	}},
}

// generator makes a cluster in which the scheduler has placed all pods.
type generator struct {
	zones  []string
	nodes  []*v1.Node
	pods   []*v1.Pod
	others []runtime.Object
}

// volume gives a pod a volume.
func (g *generator) volume(p *v1.Pod, name string) *v1.PersistentVolume {
	claim, volume := newVolume(name)
	claim.Namespace = p.Namespace
	volume.Name, volume.Spec.ClaimRef.Namespace = "pv-"+p.Namespace+"-"+name, p.Namespace
	claim.Spec.VolumeName = volume.Name
	g.others = append(g.others, claim, volume)
	mounts(p, name)
	return volume
}

// size is how large random clusters are.
type size struct{ nodes, models, zones, workloads, replicas, containers int }

// small is the size of the random clusters of which there are many.
var small = size{nodes: 8, models: 3, zones: 2, workloads: 6, replicas: 6, containers: 2}

// cluster draws a cluster whose workloads have rules of some of the kinds, and returns its dump.
func cluster(t *rapid.T, tb testing.TB, s size, of []kind) []byte {
	g := &generator{}
	for i := range rapid.IntRange(1, s.zones).Draw(t, "zones") {
		g.zones = append(g.zones, region+string("abc"[i]))
	}
	few := rapid.IntRange(0, 3).Draw(t, "few pods on a node") == 0
	ssds, taints := rapid.Bool().Draw(t, "disks"), rapid.IntRange(0, 3).Draw(t, "taints") == 0
	for i := range rapid.IntRange(max(2, s.nodes/2), s.nodes).Draw(t, "nodes") {
		n := newNode(fmt.Sprintf("n%d", i), rapid.IntRange(0, s.models-1).Draw(t, "model"), g.zones[i%len(g.zones)])
		n.Labels["generation"] = fmt.Sprint(1 + i%2)
		if ssds && i%3 == 0 {
			n.Labels["disk"] = "ssd"
		}
		if taints && i%4 == 3 {
			n.Spec.Taints = []v1.Taint{{Key: "dedicated", Value: "batch", Effect: effects[i/4%2]}}
		}
		if taints && i%4 == 2 {
			n.Labels["dedicated"] = "batch"
		}
		if few {
			n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("6")
		}
		g.nodes = append(g.nodes, n)
		g.others = append(g.others, newCSINode(n.Name, 12))
	}
	for _, namespace := range []string{"shop", "a", "b"} {
		g.others = append(g.others, &v1.Namespace{ObjectMeta: meta.ObjectMeta{Name: namespace, Labels: map[string]string{v1.LabelMetadataName: namespace}}})
	}
	exporter := rapid.Bool().Draw(t, "exporter")
	var daemons []*v1.Pod
	for i := range g.nodes {
		p := newPod("agent", i, i, "100m", "128Mi")
		daemonized(p)
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
		if exporter {
			hostPort(9100)(p)
		}
		daemons = append(daemons, p)
	}
	wanted := []*v1.Pod{newPod("plain", 0, 0, "100m", "128Mi")} // so that there is a pod in every cluster
	for i := range rapid.IntRange(max(1, s.workloads/2), s.workloads).Draw(t, "workloads") {
		wanted = append(wanted, g.workload(t, fmt.Sprintf("app%d", i), s, of)...)
	}
	g.place(tb, rapid.IntRange(0, 7).Draw(t, "first node"), daemons, wanted)
	if rapid.IntRange(0, 3).Draw(t, "changes") == 0 { // which the pods that run there survive
		g.nodes[0].Labels["disk"] = "hdd"
		g.nodes[1].Spec.Taints = append(g.nodes[1].Spec.Taints, v1.Taint{Key: "later", Effect: v1.TaintEffectNoSchedule})
	}
	var all []runtime.Object
	for _, n := range g.nodes {
		all = append(all, n)
	}
	for _, p := range g.pods {
		all = append(all, p)
	}
	return dump(tb, append(all, g.others...)...)
}

// workload draws pods of one template.
func (g *generator) workload(t *rapid.T, app string, s size, of []kind) (all []*v1.Pod) {
	namespace := rapid.SampledFrom([]string{"shop", "a", "b"}).Draw(t, "namespace")
	tier := rapid.SampledFrom(tiers).Draw(t, "tier")
	cpu, memory := rapid.IntRange(1, 20).Draw(t, "cpu")*50, rapid.IntRange(1, 20).Draw(t, "memory")*128
	containers := rapid.IntRange(1, s.containers).Draw(t, "containers")
	var edits []func(*v1.Pod)
	if len(of) > 0 {
		chosen := map[string]bool{}
		for range rapid.IntRange(0, 2).Draw(t, "rules") {
			if k := rapid.SampledFrom(of).Draw(t, "kind"); !chosen[k.name] {
				chosen[k.name] = true
				edits = append(edits, k.choose(t, g, app))
			}
		}
	}
	for i := range rapid.IntRange(1, s.replicas).Draw(t, "replicas") {
		p := newPod(app, i, 0, fmt.Sprintf("%dm", cpu), fmt.Sprintf("%dMi", memory))
		p.Spec.NodeName, p.Namespace, p.Labels["tier"], p.Labels["pod-template-hash"] = "", namespace, tier, string("ab"[i%2])
		for k := 1; k < containers; k++ {
			c := *p.Spec.Containers[0].DeepCopy()
			c.Name = fmt.Sprintf("more%d", k)
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		for _, edit := range edits {
			edit(p)
		}
		all = append(all, p)
	}
	return all
}

// place has the scheduler place the pods, the first one on the node first, if it has room. Pods
// without a place are left out.
func (g *generator) place(tb testing.TB, first int, daemons, wanted []*v1.Pod) {
	j, err := newJudge(g.nodes, g.others)
	if err != nil {
		tb.Fatal(err)
	}
	defer j.close()
	g.pods = daemons
	for _, p := range daemons {
		j.byName[p.Spec.NodeName].AddPod(p)
	}
	for i, p := range wanted {
		for k := range g.nodes {
			p.Spec.NodeName = g.nodes[(first+i+k)%len(g.nodes)].Name
			if j.refuses(p) == nil {
				j.byName[p.Spec.NodeName].AddPod(p)
				g.pods = append(g.pods, p)
				break
			}
		}
	}
}
