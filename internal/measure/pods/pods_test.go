package pods

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
)

func TestChoosePairs(t *testing.T) {
	for _, tt := range []struct {
		nodes string
		all   bool
		want  string
	}{
		{"a b c", false, "a:a a:b"},
		{"a b", true, "a:a a:b b:b"},
		{"a b c", true, "a:a a:b b:b a:c b:c c:c"},
		{"a", false, "choose nodes: there is no second node next to a; measure within it by --pairs a:a"},
		{"a", true, "choose nodes: there is no second node next to a; measure within it by --pairs a:a"},
		{"", false, "choose nodes: none is ready and takes pods; name some by --nodes, which may have taints"},
	} {
		pairs, err := choosePairs(strings.Fields(tt.nodes), tt.all)
		got := join(pairs)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%q, all %v: got %s, want %s", tt.nodes, tt.all, got, tt.want)
		}
	}
	if pairs, err := parsePairs("a:b,b:b"); err != nil || join(pairs) != "a:b b:b" {
		t.Errorf("got %v, %v", pairs, err)
	}
	if _, err := parsePairs("a:b,c"); err == nil || err.Error() != `--pairs: want two nodes such as node1:node2, or one twice, got "c"` {
		t.Errorf("got %v", err)
	}
}

func join(pairs []experiment.Pair) string {
	var all []string
	for _, p := range pairs {
		all = append(all, p.String())
	}
	return strings.Join(all, " ")
}

func TestUsableNodes(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus, taint corev1.TaintEffect, cordoned bool) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		if taint != "" {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: taint}}
		}
		return n
	}
	got := usable([]corev1.Node{
		node("z", corev1.ConditionTrue, "", false), node("control-plane", corev1.ConditionTrue, corev1.TaintEffectNoSchedule, false),
		node("dead", corev1.ConditionUnknown, "", false), node("cordoned", corev1.ConditionTrue, "", true),
		node("a", corev1.ConditionTrue, corev1.TaintEffectPreferNoSchedule, false),
	})
	if !slices.Equal(got, []string{"a", "z"}) {
		t.Errorf("got %q, want a and z", got)
	}
}

func spec(t *testing.T) *experiment.Spec {
	t.Helper()
	text, err := os.ReadFile("../../../experiments/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := experiment.Parse("cluster.yaml", append(text, `pairs: ["n1:n1", "n1:n2"]`+"\n"...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The configurations share pods where they can: each network has a client on n1, and a server on both
// nodes.
func TestObjects(t *testing.T) {
	roles := rolesOf(spec(t))
	if len(roles) != 9 {
		t.Fatalf("%d pods, want 9: %v", len(roles), roles)
	}
	p := newPlan("unnest-x", "ns", "image:1", time.Hour, roles)
	p.owner = []metav1.OwnerReference{{Kind: "Job", Name: "unnest-x", UID: "u"}}
	names := map[string]bool{}
	for _, r := range roles {
		pod := p.pod(r)
		names[pod.Name] = true
		if pod.Spec.HostNetwork != (r.network == stack.HostNetwork) || (pod.Spec.RuntimeClassName != nil) != (r.network == stack.BrFusion) {
			t.Errorf("%v: host network %v, RuntimeClass %v", r, pod.Spec.HostNetwork, pod.Spec.RuntimeClassName)
		}
		if nodeOf(pod) != r.node || len(pod.OwnerReferences) != 1 || *pod.Spec.ActiveDeadlineSeconds != 3600 || pod.Labels[runLabel] != "unnest-x" || pod.Namespace != "ns" {
			t.Errorf("%v: %+v", r, pod)
		}
	}
	if len(names) != len(roles) {
		t.Errorf("names are not different: %v", names)
	}
	server := role{stack.PodNetwork, serverSide, "n2"}
	s, pod := p.service(server), p.pod(server)
	for key, value := range s.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("the Service selects %s=%s, the pod has %v", key, value, pod.Labels)
		}
	}
	if len(s.Spec.Ports) != 2 || len(s.OwnerReferences) != 1 {
		t.Errorf("service %+v", s)
	}
	job := p.leaseObject(5 * time.Minute)
	if *job.Spec.Parallelism != 0 || *job.Spec.ActiveDeadlineSeconds != 300 || *job.Spec.TTLSecondsAfterFinished != 0 {
		t.Errorf("job %+v", job.Spec)
	}
	if n := p.namespaceObject(); n.OwnerReferences != nil || n.Labels[ownLabel] == "" || n.Name != "ns" {
		t.Errorf("namespace %+v", n)
	}
}

func TestReasons(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1"}}
		change(p)
		return p
	}
	waiting := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Image: "i:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	for _, tt := range []struct {
		pod  *corev1.Pod
		want string // of hopeless; empty: it may still start
	}{
		{pod(func(*corev1.Pod) {}), ""},
		{pod(waiting("ContainerCreating", "")), ""},
		{pod(waiting("ErrImagePull", "dial tcp: no route to host")), ""}, // the kubelet tries again once
		{pod(waiting("ImagePullBackOff", "Back-off pulling\nimage")), "image i:1 cannot be pulled on n1 (ImagePullBackOff Back-off pulling image): load bin/images/unnest-load.tar"},
		{pod(waiting("CreateContainerError", "no such file")), "pod p on n1: CreateContainerError no such file"},
		{pod(func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		}), "pod p on n1 was evicted: The node was low on resource: memory."},
		{pod(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"}}
		}), "pod p on n1 was evicted: EvictionByEvictionAPI: Eviction API: evicting"},
		{pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), "pod p on n1 is being deleted by somebody else"},
		{pod(func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "DeadlineExceeded" }), "pod p on n1 has ended: DeadlineExceeded"},
		{pod(func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}}}
		}), "pod p on n1 has ended: OOMKilled, exit code 137"},
	} {
		got := ""
		if err := hopeless(tt.pod); err != nil {
			got = err.Error()
		}
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	unscheduled := pod(func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available"}}
	})
	if got := waits(unscheduled); got != "it is not scheduled: 0/2 nodes are available" {
		t.Errorf("it waits for %q", got)
	}
}

// The CPU time of one node counts once, and that of two together.
func TestNodeTimes(t *testing.T) {
	printed := func(boots ...string) []byte {
		r := workload.LoadReport{}
		for i, boot := range boots {
			r.Before = append(r.Before, workload.MachineReading{Boot: boot, Stat: "cpu 100 0 100 0 0 0 0 0 0 0"})
			r.After = append(r.After, workload.MachineReading{Boot: boot, Stat: []string{"cpu 110 0 120 0 0 0 5 0 0 0", "cpu 101 0 101 0 0 1 0 0 0 0"}[i]})
		}
		text, _ := json.Marshal(r)
		return text
	}
	for _, tt := range []struct {
		boots          []string
		usr, sys, soft float64 // µs of 10,000 operations
	}{{[]string{"a", "a"}, 10, 20, 5}, {[]string{"a", "b"}, 11, 21, 6}} {
		values, boot, err := nodeTimes(printed(tt.boots...), 10000)
		if err != nil || boot != tt.boots[1] || len(values) != 3 {
			t.Fatalf("%v: %v, %s, %v", tt.boots, values, boot, err)
		}
		for i, want := range []float64{tt.usr, tt.sys, tt.soft} {
			if math.Abs(values[i].Value-want) > 1e-9 {
				t.Errorf("%v: %s = %v, want %v", tt.boots, values[i].Metric, values[i].Value, want)
			}
		}
	}
	if _, _, err := nodeTimes([]byte(`{}`), 1); err == nil {
		t.Error("a report without readings is accepted")
	}
	if _, err := between(workload.MachineReading{Boot: "a"}, workload.MachineReading{Boot: "b"}); err == nil || err.Error() != "the node was booted meanwhile" {
		t.Errorf("got %v", err)
	}
}

func TestConnectErrors(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	file := filepath.Join(t.TempDir(), "config")
	config := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}, {name: b, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: u, user: {}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ file, context, want string }{
		{"", "", "find a cluster: no kubeconfig; set KUBECONFIG, or give --kubeconfig FILE"},
		{"/nowhere/config", "", "read kubeconfig: stat /nowhere/config: no such file or directory; give another file by --kubeconfig"},
		{file, "x", `context "x": not in the kubeconfig; there are a, b`},
		{file, "b", "ask http://127.0.0.1:1 for its version: "},
	} {
		if _, err := Connect(t.Context(), tt.file, tt.context); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%+v: got %v", tt, err)
		}
	}
}

// The name of a node is that in the cluster.
func TestMachineOf(t *testing.T) {
	if m, err := machineOf("n1", []byte(`{"name":"","kernel":"6.1","vcpus":2}`)); err != nil || m.Name != "n1" || m.Kernel != "6.1" || m.VCPUs != 2 {
		t.Errorf("got %+v, %v", m, err)
	}
	if _, err := machineOf("n1", []byte("sh: not found")); err == nil || !strings.HasPrefix(err.Error(), "describe node n1: ") {
		t.Errorf("got %v", err)
	}
}
