package trace

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/kubernetes"
)

// podJSON is a pod with one container of 1 vCPU and 1 GiB, with more fields of its metadata and
// spec.
func podJSON(name, metadata, spec string) string {
	return `{"kind":"Pod","metadata":{"name":"` + name + `","namespace":"shop"` + metadata +
		`},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]` + spec + `}}`
}

func listJSON(items ...string) string {
	return `{"kind":"List","items":[` + strings.Join(items, ",") + `]}`
}

func daemonJSON(name, set, uid, node string) string {
	return podJSON(name, `,"ownerReferences":[{"kind":"DaemonSet","name":"`+set+`","uid":"`+uid+`","controller":true}]`, `,"nodeName":"`+node+`"`)
}

// readText reads a dump from standard input.
func readText(t *testing.T, text string, o Options) ([]cluster.User, Report, error) {
	t.Helper()
	o.Stdin = strings.NewReader(text)
	return Read(t.Context(), "kubectl", []string{"-"}, o)
}

const onePod = "shop web: c=1/1024\n"

// What kubectl and the shells that redirect it write, is read.
func TestKubectlForms(t *testing.T) {
	web := podJSON("web", "", "")
	utf16le := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune(listJSON(web))) {
		utf16le = binary.LittleEndian.AppendUint16(utf16le, unit)
	}
	for _, c := range []struct{ name, text string }{
		{"a byte order mark", "\ufeff" + listJSON(web)},
		{"UTF-16 of PowerShell", string(utf16le)},
		{"kubectl get all", listJSON(`{"kind":"Service","metadata":{"name":"s","namespace":"shop"}}`, web, `{"kind":"Deployment","metadata":{"name":"web"}}`)},
		{"a single pod", web},
		{"compressed", zip(t, listJSON(web), 0)},
		{"two documents", listJSON() + "\n" + web},
	} {
		users, rep, err := readText(t, c.text, Options{})
		if err != nil || show(users) != onePod {
			t.Errorf("%s: got %q, %v; want %q", c.name, show(users), err, onePod)
		}
		addsUp(t, rep)
	}
	node := `{"metadata":{"name":"n"},"spec":{},"status":{"capacity":{"cpu":"2","memory":"4Gi"}}}`
	bare := strings.Replace(web, `"kind":"Pod",`, "", 1)
	for _, text := range []string{ // as API servers return them, in any order of the keys
		`{"kind":"NodeList","items":[` + node + `]}{"kind":"PodList","items":[` + bare + `]}`,
		`{"items":[` + node + `],"kind":"NodeList"}{"items":[` + bare + `],"kind":"PodList"}`,
		`{"kind":"List","items":[` + node + `,` + bare + `]}`,
		`{"items":[` + node + `,` + bare + `]}`,
	} {
		users, rep, err := readText(t, text, Options{})
		if err != nil || show(users) != onePod || len(rep.Nodes) != 1 || rep.Nodes[0].Capacity.CPU != 2*cluster.VCPU {
			t.Errorf("%s: got %q, nodes %+v, %v", text, show(users), rep.Nodes, err)
		}
		addsUp(t, rep)
	}
	for _, c := range []struct{ text, want string }{
		{`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}`, "the list of pods is empty"},
		{bare, "an object has no kind, so it is not known what it is: add kind"},
		{"", "standard input: has no list of pods"},
		{"\ufeff", "standard input: has no list of pods"},
		{`{"kind":"Service","metadata":{"name":"s"}}`, "standard input: has 1 objects and no pod: make it with kubectl get pods"},
		{`[` + web + `]`, "begins with [, not with an object"},
	} {
		if _, _, err := readText(t, c.text, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.text, err, c.want)
		}
	}
}

// A byte order mark is no part of the first column of any text.
func TestByteOrderMark(t *testing.T) {
	tasks := "\ufeff" + read(t, "testdata/google2011/task_events/part-00000-of-00002.csv")
	dir := write(t, map[string]string{"task_events/part.csv": tasks, "job_events/part.csv": read(t, "testdata/google2011/job_events/part-00000-of-00001.csv")})
	_, rep, err := Read(t.Context(), "google2011", []string{dir}, Options{})
	if err != nil || rep.Broken != 0 {
		t.Errorf("%s, %v", shortly(rep), err)
	}
}

// A pod is not split if its containers share more than its network, or use the node's.
func TestKubectlWhole(t *testing.T) {
	for _, c := range []struct {
		metadata, spec string
		whole          bool
	}{
		{"", "", false},
		{"", `,"hostNetwork":true`, true},
		{"", `,"hostPID":true`, true},
		{"", `,"hostIPC":true`, true},
		{"", `,"shareProcessNamespace":true`, true},
		{"", `,"initContainers":[{"name":"i","ports":[{"hostPort":80}]}]`, true},
		{`,"annotations":{"kubernetes.io/config.mirror":"f00"}`, "", true},
		{`,"ownerReferences":[{"kind":"Node","name":"n1"}]`, "", true},
		{`,"ownerReferences":[{"kind":"ReplicaSet","name":"web-1","controller":true}]`, "", false},
	} {
		users, _, err := readText(t, podJSON("web", c.metadata, c.spec), Options{})
		if err != nil || users[0].Pods[0].Whole != c.whole {
			t.Errorf("%s %s: whole %v, error %v; want %v", c.metadata, c.spec, err == nil && users[0].Pods[0].Whole, err, c.whole)
		}
	}
}

// Pods of DaemonSets are what each VM runs, not pods to pack, whatever their owner.
func TestKubectlDaemonSets(t *testing.T) {
	text := listJSON(podJSON("web", `,"labels":{"team":"red"}`, ""), daemonJSON("cni-a", "cni", "1", "a"), daemonJSON("cni-b", "cni", "1", "b"), daemonJSON("log-a", "log", "2", "a"))
	for _, o := range []Options{{}, {OneOwner: true}, {OwnerLabel: "team"}} {
		users, rep, err := readText(t, text, o)
		if err != nil {
			t.Fatal(err)
		}
		addsUp(t, rep)
		want := cluster.PerVM{Request: cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 2 << 30}, Pods: 2}
		if len(users) != 1 || len(users[0].Pods) != 1 || users[0].PerVM != want || rep.excluded[Daemon] != 3 {
			t.Errorf("%+v: got %+v, %s; want one pod, and %s on every VM", o, users, shortly(rep), want)
		}
		if len(rep.DaemonSets) != 2 || rep.DaemonSets[0].Name != "shop/cni" || len(rep.DaemonSets[0].Nodes) != 2 {
			t.Errorf("DaemonSets %v", rep.DaemonSets)
		}
	}
}

// Two dumps of one cluster may overlap; two clusters are refused.
func TestKubectlTwoDumps(t *testing.T) {
	uid := func(x string) string { return `,"uid":"` + x + `"` }
	for _, c := range []struct{ name, a, b, want string }{
		{"the same pod", podJSON("web", uid("1"), ""), podJSON("web", uid("1"), ""), ""},
		{"other pods", podJSON("web", uid("1"), ""), podJSON("app", uid("2"), ""), ""},
		{"another pod of the name", podJSON("web", uid("1"), ""), podJSON("web", uid("2"), ""), "have different objects of the same name, pod shop/web"},
		{"pods without identity", podJSON("web", "", ""), podJSON("web", "", ""), "a.json and b.json have different objects of the same name, pod shop/web"},
		{"another DaemonSet of the name", daemonJSON("cni-a", "cni", "1", "a"), daemonJSON("cni-b", "cni", "2", "b"), "b.json have different objects of the same name, DaemonSet shop/cni"},
	} {
		dir := write(t, map[string]string{"a.json": listJSON(c.a, podJSON("x", uid("3"), "")), "b.json": c.b})
		_, rep, err := Read(t.Context(), "kubectl", []string{dir}, Options{})
		if c.want == "" {
			if err != nil || rep.Pods != 3-rep.excluded[Repeated] {
				t.Errorf("%s: %s, %v", c.name, shortly(rep), err)
			}
			addsUp(t, rep)
			continue
		}
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), dir+"/", ""), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if _, _, err := readText(t, listJSON(podJSON("web", "", ""), podJSON("web", "", "")), Options{}); err == nil {
		t.Error("two pods of one name in a dump were read as one")
	}
}

// What no VM of the catalogue has is named as left out.
func TestKubectlExtended(t *testing.T) {
	gpu := strings.Replace(podJSON("train", "", ""), `"cpu":"1"`, `"nvidia.com/gpu":"1","cpu":"1","ephemeral-storage":"1Gi"`, 1)
	huge := strings.Replace(podJSON("db", "", ""), `"cpu":"1"`, `"hugepages-2Mi":"64Mi"`, 1)
	none := strings.Replace(podJSON("web", "", ""), `"cpu":"1"`, `"nvidia.com/gpu":"0","cpu":"1","ephemeral-storage":"1Gi"`, 1)
	claim := podJSON("dra", "", `,"resourceClaims":[{"name":"g"}]`)
	users, rep, err := readText(t, listJSON(gpu, huge, none, claim), Options{})
	if err != nil || show(users) != onePod || rep.excluded[Extended] != 3 {
		t.Fatalf("got %q, %s, %v", show(users), shortly(rep), err)
	}
	want := []string{
		"Left out: 1 pods that request devices by a ResourceClaim, which the catalogue's VMs do not have.",
		"Left out: 1 pods that request hugepages-2Mi, which the catalogue's VMs do not have.",
		"Left out: 1 pods that request nvidia.com/gpu, which the catalogue's VMs do not have.",
	}
	if diff := cmp.Diff(want, rep.Remarks); diff != "" {
		t.Errorf("remarks (-want +got):\n%s", diff)
	}
	if _, _, err := readText(t, listJSON(gpu, huge), Options{}); err == nil || !strings.Contains(err.Error(), "(2 requests what no VM has: hugepages-2Mi, nvidia.com/gpu)") {
		t.Errorf("all pods request what no VM has: %v", err)
	}
}

// While a container is resized in place, it counts as the larger of what it has and asks for.
func TestKubectlResized(t *testing.T) {
	status := func(cpu, condition string) string {
		return strings.TrimSuffix(podJSON("web", "", ""), "}") + `,"status":{"conditions":[` + condition + `],"containerStatuses":[{"name":"c","allocatedResources":{"cpu":"` + cpu +
			`","memory":"2Gi"},"resources":{"requests":{"cpu":"` + cpu + `","memory":"512Mi"}}}]}}`
	}
	for _, c := range []struct{ text, want string }{
		{status("4", ""), "shop web: c=4/2048\n"},
		{status("500m", ""), "shop web: c=1/2048\n"},
		{status("500m", `{"type":"PodResizePending","reason":"Infeasible"}`), "shop web: c=0.5/2048\n"},
		{status("500m", `{"type":"PodResizePending","reason":"Deferred"}`), "shop web: c=1/2048\n"},
	} {
		users, _, err := readText(t, c.text, Options{})
		if err != nil || show(users) != c.want {
			t.Errorf("got %q, %v; want %q", show(users), err, c.want)
		}
	}
}

// Many large requests are beyond any machine, and do not overflow.
func TestKubectlOverflow(t *testing.T) {
	var containers []string
	for i := range 20_000 {
		containers = append(containers, fmt.Sprintf(`{"name":"c%d","resources":{"requests":{"cpu":"1M","memory":"1Pi"}}}`, i))
	}
	text := `{"kind":"Pod","metadata":{"name":"p","namespace":"n"},"spec":{"containers":[` + strings.Join(containers, ",") + `]}}`
	_, rep, err := readText(t, listJSON(text, podJSON("web", "", "")), Options{})
	if err != nil || rep.excluded[Beyond] != 1 || rep.Kept != 1 {
		t.Errorf("%s, %v; want one pod beyond any machine", shortly(rep), err)
	}
}

// The node of a pod that cannot be planned stays, and the pod is named.
func TestKubectlNodesOfOddPods(t *testing.T) {
	for spec, remark := range map[string]string{
		`"containers":[{"name":"c","resources":{"requests":{"cpu":"-1"}}}]`:    "Left out: 1 pods with a negative request.",
		`"containers":[{"name":"c","resources":{"requests":{"cpu":"1e400"}}}]`: "Left out: 1 pods with a request larger than any machine.",
		`"containers":[{"name":"c"}],"priority":1e30`:                          "",
		`"containers":"many"`: "",
	} {
		text := `{"kind":"Pod","metadata":{"name":"p","namespace":"n"},"spec":{"nodeName":"odd",` + spec + `}}`
		_, rep, err := readText(t, listJSON(text, podJSON("web", "", "")), Options{})
		if err != nil || !slices.Equal(rep.Bound, []string{"odd"}) || remark != "" && !slices.Contains(rep.Remarks, remark) || remark == "" && rep.Broken != 1 {
			t.Errorf("%s: %v: nodes %q, remarks %q", spec, err, rep.Bound, rep.Remarks)
		}
	}
}

// A pod that is being deleted needs no place, and neither does one of a DaemonSet.
func TestKubectlTerminating(t *testing.T) {
	for _, kind := range []string{"ReplicaSet", "DaemonSet"} {
		gone := `{"kind":"Pod","metadata":{"name":"old","namespace":"n","deletionTimestamp":"2026-11-23T21:20:00Z",
			"ownerReferences":[{"kind":"` + kind + `","name":"o","controller":true}]},
			"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"3"}}}]},"status":{"phase":"Running"}}`
		users, rep, err := readText(t, listJSON(gone, podJSON("web", "", "")), Options{})
		if err != nil || rep.excluded[Terminating] != 1 || len(users) != 1 || len(users[0].Pods) != 1 || users[0].PerVM != (cluster.PerVM{}) {
			t.Errorf("%s: %s, %v, %v; want only web", kind, shortly(rep), users, err)
		}
	}
}

// A pod without requests takes the place of a pod.
func TestKubectlBestEffort(t *testing.T) {
	users, rep, err := readText(t, strings.Replace(podJSON("web", "", ""), `"cpu":"1","memory":"1Gi"`, "", 1), Options{})
	if err != nil || show(users) != "shop web: c=0/0\n" || rep.notes[BestEffort] != 1 {
		t.Errorf("got %q, %s, %v", show(users), shortly(rep), err)
	}
}

// Which moment is planned is said unless it is plain.
func TestTimeRemarks(t *testing.T) {
	table := csvHead + "u,p,c,1,1\n"
	dir := write(t, map[string]string{"pods.csv": table, "pods.json": podJSON("web", "", "")})
	for _, c := range []struct {
		format, path string
		period       *Period
		want         string
	}{
		{"google2011", "testdata/google2011", nil, ""},
		{"google2011", "testdata/google2011", At(600 * time.Second), ""},
		{"google2011", "testdata/google2011", At(100 * time.Hour), "The last time in google2011 is 15m0s, before 100h0m0s (--at): what had not ended by then is planned."},
		{"google2011", "testdata/google2011", &Period{0, 600 * time.Second}, "All containers of google2011 from 0s to 10m0s are priced as if they ran at the same time."},
		{"google2019", "testdata/google2019", At(100 * time.Hour), "before 100h0m0s (--at)"},
		{"openb", "testdata/openb", nil, "All containers of openb, whenever they ran, are priced as if they ran at the same time: --at TIME keeps those of a moment."},
		{"dlrm", "testdata/dlrm", nil, "All containers of dlrm, whenever"},
		{"dlrm", "testdata/dlrm", At(100000 * time.Hour), "The last time in dlrm is"},
		{"alibaba2017", "testdata/alibaba2017", nil, "All containers of alibaba2017, whenever"},
		{"alibaba2018", "testdata/alibaba2018", At(10000 * time.Hour), "The last time in alibaba2018 is"},
		{"csv", dir + "/pods.csv", nil, "csv has no times: all containers are priced as if they ran at the same time."},
		{"csv", dir + "/pods.csv", At(0), "--at has no effect on csv, which has no times."},
		{"kubectl", dir + "/pods.json", nil, ""},
		{"kubectl", dir + "/pods.json", At(0), "--at has no effect on kubectl, which has no times."},
	} {
		_, rep, err := Read(t.Context(), c.format, []string{c.path}, Options{Period: c.period})
		if err != nil && !strings.Contains(err.Error(), "no pod is left") {
			t.Errorf("%s %v: %v", c.format, c.period, err)
		}
		if got := strings.Join(rep.Remarks, " "); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s %v: remarks %q, want %q", c.format, c.period, got, c.want)
		}
	}
}

// A file that is named twice is read once.
func TestReadOnce(t *testing.T) {
	dir := write(t, map[string]string{"a.csv": csvHead + "u,p,a,1,1\n", "b.csv": csvHead + "u,p,b,1,1\n"})
	_, rep, err := Read(t.Context(), "csv", []string{dir + "/a.csv", dir + "/*.csv", dir + "/./a.csv", dir}, Options{})
	if err != nil || rep.Containers != 2 || rep.Files != 2 {
		t.Errorf("%d containers of %d files, %v; want 2 of 2", rep.Containers, rep.Files, err)
	}
}

// A generated cluster has nodes, and rules of each kind.
func TestKubectlCluster(t *testing.T) {
	var text strings.Builder
	if err := (kubernetes.SyntheticCluster{Seed: 1}).WriteDump(&text); err != nil {
		t.Fatal(err)
	}
	users, rep, err := readText(t, text.String(), Options{OneOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	addsUp(t, rep)
	if len(rep.Nodes) != 50 || len(users) != 1 || users[0].Name != WholeCluster || len(rep.DaemonSets) != 5 || len(rep.DaemonSets[0].Nodes) != 50 || len(rep.Bound) != 2 {
		t.Errorf("%d nodes, %d users, %d DaemonSets; %s", len(rep.Nodes), len(users), len(rep.DaemonSets), shortly(rep))
	}
	n := rep.Nodes[0]
	if n.Model != "g5.xlarge" || !cmp.Equal(n.Taints, []string{"dedicated=gpu:NoSchedule"}) || n.Pods != 58 || n.Capacity.CPU != 4*cluster.VCPU || n.Allocatable.CPU >= n.Capacity.CPU {
		t.Errorf("node %+v", n)
	}
	how := map[cluster.Honoured]int{}
	for _, r := range rep.Rules {
		how[r.How]++
		if r.Pods == 0 {
			t.Errorf("rule %+v has no pods", r)
		}
	}
	if diff := cmp.Diff(map[cluster.Honoured]int{cluster.ByPool: 5, cluster.ByVM: 1, cluster.Stricter: 1, cluster.Later: 3, cluster.Moot: 1}, how); diff != "" {
		t.Errorf("rules (-want +got):\n%s: %+v", diff, rep.Rules)
	}
	if diff := cmp.Diff([]string{"kubernetes.io/arch", "topology.kubernetes.io/zone", "workload"}, rep.Selectors); diff != "" {
		t.Errorf("selectors (-want +got):\n%s", diff)
	}
	apart := 0
	for _, p := range users[0].Pods {
		if !p.Rules.None() {
			apart++
		}
		if p.Origin.Node == "" || p.Origin.Namespace == "" || p.Origin.Workload == "" || p.Name != p.Origin.Namespace+"/"+p.Origin.Name {
			t.Fatalf("pod %+v of %+v", p.Name, p.Origin)
		}
	}
	if apart == 0 {
		t.Error("no pods are apart")
	}
}

// Rules about the VM of a pod are kept, or named.
func TestKubectlRules(t *testing.T) {
	term := func(kind, topology, app string) string {
		return `,"affinity":{"` + kind + `":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"` + topology + `","labelSelector":{"matchExpressions":[{"key":"app","operator":"In","values":["` + app + `"]}]}}]}}`
	}
	spread := func(topology, skew, when string) string {
		return `,"topologySpreadConstraints":[{"maxSkew":` + skew + `,"topologyKey":"` + topology + `","whenUnsatisfiable":"` + when + `","labelSelector":{"matchLabels":{"app":"web"}}}]`
	}
	const labels = `,"labels":{"app":"web"}`
	for _, c := range []struct {
		metadata, spec string
		how            cluster.Honoured
		apart, pinned  bool // apart: the pod has rules
		oneSided       bool
	}{
		{labels, term("podAntiAffinity", "kubernetes.io/hostname", "web"), cluster.ByVM, true, false, false},
		{labels, term("podAntiAffinity", "kubernetes.io/hostname", "db"), cluster.ByVM, true, false, true},
		{labels, term("podAntiAffinity", "topology.kubernetes.io/zone", "web"), cluster.ByPool, false, false, false},
		{labels, term("podAffinity", "kubernetes.io/hostname", "db"), cluster.Not, false, false, false},
		{labels, term("podAffinity", "topology.kubernetes.io/zone", "db"), cluster.ByPool, false, false, false},
		{labels, spread("kubernetes.io/hostname", "1", "DoNotSchedule"), cluster.Stricter, true, false, false},
		{labels, spread("kubernetes.io/hostname", "2", "DoNotSchedule"), cluster.Stricter, true, false, false},
		{labels, spread("kubernetes.io/hostname", "1", "ScheduleAnyway"), cluster.Ignored, false, false, false},
		{labels, spread("topology.kubernetes.io/zone", "1", "DoNotSchedule"), cluster.ByPool, false, false, false},
		{"", `,"nodeSelector":{"kubernetes.io/hostname":"a"}`, cluster.ByPool, false, true, false},
		{"", `,"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{}]}}`, cluster.Ignored, false, false, false},
		{"", `,"priority":7`, cluster.Moot, false, false, false},
		{"", `,"schedulerName":"fast"`, cluster.Not, false, false, false},
		{"", `,"schedulingDream":{"near":"db"}`, cluster.Not, false, false, false},
		{`,"annotations":{"karpenter.sh/do-not-disrupt":"true"}`, "", cluster.Later, false, false, false},
	} {
		users, rep, err := readText(t, listJSON(podJSON("a", c.metadata, c.spec), podJSON("b", c.metadata, c.spec)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := users[0].Pods[1]
		if len(rep.Rules) != 1 || rep.Rules[0].How != c.how || rep.Rules[0].Pods != 2 || p.Rules.None() == c.apart || p.Rules.Clash(users[0].Pods[0].Rules) != (c.how == cluster.ByVM && c.apart && !c.oneSided) || p.Origin.Pinned != c.pinned || (p.Origin.Held != "") != (c.how == cluster.Not) {
			t.Errorf("%s %s: rules %+v, of the pod %+v, origin %+v; want %+v", c.metadata, c.spec, rep.Rules, p.Rules, p.Origin, c)
		}
	}
}

// The node of a pod whose links cannot be read stays, as that of any pod that cannot be read.
func TestNodeOfWrongLinks(t *testing.T) {
	const pod = `{"kind":"Pod","metadata":{"name":"%s","annotations":{"unnest.io/links":"%s"}},"spec":{"nodeName":"n1","containers":[{"name":"a"},{"name":"b"}]}}`
	_, rep, err := readText(t, `{"kind":"List","items":[`+fmt.Sprintf(pod, "x", "a:b=1")+","+fmt.Sprintf(pod, "y", "a:c=1")+`]}`, Options{Links: true, OneOwner: true, MaxBroken: 1})
	if err != nil || rep.Broken != 1 || !slices.Equal(rep.Bound, []string{"n1"}) {
		t.Errorf("%d broken, bound %v, %v; want n1", rep.Broken, rep.Bound, err)
	}
}

// Rows that occur twice are told.
func TestRepeatedRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods.csv")
	if err := os.WriteFile(path, []byte("user,pod,container,cpu,memory\nann,web,app,1,1Gi\nann,web,log,1,1Gi\nann,web,app,1,1Gi\nann,db,app,1,1Gi\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, rep, err := Read(t.Context(), "csv", []string{path}, Options{})
	if err != nil || !strings.Contains(strings.Join(rep.Remarks, " "), "1 containers have the name of another of their pod, such as of ann/web") {
		t.Errorf("remarks %v, %v", rep.Remarks, err)
	}
}
