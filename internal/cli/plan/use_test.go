package plan

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"unnest.io/unnest/internal/plan/kubernetes"
	"unnest.io/unnest/internal/plan/summary"
)

// dumpAndUse writes the dump of a generated cluster, and metrics with which its containers use
// so many percent of what they request.
func dumpAndUse(t *testing.T, nodes int, percent int64) (dump, metrics string) {
	t.Helper()
	var text strings.Builder
	if err := (kubernetes.SyntheticCluster{Seed: 1, Nodes: nodes}).WriteDump(&text); err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
			Spec     struct {
				Containers []struct {
					Name      string
					Resources struct {
						Requests map[string]resource.Quantity
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text.String()), &list); err != nil {
		t.Fatal(err)
	}
	var pods []string
	for _, p := range list.Items {
		if p.Kind != "Pod" {
			continue
		}
		var containers []string
		for _, c := range p.Spec.Containers {
			cpu, memory := c.Resources.Requests["cpu"], c.Resources.Requests["memory"]
			containers = append(containers, fmt.Sprintf(`{"name":%q,"usage":{"cpu":"%dm","memory":"%dKi"}}`, c.Name, cpu.MilliValue()*percent/100, memory.Value()/1024*percent/100))
		}
		pods = append(pods, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q},"containers":[%s]}`, p.Metadata.Name, p.Metadata.Namespace, strings.Join(containers, ",")))
	}
	return "kubectl:" + file(t, "cluster.json", text.String()), "metrics:" + file(t, "metrics.json", `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[`+strings.Join(pods, ",")+`]}`)
}

// With metrics, the answer says what packing, right-sizing and splitting save, and these add up.
// What one could pay is not less than the bound.
func TestUse(t *testing.T) {
	dump, metrics := dumpAndUse(t, 12, 40)
	dir := filepath.Join(t.TempDir(), "requests")
	r := decode(t, must(t, "--trace", dump, "--use", metrics, "--write", dir, "--json"))
	c, u := r.Today, r.Use
	if u == nil || c.Sized == nil {
		t.Fatal("the result has no use")
	}
	plain := clusterOf(t, "--trace", dump)
	if c.Now != plain.Now || c.Packed != plain.Packed || c.Split != plain.Split {
		t.Errorf("with metrics, requests as they are cost %s, %s, %s; want %s, %s, %s", c.Now, c.Packed, c.Split, plain.Now, plain.Packed, plain.Split)
	}
	if !(c.Sized.Bound <= c.Sized.Split && c.Sized.Split <= c.Sized.Packed && c.Sized.Packed < c.Packed) {
		t.Errorf("bound %s, split %s, packed %s, as requested %s: want them to ascend", c.Sized.Bound, c.Sized.Split, c.Sized.Packed, c.Packed)
	}
	saved := summary.Dollars(0)
	for i, measure := range []string{summary.MeasurePacking, summary.MeasureSizing, summary.MeasureSplitting} {
		if u.Saves[i].Measure != measure || u.Saves[i].Saves < 0 {
			t.Errorf("measure %d is %+v, want %s", i, u.Saves[i], measure)
		}
		saved += u.Saves[i].Saves
	}
	steps := summary.Dollars(0)
	for _, s := range c.Steps {
		steps += s.Saves
	}
	if saved != c.Now-c.Sized.Split || steps != saved {
		t.Errorf("the measures save %s, the steps %s; want %s", saved, steps, c.Now-c.Sized.Split)
	}
	if u.Sized.VCPU > .5*u.Requested.VCPU || u.Sized.GiB > .5*u.Requested.GiB || u.Known != u.Containers || u.Samples != 1 {
		t.Errorf("use %+v", u)
	}
	for _, p := range c.Pools {
		placed := map[string]bool{}
		for _, vm := range p.Final().Placement {
			for _, pod := range vm.Pods {
				placed[pod.Pod] = true
			}
		}
		if len(p.Final().Placement) > 0 && len(placed) != p.Pods {
			t.Errorf("pool %s places %d of %d pods", p.Name, len(placed), p.Pods)
		}
	}
	patches, err := filepath.Glob(filepath.Join(dir, "requests", "ns-*_statefulset_app-*.json"))
	if err != nil || len(patches) == 0 {
		t.Fatalf("no patches: %v", err)
	}
	text, err := os.ReadFile(patches[0])
	if err != nil || !strings.Contains(string(text), `"kind": "StatefulSet"`) || !strings.Contains(string(text), `"requests": {`) {
		t.Errorf("%s: %v\n%s", patches[0], err, text)
	}
}

// The first ten lines of the text answer what one pays, could pay, and does next.
func TestUseInText(t *testing.T) {
	dump, metrics := dumpAndUse(t, 12, 40)
	text := must(t, "--trace", dump, "--use", metrics)
	first := strings.Join(strings.SplitAfterN(text, "\n", 11)[:10], "")
	for _, want := range []string{"You pay ", "You could pay ", "packing whole pods saves ", "right-sizing requests saves ", "- Do next, once disruption budget "} {
		if !strings.Contains(words(first), want) {
			t.Errorf("the first ten lines lack %q:\n%s", want, first)
		}
	}
	for _, want := range []string{"Some use is a single measurement, which shows no peaks", "What each measure saves after those before it", "Cost by requests, $/h", "set requests by use and replace", "Use of 62 containers was read that no planned pod has, such as DaemonSets"} {
		if !strings.Contains(words(text), want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

// Use above the requests costs more, and is said. Without nodes, the plans are compared with
// kubernetes.
func TestUseAboveRequests(t *testing.T) {
	dump, metrics := dumpAndUse(t, 6, 100)
	r := decode(t, must(t, "--trace", dump, "--use", metrics, "--json"))
	if r.Use.Raised == 0 || r.Use.Lowered != 0 || r.Use.Saves[1].Saves > 0 || r.Today.Sized.Bound > r.Today.Sized.Split {
		t.Errorf("use %+v, bound %s, split %s", r.Use.Saves, r.Today.Sized.Bound, r.Today.Sized.Split)
	}
	one := "kubectl:" + file(t, "pods.json", kubeList(kubePod("a", "", "", ""), kubePod("b", "", "", "")))
	top := "metrics:" + file(t, "top.txt", "NAMESPACE POD NAME CPU(cores) MEMORY(bytes)\nshop a c 100m 64Mi\n")
	r = decode(t, must(t, "--trace", one, "--use", top, "--json"))
	if r.Today != nil || r.Use.Known != 1 || r.Use.Containers != 2 || r.PerUser[0].Sized == nil || r.PerUser[0].Sized.Best > r.PerUser[0].Cost.Best {
		t.Errorf("without nodes: use %+v, user %+v", r.Use, r.PerUser[0])
	}
	if text := words(must(t, "--trace", one, "--use", top)); !strings.Contains(text, "Without a use, so that their requests stay: 1 of 2 containers.") || !strings.Contains(text, "Against kubernetes ") {
		t.Errorf("without nodes:\n%s", text)
	}
}

func TestUseOptions(t *testing.T) {
	dump, metrics := dumpAndUse(t, 6, 40)
	of := "prometheus-cpu:" + file(t, "p.json", `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"namespace":"x","pod":"y","container":"z"},"values":[[1,"1"]]}]}}`)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--trace", dump, "--use", "vap:x"}, `unknown format "vap"`},
		{[]string{"--trace", dump, "--use", "metrics"}, "want FORMAT:PATH, such as metrics:use.json"},
		{[]string{"--trace", dump, "--use", "prometheus-cpu", "--kubeconfig", "default"}, "want FORMAT:PATH"},
		{[]string{"--trace", dump, "--headroom", "5"}, "needs --use"},
		{[]string{"--trace", dump, "--use", metrics, "--headroom", "-1"}, "want a percentage from 0 to 1000"},
		{[]string{"--trace", "csv:" + file(t, "pods.csv", pods), "--use", metrics}, "want a dump of kubectl"},
		{[]string{"--trace", dump, "--use", of}, "none of the "},
		{[]string{"--trace", dump, "--use", "vpa:" + file(t, "v.json", "{}")}, "--use vpa: "},
	} {
		if _, err := execute(t.Context(), t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: error %v, want %q", tt.args, err, tt.want)
		}
	}
}

// kubectl reads the metrics of a live cluster.
func TestUseOfKubeconfig(t *testing.T) {
	dump, metrics := dumpAndUse(t, 6, 40)
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\necho \"$*\" >> %s/args\ncase \"$2\" in --raw) cat %s;; *) cat %s;; esac\n", dir, strings.TrimPrefix(metrics, "metrics:"), strings.TrimPrefix(dump, "kubectl:"))
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	want := decode(t, must(t, "--trace", dump, "--use", metrics, "--json"))
	got := decode(t, must(t, "--kubeconfig", "/k", "--use", "metrics", "--json"))
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil || !strings.Contains(string(args), "get --raw /apis/metrics.k8s.io/v1beta1/pods --kubeconfig /k\n") || got.Today.Sized.Split != want.Today.Sized.Split {
		t.Errorf("kubectl %q, %v; cost %s, want %s", args, err, got.Today.Sized.Split, want.Today.Sized.Split)
	}
}

// sized returns a dump of three m6i.2xlarge with a pod of the Deployment web each, and metrics of the pods.
func sized(t *testing.T, use string, more ...string) (dump, metrics string) {
	t.Helper()
	web := workload{name: "web", replicas: 3, nodes: 3, requests: []object{{"cpu": "3500m", "memory": "1Gi"}, {"cpu": "4", "memory": "1Gi"}}}
	pods := web.pods()
	for _, p := range pods {
		m := p.(object)["metadata"].(object)
		m["labels"] = object{"pod-template-hash": "h"}
		m["ownerReferences"] = []any{object{"kind": "ReplicaSet", "name": "web-h", "controller": true}}
	}
	nodes := nodesOf("m6i.2xlarge", 3)
	for _, model := range more {
		nodes[2].(object)["metadata"].(object)["labels"].(object)["node.kubernetes.io/instance-type"] = model
	}
	top := "NAMESPACE POD NAME CPU(cores) MEMORY(bytes)\n"
	for i, u := range strings.Split(use, ",") {
		a, b, _ := strings.Cut(u, "+")
		top += fmt.Sprintf("store web-%d c0 %s 100Mi\nstore web-%d c1 %s 100Mi\n", i, a, i, b)
	}
	return dumpOf(t, nodes, pods), "metrics:" + file(t, "top.txt", top)
}

// Right-sized pods keep the room and the place for their init containers. The bound is one for models
// that pods exclude, and steps that save too little are named.
func TestUseOfSomePods(t *testing.T) {
	init := func(cpu string) object {
		return object{"initContainers": []any{object{"name": "i", "resources": object{"requests": object{"cpu": cpu, "memory": "1Gi"}}}}}
	}
	notNano := object{"affinity": object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []any{
		object{"matchExpressions": []any{object{"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": []any{"t3.nano"}}}}}}}}}
	two := []object{{"cpu": "1800m", "memory": "1Gi"}, {"cpu": "3800m", "memory": "1Gi"}}
	for _, c := range []struct {
		name, model string
		pods        []workload
		use         string // of the container c0 of each workload
		args        []string
		split       string // after right-sizing
		bound       string
		tooLittle   bool
	}{
		{"init container", "m6i.xlarge", []workload{{name: "a", requests: request("1", "1Gi")}, {name: "b", requests: request("2", "1Gi"), spec: init("2")}}, "2400m 500m", nil, "0.384", "0.384", false},
		{"init container larger than the first", "m6i.2xlarge", []workload{{name: "a", requests: two, spec: init("1800m")}}, "1000m", nil, "0.384", "0.384", false},
		{"excluded model", "m6i.2xlarge", []workload{{name: "a", requests: request("3500m", "1Gi"), spec: notNano}}, "500m", nil, "0.384", "0.096", false},
		{"small saving", "m6i.xlarge", []workload{{name: "a", requests: request("3", "1Gi")}}, "500m", []string{"--min-saving", "0.15"}, "0.192", "0.096", true},
	} {
		top, used := "NAMESPACE POD NAME CPU(cores) MEMORY(bytes)\n", strings.Fields(c.use)
		var pods []any
		for i, w := range c.pods {
			w.replicas = 1
			pods = append(pods, w.pods()...)
			top += fmt.Sprintf("store %s-0 c0 %s 100Mi\n", w.name, used[i])
		}
		args := append([]string{"--trace", dumpOf(t, nodesOf(c.model, 1), pods), "--use", "metrics:" + file(t, "top.txt", top)}, c.args...)
		pool := clusterOf(t, args...).Pools[0]
		if c.name == "excluded model" {
			for _, name := range []string{pool.Name, "store"} {
				if text := must(t, "--trace", args[1], "--explain", name); !strings.Contains(text, "the bound is 0.192") {
					t.Errorf("the bound that is explained is not that for all models:\n%s", text)
				}
			}
		}
		if pool.Sized.Split.String() != c.split || pool.Sized.Bound.String() != c.bound || pool.TooLittle != c.tooLittle {
			t.Errorf("%s: by use %s, bound %s, left out %v; want %s, %s, %v", c.name, pool.Sized.Split, pool.Sized.Bound, pool.TooLittle, c.split, c.bound, c.tooLittle)
		}
	}
}

// What --write writes is of one plan: each pod that the placement splits has a manifest, and a
// plan that has no VMs of a cluster is refused.
func TestWrittenFilesAreOfOnePlan(t *testing.T) {
	dump, metrics := sized(t, "1000m+3000m,1000m+3000m,1000m+3000m")
	dir := filepath.Join(t.TempDir(), "out")
	c := decode(t, must(t, "--trace", dump, "--use", metrics, "--write", dir, "--json")).Today
	if c.Pools[0].PodsSplit > 0 || c.Pools[0].Final().PodsSplit == 0 {
		t.Fatalf("split %d pods as requested, %d as used: want none, and some", c.Pools[0].PodsSplit, c.Pools[0].Final().PodsSplit)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "manifests", "*")); err != nil || len(files) == 0 {
		t.Errorf("no manifest of the pods that are split: %v", err)
	}
	if _, err := execute(t.Context(), t, "--trace", dump, "--write", "hostlo:"+dir+"2"); err == nil || !strings.Contains(err.Error(), "--write hostlo:") {
		t.Errorf("VMs of hostlo: error %v", err)
	}
}

// A workload of which a plan splits some pods gets no patch, wherever the others are.
func TestPartlySplitOverPools(t *testing.T) {
	nodes := relabelled(nodesOf("m6i.2xlarge", 2), "", "team", "a", "b")
	web := workload{name: "web", kind: "StatefulSet", replicas: 2, nodes: 2, requests: []object{{"cpu": "1800m", "memory": "1Gi"}, {"cpu": "3800m", "memory": "1Gi"}}}
	with := func(spec object) string {
		all, dir := web, filepath.Join(t.TempDir(), "out")
		filler := workload{name: "x", replicas: 1, from: 1, requests: request("2", "1Gi"), spec: spec}
		all.spec = object{"nodeSelector": object{"team": "a"}}
		pods := all.pods()
		pods[1].(object)["spec"].(object)["nodeSelector"] = object{"team": "b"}
		must(t, "--trace", dumpOf(t, nodes, pods, filler.pods()), "--write", dir)
		return readFile(t, filepath.Join(dir, "manifests", "store_statefulset_web.yaml"))
	}
	for name, spec := range map[string]object{"on a node of another pool": nil, "on a node that stays": {"nodeSelector": object{"kubernetes.io/hostname": "vm-1"}}} {
		if text := with(spec); !strings.HasPrefix(text, "# Not a patch: the plan splits 1 of 2 pods") {
			t.Errorf("the other pod is %s:\n%s", name, text)
		}
	}
}

// Pods of a workload have one template: one on a node that stays counts, too.
func TestUseOfPodsThatStay(t *testing.T) {
	dump, metrics := sized(t, "100m+100m,100m+100m,100m+2000m", "z9.large")
	u := decode(t, must(t, "--trace", dump, "--use", metrics, "--json")).Use
	for _, c := range u.Changes {
		if c.Container == "c1" && c.To.VCPU < 2 {
			t.Errorf("the change is %+v: a pod uses 2 vCPUs", c)
		}
	}
	if u.Unmatched != 0 {
		t.Errorf("%d uses are of no pod", u.Unmatched)
	}
}

// The pods of a namespace of a cluster are explained with its models and limits.
func TestExplainNamespaceOfCluster(t *testing.T) {
	web := workload{name: "web", labels: "app=web", replicas: 2, nodes: 2, requests: []object{{"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"}}, spec: spreadBy("app", "web", nil)}
	text := must(t, "--trace", dumpOf(t, nodesOf("m6i.xlarge", 2), web.pods()), "--explain", "store")
	if !strings.Contains(text, "m6i.large") || strings.Contains(text, " large") {
		t.Errorf("the namespace is not explained with the models of the cluster:\n%s", text)
	}
}
