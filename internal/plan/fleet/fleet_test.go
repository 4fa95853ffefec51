package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
)

var models = cluster.Catalogue{
	{Name: "m.large", Size: cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 8 << 30}, Price: 100, Pods: 20},
	{Name: "m.xlarge", Size: cluster.Resources{CPU: 4 * cluster.VCPU, Memory: 16 << 30}, Price: 200, Pods: 40},
}

func node(name string, labels ...string) cluster.Node {
	n := cluster.Node{Name: name, Model: "m.xlarge", Labels: map[string]string{}, Provider: "aws:///z/i",
		Capacity: cluster.Resources{CPU: 4 * cluster.VCPU, Memory: 12 << 30}, Allocatable: cluster.Resources{CPU: 3 * cluster.VCPU, Memory: 10 << 30}, Pods: 30}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		n.Labels[key] = value
	}
	return n
}

func pod(name, on string) cluster.Pod {
	return cluster.Pod{Name: name, Origin: &cluster.Origin{Namespace: "n", Name: name, Node: on},
		Containers: []cluster.Container{{Name: "c", Request: cluster.Resources{CPU: cluster.VCPU, Memory: 1 << 30}}}}
}

const zone = "topology.kubernetes.io/zone="

// Nodes that pods may tell apart are in different pools, and pods stay in theirs.
func TestPools(t *testing.T) {
	tainted := node("d", zone+"a")
	tainted.Taints = []string{"dedicated=db:NoSchedule"}
	evicting := node("f", zone+"a")
	evicting.Taints = []string{"dedicated=db:NoExecute"}
	c := Cluster{Selectors: []string{"disk", "dedicated", "kubernetes.io/arch", "kubernetes.io/hostname"},
		Nodes: []cluster.Node{node("a", zone+"a", "team=red"), node("b", zone+"b", "team=red"), node("c", zone+"a", "disk=ssd"), tainted, node("e", zone+"a"), evicting, node("g", zone+"a", "dedicated=db")},
		Pods:  []cluster.Pod{pod("1", "a"), pod("2", "b"), pod("3", "c"), pod("4", "d"), pod("5", "e"), pod("8", "f"), pod("9", "g"), pod("6", ""), pod("7", "gone")}}
	f, err := New(c, models, catalogue.Reserve{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range f.Pools {
		var names []string
		for _, pod := range p.User.Pods {
			names = append(names, pod.Name)
		}
		got[p.User.Name] = strings.Join(names, " ")
		if p.Start == nil || len(p.Start.VMs) != p.Nodes["m.xlarge"] || p.Now != 200*int64(p.Nodes["m.xlarge"]) {
			t.Errorf("pool %s: %d VMs now, cost %d, plan %+v", p.User.Name, p.Nodes["m.xlarge"], p.Now, p.Start)
		}
	}
	want := map[string]string{"a": "1 5", "b": "2", "a disk=ssd": "3", "a dedicated=db:NoSchedule": "4", "a dedicated=db:NoExecute": "8", "a dedicated=db": "9"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if f.Waiting != 1 || f.Elsewhere != 1 {
		t.Errorf("%d pods wait, %d are elsewhere, want 1 and 1", f.Waiting, f.Elsewhere)
	}
}

// Nodes stay if their price is unknown or a pod on them cannot be elsewhere; their pods stay.
func TestStay(t *testing.T) {
	other := node("other")
	other.Model = "g.xlarge"
	pinnedPod := pod("local", "pinned")
	pinnedPod.Origin.Pinned = true
	static := pod("etcd-static", "static")
	static.Origin.Kind = "Node"
	c := Cluster{Bound: []string{"gpu"}, Pods: []cluster.Pod{pinnedPod, static, pod("1", "control"), pod("2", "free")},
		Nodes: []cluster.Node{node("control", "node-role.kubernetes.io/control-plane="), node("spot", "karpenter.sh/capacity-type=spot"), node("windows", "kubernetes.io/os=windows"),
			node("fargate", "eks.amazonaws.com/compute-type=fargate"), other, node("gpu"), node("pinned"), node("static"), node("free")}}
	f, err := New(c, models, catalogue.Reserve{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Stay{{pinned, 2, 2, 400, 0}, {notPlanned, 1, 0, 200, 0}, {controlPlane, 1, 1, 200, 0}, {fargate, 1, 0, 200, 0}, {spot + "m.xlarge", 1, 0, 0, 1}, {noPrice + "g.xlarge", 1, 0, 0, 1}, {windows, 1, 0, 200, 0}}
	less := cmpopts.SortSlices(func(a, b Stay) bool { return a.Why < b.Why })
	if diff := cmp.Diff(want, f.Stay, less); diff != "" {
		t.Errorf("nodes that stay (-want +got):\n%s", diff)
	}
	if len(f.Pools) != 1 || len(f.Pools[0].User.Pods) != 1 || f.Pools[0].User.Name != "all nodes" {
		t.Errorf("pools %+v, want one of one pod", f.Pools)
	}
}

// Nodes of a pool for which no model is on sale stay, and other pools are planned.
func TestPoolWithoutModels(t *testing.T) {
	arm := node("arm", "kubernetes.io/arch=arm64")
	arm.Model = "a.xlarge"
	c := Cluster{Nodes: []cluster.Node{node("a"), arm, node("full", "role=edge")}, Selectors: []string{"role"}, Buy: []string{"m.large", "m.xlarge"}, Pods: []cluster.Pod{pod("1", "a"), pod("2", "arm")},
		DaemonSets: []cluster.DaemonSet{{Name: "n/ingress", Request: cluster.Resources{CPU: 3 * cluster.VCPU}, Nodes: map[string]bool{"full": true}}}}
	f, err := New(c, append(slices.Clone(models), cluster.Model{Name: "a.xlarge", Size: models[1].Size, Price: 150, Arch: "arm64"}), catalogue.Reserve{})
	if err != nil || len(f.Pools) != 1 || f.Pools[0].User.Name != "all nodes" || len(f.Pools[0].Catalogue) != 2 {
		t.Errorf("pools %+v, %v; want one", f.Pools, err)
	}
	if diff := cmp.Diff([]Stay{{noModel, 2, 1, 350, 0}}, f.Stay); diff != "" {
		t.Errorf("nodes that stay (-want +got):\n%s", diff)
	}
}

// Models leave for pods what nodes of the cluster leave; others lack as much memory. DaemonSets
// and static pods of all nodes are taken off.
func TestAllocatable(t *testing.T) {
	proxy := func(on string) cluster.Pod {
		p := pod("proxy-"+on, on)
		p.Origin.Kind = "Node"
		return p
	}
	c := Cluster{Nodes: []cluster.Node{node("a"), node("b")}, Pods: []cluster.Pod{pod("1", "a"), proxy("a"), proxy("b")},
		DaemonSets: []cluster.DaemonSet{{Name: "n/cni", Request: cluster.Resources{CPU: cluster.VCPU / 2, Memory: 1 << 30}, Nodes: map[string]bool{"a": true}},
			{Name: "n/gpu", Request: cluster.Resources{CPU: cluster.VCPU, Memory: 1 << 30}, Nodes: map[string]bool{"elsewhere": true}}}}
	sizes := func(reserve catalogue.Reserve) map[string]cluster.Resources {
		f, err := New(c, models, reserve)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]cluster.Resources{}
		for _, m := range f.Pools[0].Catalogue {
			got[m.Name] = m.Size
		}
		return got
	}
	want := map[string]cluster.Resources{"m.large": {CPU: cluster.VCPU / 2, Memory: 4 << 30}, "m.xlarge": {CPU: 3 * cluster.VCPU / 2, Memory: 8 << 30}}
	if diff := cmp.Diff(want, sizes(catalogue.Reserve{})); diff != "" {
		t.Errorf("left for pods (-want +got):\n%s", diff)
	}
	want = map[string]cluster.Resources{"m.large": {CPU: cluster.VCPU - 1, Memory: 5 << 30}, "m.xlarge": {CPU: 2*cluster.VCPU - 1, Memory: 9 << 30}}
	if diff := cmp.Diff(want, sizes(catalogue.Reserve{DaemonSets: cluster.Resources{CPU: 1}})); diff != "" {
		t.Errorf("left for pods, with DaemonSets given (-want +got):\n%s", diff)
	}
}

// Models that no node is of take as many pods as the catalogue says, unless kubelets are told to take fewer.
func TestPodsOfUnseenModels(t *testing.T) {
	larger := append(slices.Clone(models), cluster.Model{Name: "m.2xlarge", Size: cluster.Resources{CPU: 8 * cluster.VCPU, Memory: 32 << 30}, Price: 400, Pods: 234})
	for _, tt := range []struct{ node, want int }{{30, 30}, {40, 234}, {50, 234}} {
		n := node("a")
		n.Pods = tt.node
		f, err := New(Cluster{Nodes: []cluster.Node{n}, Pods: []cluster.Pod{pod("1", "a")}}, larger, catalogue.Reserve{})
		if err != nil || f.Models[2].Pods != tt.want || f.Models[0].Pods != 20 {
			t.Errorf("nodes take %d pods: models %v, %v; want %d", tt.node, f.Models, err, tt.want)
		}
	}
}

// Where pods select models, or by labels that follow from models, only models of the pool are bought. Pods that do not fit as they are
// have no plan to start from.
func TestModelsOfPool(t *testing.T) {
	large := node("b", "node.kubernetes.io/instance-type=m.large")
	large.Model = "m.large"
	c := Cluster{Selectors: []string{"node.kubernetes.io/instance-type"}, Nodes: []cluster.Node{node("a", "node.kubernetes.io/instance-type=m.xlarge"), large},
		Pods: []cluster.Pod{pod("1", "a"), pod("2", "a"), pod("3", "a"), pod("4", "a")}}
	f, err := New(c, models, catalogue.Reserve{})
	if err != nil || len(f.Pools) != 2 {
		t.Fatalf("%d pools, %v; want 2", len(f.Pools), err)
	}
	for _, p := range f.Pools {
		if len(p.Catalogue) != 1 || p.Nodes[p.Catalogue[0].Name] != 1 {
			t.Errorf("pool %s: catalogue %v, nodes %v", p.User.Name, p.Catalogue, p.Nodes)
		}
		if fits := len(p.User.Pods) == 0; (p.Start != nil) != fits {
			t.Errorf("pool %s starts from %+v", p.User.Name, p.Start)
		}
	}
	for _, label := range []string{"eks.amazonaws.com/instance-cpu", "karpenter.azure.com/sku-cpu", "cloud.google.com/machine-family", "feature.node.kubernetes.io/cpu-model.id"} {
		f, err := New(Cluster{Selectors: []string{label}, Nodes: []cluster.Node{node("a", label+"=4")}, Pods: []cluster.Pod{pod("1", "a")}}, models, catalogue.Reserve{})
		if err != nil || len(f.Pools[0].Catalogue) != 1 || len(f.Pools[0].Unlimited) != 2 {
			t.Errorf("%s: catalogue %v, %v; want the model of the node", label, f.Pools[0].Catalogue, err)
		}
	}
	separate := Cluster{Nodes: []cluster.Node{node("a")}, Pods: []cluster.Pod{pod("1", "a"), pod("2", "a")}}
	separate.Pods[0].Rules, separate.Pods[1].Rules = cluster.Apart(3), cluster.Apart(3)
	if f, err := New(separate, models, catalogue.Reserve{}); err != nil || f.Pools[0].Start != nil {
		t.Errorf("pods that must be apart are on one node: plan %+v, %v", f.Pools[0].Start, err)
	}
}

func TestNotLarger(t *testing.T) {
	n := node("a")
	n.Model = "m.large"
	if got := NotLarger(models, []cluster.Node{n}); len(got) != 1 || got[0].Name != "m.large" {
		t.Errorf("got %v, want m.large", got)
	}
	if got := Provider([]cluster.Node{{}, {Provider: "gce://p/z/i"}}); got != catalogue.ReserveGKE {
		t.Errorf("provider %s", got)
	}
}

// Spot nodes with a price are pools of their own, at spot prices. A pool buys models of its
// architecture, or models that it has. Nodes with GPUs stay.
func TestSpotArchitecturesAndGPUs(t *testing.T) {
	c := cluster.Catalogue{{Name: "m.large", Size: models[0].Size, Price: 100, Spot: 30}, {Name: "m.xlarge", Size: models[1].Size, Price: 200, Spot: 60}, {Name: "m.2xlarge", Size: models[1].Size, Price: 190},
		{Name: "a.xlarge", Size: models[1].Size, Price: 150, Arch: "arm64"}, {Name: "g.xlarge", Size: models[1].Size, Price: 900, GPUs: 1}}
	arm, gpu := node("arm", "kubernetes.io/arch=arm64"), node("gpu")
	arm.Model, gpu.Model = "a.xlarge", "g.xlarge"
	f, err := New(Cluster{Nodes: []cluster.Node{node("spot", "eks.amazonaws.com/capacityType=SPOT"), node("demand", "eks.amazonaws.com/capacityType=ON_DEMAND"), arm, gpu}}, c, catalogue.Reserve{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range f.Pools {
		text := fmt.Sprint(p.Now, p.Spot)
		for _, m := range p.Catalogue {
			text += fmt.Sprintf(" %s=%d", m.Name, m.Price)
		}
		got[p.User.Name] = text
	}
	want := map[string]string{"spot": "60 true m.large=30 m.xlarge=60", "all nodes": "200 false m.large=100 m.xlarge=200 m.2xlarge=190", "arm64": "150 false a.xlarge=150"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Stay{{gpus, 1, 0, 900, 0}}, f.Stay); diff != "" {
		t.Errorf("nodes that stay (-want +got):\n%s", diff)
	}
}

// What a catalogue says of the memory that VMs offer counts before what other nodes offer.
func TestOfferedMemory(t *testing.T) {
	c := slices.Clone(models)
	c[0].Nominal, c[0].Size.Memory = c[0].Size, 7<<30
	n := node("a") // of 16 GiB it has 12
	f, err := New(Cluster{Nodes: []cluster.Node{n}}, c, catalogue.Reserve{})
	if err != nil || f.Models[0].Size.Memory != 7<<30 || f.Models[1].Size.Memory != 10<<30 {
		t.Errorf("models %v, %v; want 7 GiB, and the 10 GiB that the node has for pods", f.Models, err)
	}
}
