package scheduler

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// unnest is the program whose plans are judged.
var unnest = flag.String("unnest", "", "judge the plans of this `PROGRAM` (default: build it)")

func TestMain(m *testing.M) {
	flag.Parse()
	if *unnest != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "scheduler")
	if err != nil {
		panic(err)
	}
	*unnest = filepath.Join(dir, "unnest")
	// The flags are those of `make build`, whose results are in the compiler's cache.
	build := exec.Command("go", "build", "-C", "../..", "-trimpath", "-buildvcs=false", "-o", *unnest, "./cmd/unnest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build unnest: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// plan is what `unnest plan --json` prints of a cluster.
type plan struct {
	Cluster *struct {
		Now    float64 `json:"pay_now"`
		Packed float64 `json:"could_pay_packed"`
		Split  float64 `json:"could_pay_split"`
		Bound  float64 `json:"bound"`
		Steps  []any   `json:"steps"`
		Pools  []pool  `json:"pools"`
		Rules  []struct {
			What string `json:"rule"`
			How  string `json:"honoured"`
		} `json:"rules"`
	} `json:"cluster"`
	Settings struct {
		Catalogue []model `json:"catalogue"`
	} `json:"settings"`
	Traces []struct {
		Remarks []string `json:"remarks"`
	} `json:"traces"`
}

type pool struct {
	Name      string            `json:"pool"`
	Zone      string            `json:"zone"`
	Labels    map[string]string `json:"labels"`
	Taints    []string          `json:"taints"`
	Nodes     map[string]int    `json:"nodes"`
	Now       float64           `json:"pay_now"`
	Split     float64           `json:"could_pay_split"`
	Bound     float64           `json:"bound"`
	Pods      int               `json:"pods"`
	Stays     string            `json:"stays"`
	Placement []struct {
		Model string `json:"model"`
		Pods  []struct {
			Pod        string   `json:"pod"`
			Containers []string `json:"containers"`
		} `json:"pods"`
	} `json:"placement"`
}

// model is a model of VMs with what it leaves for pods.
type model struct {
	Name  string  `json:"name"`
	VCPU  float64 `json:"vcpu"`
	GiB   float64 `json:"memory_gib"`
	Price float64 `json:"price"`
	Pods  int     `json:"pods"`
	Arch  string  `json:"arch"`
}

// planned runs unnest plan on a dump.
func planned(dump []byte, args ...string) (p plan, err error) {
	cmd := exec.Command(*unnest, append([]string{"plan", "--trace", "-", "--json"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(dump), &stderr
	out, err := cmd.Output()
	if err != nil {
		return p, fmt.Errorf("unnest plan: %w: %s", err, &stderr)
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return p, err
	}
	if p.Cluster == nil {
		return p, errors.New("the plan has no cluster")
	}
	return p, nil
}

// objects is a dump of a cluster.
type objects struct {
	nodes    []*v1.Node
	pods     []*v1.Pod
	csiNodes []*storage.CSINode
	others   []runtime.Object
}

// parsed reads a list of objects, as kubectl prints it.
func parsed(dump []byte) (o objects, err error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(dump, &list); err != nil {
		return o, err
	}
	for _, raw := range list.Items {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return o, err
		}
		switch object := object.(type) {
		case *v1.Node:
			o.nodes = append(o.nodes, object)
		case *v1.Pod:
			o.pods = append(o.pods, object)
		case *storage.CSINode:
			o.csiNodes = append(o.csiNodes, object)
		default:
			o.others = append(o.others, object)
		}
	}
	return o, nil
}

// sharedVolume is the rule that containers with one volume are on one VM.
const sharedVolume = "shared volume"

// future is a cluster after its plan.
type future struct {
	nodes  []*v1.Node
	fixed  []*v1.Pod // DaemonSets' pods, and what stays where it is
	pods   []*v1.Pod // that the plan places
	others []runtime.Object
	broken []verdict // what the plan says of pods that the scheduler cannot judge
}

// after returns the cluster after the plan. New VMs have the labels and taints of their pool, and
// leave for pods what the least node of their model leaves today, or what the plan says.
func after(o objects, p plan) (future, error) {
	f := future{others: o.others}
	today := map[string]*v1.Pod{}
	daemons := map[string]*v1.Pod{}
	for _, pod := range o.pods {
		if owner := daemonSet(pod); owner != "" {
			daemons[owner] = pod
			continue
		}
		today[pod.Namespace+"/"+pod.Name] = pod
	}
	replaced := map[int]bool{} // pools
	for i, from := range p.Cluster.Pools {
		replaced[i] = len(from.Placement) > 0
		for k, vm := range from.Placement {
			node, csi, err := o.node(fmt.Sprintf("unnest-%d-%d", i, k), vm.Model, from, p)
			if err != nil {
				return f, err
			}
			f.nodes, f.others = append(f.nodes, node), append(f.others, csi)
			for _, placed := range vm.Pods {
				pod := today[placed.Pod]
				if pod == nil {
					return f, fmt.Errorf("the plan places the pod %s, which is not there or placed already", placed.Pod)
				}
				if len(placed.Containers) == 0 {
					delete(today, placed.Pod)
					pod = pod.DeepCopy()
				} else {
					pod = f.fraction(pod, placed.Containers, len(f.pods))
				}
				pod.Spec.NodeName = node.Name
				f.pods = append(f.pods, pod)
			}
		}
	}
	for _, pod := range f.pods { // fractions
		delete(today, wholePod(pod))
	}
	holds := map[string]bool{}
	for _, pod := range today {
		holds[pod.Spec.NodeName] = true
	}
	for _, n := range o.nodes {
		if holds[n.Name] || !replaced[poolOf(n, p.Cluster.Pools)] {
			f.nodes = append(f.nodes, n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(today)) {
		if today[name].Spec.NodeName != "" {
			f.fixed = append(f.fixed, today[name])
		}
	}
	f.daemons(daemons)
	for _, pod := range slices.Concat(f.fixed, f.pods) {
		countOnce(pod)
	}
	f.others = append(f.others, missing(o)...)
	for _, csi := range o.csiNodes {
		f.others = append(f.others, csi)
	}
	return f, nil
}

// fractionOf is the label of a part of a pod, on a VM of its own.
const fractionOf = "fraction-of"

// further is the label of all fractions of a pod but the first. A split pod is one pod of the API
// server: it is on several nodes, but once in its zone.
const further = "further-fraction"

// countOnce makes a pod's spreads over zones count each pod once.
func countOnce(pod *v1.Pod) {
	for i := range pod.Spec.TopologySpreadConstraints {
		if c := &pod.Spec.TopologySpreadConstraints[i]; c.TopologyKey != v1.LabelHostname && c.LabelSelector != nil {
			c.LabelSelector = c.LabelSelector.DeepCopy()
			c.LabelSelector.MatchExpressions = append(c.LabelSelector.MatchExpressions, meta.LabelSelectorRequirement{Key: further, Operator: meta.LabelSelectorOpDoesNotExist})
		}
	}
}

// wholePod returns the name of the pod, or of the one that it is a fraction of.
func wholePod(pod *v1.Pod) string {
	return pod.Namespace + "/" + cmp.Or(pod.Labels[fractionOf], pod.Name)
}

// fraction returns the part of a pod that has the containers.
func (f *future) fraction(pod *v1.Pod, containers []string, number int) *v1.Pod {
	part := pod.DeepCopy()
	part.Name = fmt.Sprintf("%s.%d", pod.Name, number)
	if part.Labels == nil {
		part.Labels = map[string]string{}
	}
	part.Labels[fractionOf] = pod.Name
	if slices.ContainsFunc(f.pods, func(p *v1.Pod) bool { return wholePod(p) == wholePod(part) }) {
		part.Labels[further] = "true"
	}
	elsewhere := map[string]bool{} // volumes
	kept := func(all []v1.Container) []v1.Container {
		return slices.DeleteFunc(all, func(c v1.Container) bool {
			if slices.Contains(containers, c.Name) {
				return false
			}
			for _, m := range c.VolumeMounts {
				elsewhere[m.Name] = true
			}
			return true
		})
	}
	if first := pod.Spec.Containers[0].Name; !slices.Contains(containers, first) { // init containers run with it
		part.Spec.InitContainers = kept(part.Spec.InitContainers)
	}
	part.Spec.Containers = kept(part.Spec.Containers)
	for _, c := range slices.Concat(part.Spec.InitContainers, part.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			if elsewhere[m.Name] {
				f.broken = append(f.broken, verdict{Pod: pod.Namespace + "/" + pod.Name, Plugin: sharedVolume, Why: m.Name})
			}
		}
	}
	return part
}

// poolOf returns the index of the pool that a node is in, -1 if it is in none: of the pools with
// its zone and taints, whose labels it has, the one with most labels.
func poolOf(n *v1.Node, pools []pool) int {
	best := -1
	for i, p := range pools {
		fits := p.Zone == n.Labels[v1.LabelTopologyZone] && len(p.Taints) == len(n.Spec.Taints) && p.Nodes[n.Labels[v1.LabelInstanceTypeStable]] > 0
		for _, t := range n.Spec.Taints {
			fits = fits && slices.Contains(p.Taints, t.Key+"="+t.Value+":"+string(t.Effect))
		}
		for key, value := range p.Labels {
			fits = fits && n.Labels[key] == value
		}
		if fits && (best < 0 || len(p.Labels) > len(pools[best].Labels)) {
			best = i
		}
	}
	return best
}

// node returns a new VM of a pool.
func (o objects) node(name, of string, in pool, p plan) (*v1.Node, *storage.CSINode, error) {
	n := &v1.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: maps.Clone(in.Labels)}}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[v1.LabelHostname], n.Labels[v1.LabelInstanceTypeStable], n.Labels[v1.LabelOSStable] = name, of, "linux"
	if in.Zone != "" {
		n.Labels[v1.LabelTopologyZone] = in.Zone
	}
	for _, t := range in.Taints {
		key, rest, _ := strings.Cut(t, "=")
		value, effect, _ := strings.Cut(rest, ":")
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)})
	}
	at := slices.IndexFunc(p.Settings.Catalogue, func(m model) bool { return m.Name == of })
	if at < 0 {
		return nil, nil, fmt.Errorf("the plan has a VM of the model %s, which its catalogue lacks", of)
	}
	m := p.Settings.Catalogue[at]
	n.Labels[v1.LabelArchStable] = "amd64"
	if m.Arch != "" {
		n.Labels[v1.LabelArchStable] = m.Arch
	}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: *resource.NewMilliQuantity(int64(math.Round(m.VCPU*1e6)/1e3), resource.DecimalSI), v1.ResourceMemory: *resource.NewQuantity(int64(m.GiB*(1<<30)), resource.BinarySI),
		v1.ResourcePods: *resource.NewQuantity(int64(m.Pods), resource.DecimalSI),
	}
	var all, same []*v1.Node
	for _, today := range o.nodes {
		all = append(all, today)
		if today.Labels[v1.LabelInstanceTypeStable] == of {
			same = append(same, today)
		}
		if today.Labels[v1.LabelTopologyZone] == in.Zone && today.Labels[v1.LabelTopologyRegion] != "" {
			n.Labels[v1.LabelTopologyRegion] = today.Labels[v1.LabelTopologyRegion]
		}
	}
	for name, q := range least(same) {
		n.Status.Allocatable[name] = q
	}
	if q, ok := least(all)[v1.ResourceEphemeralStorage]; ok && len(same) == 0 {
		n.Status.Allocatable[v1.ResourceEphemeralStorage] = q
	}
	if pods, equal := samePods(all); equal && len(same) == 0 && pods < int64(m.Pods) { // what kubelets are told does not follow from the model
		n.Status.Allocatable[v1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
	}
	csi := &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: name}}
	drivers := o.drivers(same)
	if len(drivers) == 0 {
		drivers = o.drivers(all)
	}
	for _, driver := range slices.Sorted(maps.Keys(drivers)) {
		d := drivers[driver]
		d.NodeID = name
		csi.Spec.Drivers = append(csi.Spec.Drivers, d)
	}
	return n, csi, nil
}

// least returns of each resource what the least node leaves for pods.
func least(nodes []*v1.Node) v1.ResourceList {
	all := v1.ResourceList{}
	for _, n := range nodes {
		for name, q := range n.Status.Allocatable {
			if has, ok := all[name]; !ok || q.Cmp(has) < 0 {
				all[name] = q
			}
		}
	}
	return all
}

// samePods returns how many pods the nodes take, if all take as many.
func samePods(nodes []*v1.Node) (pods int64, equal bool) {
	for i, n := range nodes {
		if has := n.Status.Allocatable.Pods().Value(); i > 0 && has != pods {
			return 0, false
		} else {
			pods = has
		}
	}
	return pods, len(nodes) > 0
}

// drivers returns the CSI drivers of nodes, each with the number of volumes of the least node.
func (o objects) drivers(nodes []*v1.Node) map[string]storage.CSINodeDriver {
	all := map[string]storage.CSINodeDriver{}
	for _, csi := range o.csiNodes {
		if !slices.ContainsFunc(nodes, func(n *v1.Node) bool { return n.Name == csi.Name }) {
			continue
		}
		for _, d := range csi.Spec.Drivers {
			if d.Allocatable == nil || d.Allocatable.Count == nil {
				continue
			}
			if has, ok := all[d.Name]; !ok || *d.Allocatable.Count < *has.Allocatable.Count {
				all[d.Name] = d
			}
		}
	}
	return all
}

// daemonSet returns the DaemonSet of a pod, empty if it has none.
func daemonSet(pod *v1.Pod) string {
	for _, o := range pod.OwnerReferences {
		if o.Kind == "DaemonSet" {
			return pod.Namespace + "/" + o.Name
		}
	}
	return ""
}

// daemons puts a pod of each DaemonSet on each node that it may run on.
func (f *future) daemons(of map[string]*v1.Pod) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		for _, n := range f.nodes {
			pod := of[name].DeepCopy()
			pod.Name, pod.Spec.NodeName = pod.Name+"-"+n.Name, n.Name
			if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
				terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
				for i := range terms {
					terms[i].MatchFields = nil // the name of today's node
				}
			}
			matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
			_, repelled := corev1.FindMatchingUntoleratedTaint(n.Spec.Taints, pod.Spec.Tolerations, func(t *v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule })
			if err == nil && matches && !repelled {
				f.fixed = append(f.fixed, pod)
			}
		}
	}
}

// missing returns the objects that pods name and a dump of nodes and pods lacks: namespaces.
func missing(o objects) (all []runtime.Object) {
	has := map[string]bool{}
	for _, object := range o.others {
		if n, ok := object.(*v1.Namespace); ok {
			has[n.Name] = true
		}
	}
	for _, pod := range o.pods {
		if !has[pod.Namespace] {
			has[pod.Namespace] = true
			all = append(all, &v1.Namespace{ObjectMeta: meta.ObjectMeta{Name: pod.Namespace, Labels: map[string]string{v1.LabelMetadataName: pod.Namespace}}})
		}
	}
	return all
}

// judged returns what the scheduler refuses of a plan of a dump.
func judged(dump []byte, p plan) ([]verdict, error) {
	o, err := parsed(dump)
	if err != nil {
		return nil, err
	}
	f, err := after(o, p)
	if err != nil {
		return nil, err
	}
	j, err := newJudge(f.nodes, f.others)
	if err != nil {
		return nil, err
	}
	defer j.close()
	return append(f.broken, j.refusals(f.fixed, f.pods)...), nil
}
