package manifest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/summary"
)

// split is a plan that splits the i-th pod.
func split(i int) cluster.Plan {
	return cluster.Plan{VMs: []cluster.VM{{ID: 3, Parts: []cluster.Part{{Pod: i, Container: 0}}}, {ID: 5, Parts: []cluster.Part{{Pod: i, Container: 1}}}}}
}

// Whoever pays, a pod of Kubernetes has its own namespace and name.
func TestManifestNamespace(t *testing.T) {
	u := cluster.User{Name: "team/red", Pods: []cluster.Pod{{Name: "shop/web.0", Origin: &cluster.Origin{Namespace: "shop", Name: "web.0"},
		Containers: []cluster.Container{{Name: "a"}, {Name: "b"}}}}}
	got := Split(u, u.Pods, cluster.Catalogue{{Name: "large"}}, split(0))
	want := []Pod{{"team/red", "shop", "web.0", []Fraction{{3, "large", []string{"a"}}, {5, "large", []string{"b"}}}, "", "", 0, "web.0"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Pod{})); diff != "" {
		t.Errorf("split pods (-want +got):\n%s", diff)
	}
}

// A patch must not reach another pod: "A 1" and "a/1" would both be a-1, which a third pod is.
func TestManifestAmbiguousNames(t *testing.T) {
	u := cluster.User{Name: "ann"}
	for _, name := range []string{"a-1", "A 1", "a/1", "B 2"} {
		u.Pods = append(u.Pods, cluster.Pod{Name: name, Containers: []cluster.Container{{Name: "a"}, {Name: "b"}}})
	}
	var got []string
	for i := range u.Pods {
		got = append(got, Split(u, u.Pods, cluster.Catalogue{{Name: "large"}}, split(i))[0].kubeName)
	}
	want := []string{"a-1", "a-1-" + got[1][4:], "a-1-" + got[2][4:], "b-2"}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || got[1] == got[2] || len(got[1]) != len("a-1-")+16 {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// The pods of a workload are split by its template, as most of them are; a pod of its own by
// itself.
func TestWorkloads(t *testing.T) {
	pod := func(name, kind, workload string, fractions ...string) Pod {
		p := Pod{User: "cluster", Namespace: "shop", Name: name, Kind: kind, Workload: workload, kubeName: name}
		for i, containers := range fractions {
			p.Fractions = append(p.Fractions, Fraction{i, "large", strings.Split(containers, " ")})
		}
		return p
	}
	files := Files([]Pod{pod("web-1", "Deployment", "web", "front c", "b", "a"), pod("web-2", "Deployment", "web", "front c", "a", "b"), pod("web-3", "Deployment", "web", "front", "b c", "a"), pod("alone", "", "", "a", "b")})
	want := `# 2 of its pods are split so in the plan, 1 otherwise.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: "web"
  namespace: "shop"
spec:
  template:
    metadata:
      annotations:
        unnest.io/split: "front,c;a;b"
`
	if len(files) != 2 || !strings.Contains(string(files[0].Text), "kind: Pod") || files[1].Name != "shop_deployment_web.yaml" {
		t.Fatalf("files %v", files)
	}
	if diff := cmp.Diff(want, string(files[1].Text)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}

// The fraction of the first container is the pod of Kubernetes. Sidecars are init containers, which no annotation names.
func TestFirstFraction(t *testing.T) {
	parts := func(containers ...int) (all []cluster.Part) {
		for _, k := range containers {
			all = append(all, cluster.Part{Container: k})
		}
		return all
	}
	for want, vms := range map[string][]cluster.VM{
		"front,log;back": {{Parts: parts(0, 3)}, {Parts: parts(1, 2)}},
		"front;log;back": {{Parts: parts(0, -1)}, {Parts: parts(2)}, {Parts: parts(3)}, {Parts: parts(1)}},
		"none":           {{Parts: parts(0)}, {Parts: parts(1, 2, 3)}},
	} {
		u := cluster.User{Pods: []cluster.Pod{{Name: "web", Origin: &cluster.Origin{Namespace: "shop", Name: "web", Sidecars: 1},
			Containers: []cluster.Container{{Name: "proxy"}, {Name: "front"}, {Name: "log"}, {Name: "back"}}}}}
		got := "none"
		for _, p := range Split(u, u.Pods, cluster.Catalogue{{Name: "large"}}, cluster.Plan{VMs: vms}) {
			got = strings.Join(p.containers(), ";")
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A plan that splits some pods of a workload has no patch, which would split all.
func TestPartlySplitWorkload(t *testing.T) {
	origin := &cluster.Origin{Namespace: "shop", Name: "web-1", Kind: "Deployment", Workload: "web"}
	u := cluster.User{Pods: []cluster.Pod{{Name: "a", Origin: origin, Containers: []cluster.Container{{Name: "a"}, {Name: "b"}}}, {Name: "b", Origin: origin, Containers: []cluster.Container{{Name: "a"}, {Name: "b"}}}}}
	files := Files(Split(u, u.Pods, cluster.Catalogue{{Name: "large"}}, split(0)))
	if len(files) != 1 || !strings.HasPrefix(string(files[0].Text), "# Not a patch: the plan splits 1 of 2 pods") {
		t.Fatalf("files %s", files)
	}
	// Pods of the workload may be in other pools, or on nodes that stay.
	pool := cluster.User{Pods: u.Pods[:1]}
	if elsewhere := Files(Split(pool, u.Pods, cluster.Catalogue{{Name: "large"}}, split(0))); !slices.Equal(elsewhere[0].Text, files[0].Text) {
		t.Errorf("a pool with one of the pods: %s", elsewhere[0].Text)
	}
	for line := range strings.Lines(string(files[0].Text)) {
		if !strings.HasPrefix(line, "# ") {
			t.Errorf("line %q is not a comment", line)
		}
	}
}

// VMs are written for each tool, with zone, labels and taints of the pool.
func TestVMs(t *testing.T) {
	today := summary.Today{Pools: []summary.PoolCost{{Name: "a dedicated=db", Zone: "a", Labels: map[string]string{"disk": "ssd"}, Taints: []string{"dedicated=db:NoSchedule"},
		PoolPlan: summary.PoolPlan{PackedVMs: map[string]int{"m6i.large": 3}, SplitVMs: map[string]int{"m6i.large": 1, "m6i.xlarge": 1}, PodsSplit: 1, Placement: []summary.PlacedVM{{Model: "m6i.large"}}}}, {Name: "idle"}}}
	texts := map[string]string{}
	for _, f := range VMs(today, false) {
		var any any
		if err := json.Unmarshal(f.Text, &any); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		texts[f.Name] = strings.Join(strings.Fields(string(f.Text)), " ")
	}
	for name, wanted := range map[string][]string{
		"karpenter.json":         {`"kind": "NodePool"`, `"values": [ "m6i.large", "m6i.xlarge" ]`, `"values": [ "a" ]`, `"taints": [ { "effect": "NoSchedule", "key": "dedicated", "value": "db" } ]`, `"nodes": "3"`, `"disk": "ssd"`},
		"eksctl-nodegroups.json": {`"instanceType": "m6i.xlarge"`, `"availabilityZones": [ "a" ]`, `"desiredCapacity": 1`},
		"nodegroups.tf.json":     {`"unnest_0_1_m6i_xlarge": {`, `"effect": "NO_SCHEDULE"`, `"subnet_ids": "${var.subnet_ids[\"a\"]}"`, `"desired_size": 1`},
		"placement.json":         {`"a dedicated=db": [ { "model": "m6i.large"`},
	} {
		for _, want := range wanted {
			if !strings.Contains(texts[name], want) {
				t.Errorf("%s lacks %s:\n%s", name, want, texts[name])
			}
		}
	}
	if whole := string(VMs(today, true)[2].Text); !strings.Contains(whole, `"desiredCapacity": 3`) || strings.Contains(whole, "xlarge") {
		t.Errorf("for whole pods: %s", whole)
	}
}

// Labels that a tool reserves are not in its file. Those that no VM would have then are named. There
// is room for the VMs that replace others.
func TestLabelsOfTools(t *testing.T) {
	pool := summary.PoolCost{Name: "b", PoolPlan: summary.PoolPlan{SplitVMs: map[string]int{"m6i.large": 21}}, Labels: map[string]string{
		"disk": "ssd", "example.com/team": "red", "karpenter.sh/nodepool": "general", "node-role.kubernetes.io/worker": "", "kubernetes.io/hostname": "n", "eks.amazonaws.com/nodegroup": "ng-1",
		"topology.kubernetes.io/region": "us-east-1", "node.kubernetes.io/instance-type": "m6i.large", "karpenter.sh/capacity-type": "spot", "node-restriction.kubernetes.io/x": "y", "node.kubernetes.io/mine": "z"}}
	texts := map[string]string{}
	for _, f := range VMs(summary.Today{Pools: []summary.PoolCost{pool}}, false) {
		texts[f.Name] = strings.Join(strings.Fields(string(f.Text)), " ")
	}
	kubelet := `"labels": { "disk": "ssd", "example.com/team": "red", "node.kubernetes.io/mine": "z" }`
	for name, wanted := range map[string][]string{
		"karpenter.json": {`"labels": { "disk": "ssd", "example.com/team": "red", "node-restriction.kubernetes.io/x": "y", "node.kubernetes.io/mine": "z" }`, `"nodes": "24"`,
			`"unnest.io/missing-labels": "eks.amazonaws.com/nodegroup=ng-1,karpenter.sh/nodepool=general,node-role.kubernetes.io/worker="`},
		"eksctl-nodegroups.json": {kubelet, `"desiredCapacity": 21`, `"maxSize": 24`},
		"nodegroups.tf.json":     {kubelet, `"max_size": 24`},
	} {
		for _, want := range wanted {
			if !strings.Contains(texts[name], want) {
				t.Errorf("%s lacks %s:\n%s", name, want, texts[name])
			}
		}
	}
}

// Clouds have files of their own, in which spot pools are spot pools.
func TestVMsOfClouds(t *testing.T) {
	pool := summary.PoolCost{Name: "b spot", Zone: "eastus-2", Spot: true, Labels: map[string]string{"disk": "ssd"}, Taints: []string{"dedicated=db:NoSchedule"},
		PoolPlan: summary.PoolPlan{SplitVMs: map[string]int{"n2-standard-4": 2, "Standard_D4s_v5": 1}}}
	for provider, wanted := range map[string][]string{
		"aws":   {`"values": [ "spot" ]`, `"spot": true`, `"capacity_type": "SPOT"`},
		"gce":   {`"google_container_node_pool": { "unnest_0_0_standard_d4s_v5": {`, `"machine_type": "n2-standard-4"`, `"spot": true`, `"node_locations": [ "eastus-2" ]`, `"effect": "NO_SCHEDULE"`},
		"azure": {`"azurerm_kubernetes_cluster_node_pool"`, `"vm_size": "Standard_D4s_v5"`, `"name": "u0x1"`, `"zones": [ "2" ]`, `"node_taints": [ "dedicated=db:NoSchedule" ]`, `"priority": "Spot"`},
	} {
		var all string
		for _, f := range VMs(summary.Today{Provider: provider, Pools: []summary.PoolCost{pool}}, false) {
			var any any
			if err := json.Unmarshal(f.Text, &any); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
			all += strings.Join(strings.Fields(string(f.Text)), " ")
		}
		for _, want := range wanted {
			if !strings.Contains(all, want) {
				t.Errorf("%s: the files lack %s:\n%s", provider, want, all)
			}
		}
	}
}

// Requests are patches of the templates of workloads; sidecars are init containers.
func TestRequests(t *testing.T) {
	amount := summary.Amount{VCPU: .1, GiB: .25}
	files := Requests([]summary.Request{{Namespace: "shop", Kind: "Deployment", Workload: "web", Container: "app", To: amount}, {Namespace: "shop", Kind: "Pod", Workload: "x", Container: "app", To: amount},
		{Namespace: "shop", Kind: "Deployment", Workload: "web", Container: "proxy", Sidecar: true, To: amount}})
	const want = `{ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "shop" }, "spec": { "template": { "spec": { ` +
		`"containers": [ { "name": "app", "resources": { "requests": { "cpu": "100m", "memory": "256Mi" } } } ], ` +
		`"initContainers": [ { "name": "proxy", "resources": { "requests": { "cpu": "100m", "memory": "256Mi" } } } ] } } } }`
	exact := summary.Amount{VCPU: .1, GiB: 1e7 / (1 << 30)} // a limit of 10M, which 10Mi exceed
	for want, from := range map[string]summary.Amount{`"requests": { "cpu": "100m", "memory": "10000000" }`: {VCPU: 1, GiB: 1}, `"cpu": "100m", "memory": "10000000" }`: {VCPU: .1, GiB: exact.GiB}} {
		if text := strings.Join(strings.Fields(string(Requests([]summary.Request{{Kind: "Deployment", From: from, To: exact}})[0].Text)), " "); !strings.Contains(text, want) {
			t.Errorf("from %v: %s; want %s", from, text, want)
		}
	}
	if len(files) != 1 || files[0].Name != "shop_deployment_web.json" || strings.Join(strings.Fields(string(files[0].Text)), " ") != want {
		t.Errorf("files %s", files)
	}
}
