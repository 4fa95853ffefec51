//go:build kubernetes

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
)

// shortCluster has few and short executions: 12 in a repetition.
const shortCluster = `name: short
suite: cluster
configurations:
  - {name: node,     stack: kubernetes, network: host}
  - {name: service,  stack: kubernetes, network: service}
  - {name: brfusion, stack: kubernetes, network: brfusion}
cases:
  - {name: udp_rr,     workload: echo,   protocol: udp, sizes: [64],   duration: 1s, timeout: 60s}
  - {name: tcp_stream, workload: stream, protocol: tcp, sizes: [1280], duration: 1s, timeout: 60s}
warmup: 0
retries: 0
`

// clusterRun is a run of "unnest bench cluster".
type clusterRun struct{ dir, file string }

func (k *kubernetes) clusterRun() clusterRun {
	k.t.Helper()
	dir := k.t.TempDir()
	r := clusterRun{filepath.Join(dir, "run"), filepath.Join(dir, "short.yaml")}
	k.check(os.WriteFile(r.file, []byte(shortCluster), 0o600))
	return r
}

// bench starts "unnest bench cluster".
func (k *kubernetes) bench(args ...string) *running {
	r := launch(k.t, append([]string{k.unnest, "bench", "cluster", "--kubeconfig", k.config}, args...)...)
	k.whole.Cleanup(func() { _ = r.Process.Kill() })
	return r
}

// executions counts the samples of the primary metrics that are stored.
func (r clusterRun) executions() int {
	samples, _ := os.ReadFile(filepath.Join(r.dir, rundir.SamplesFile))
	return bytes.Count(samples, []byte(`"metric":"latency_mean"`)) + bytes.Count(samples, []byte(`"metric":"throughput"`))
}

// benchNamespaces names the namespaces of runs.
func (k *kubernetes) benchNamespaces() []string {
	return strings.Fields(k.ctl("get", "namespaces", "--selector=unnest.io/bench", "--output=jsonpath={.items[*].metadata.name}"))
}

// benchCluster measures in pods of the cluster: a run that is interrupted leaves nothing, and is
// resumed; an evicted pod is a hole with its reason; a killed run is removed by the cluster.
func (k *kubernetes) benchCluster() {
	mustRun(k.t, k.unnest, "cluster", "load", filepath.Join(k.binaries, "images", "unnest-load.tar"))
	one := k.clusterRun()
	r := k.bench(one.file, "--repetitions", "2", "-o", one.dir)
	k.within(10*time.Minute, "some executions are done", func() bool { k.runs(r); return one.executions() >= 3 })
	r.interrupt(k.t)
	if left := k.benchNamespaces(); len(left) > 0 {
		k.t.Errorf("the interrupted run has left %q:\n%s", left, r.out.String())
	}
	k.evicted(one)
	r = k.bench("--resume", one.dir)
	if code := r.end(k.t, 10*time.Minute); code != 0 {
		k.t.Fatalf("the run is not complete: exit code %d:\n%s", code, r.out.String())
	}
	k.checkRun(one, r.out.String())
	k.clusterErrors(one)
}

// runs fails the test if a program has ended.
func (k *kubernetes) runs(r *running) {
	k.t.Helper()
	select {
	case err := <-r.ended:
		k.t.Fatalf("it ended (%v):\n%s", err, r.out.String())
	default:
	}
}

// evicted evicts a pod of a resumed run, which goes on.
func (k *kubernetes) evicted(one clusterRun) {
	r := k.bench("--resume", one.dir)
	before := one.executions()
	k.within(10*time.Minute, "the run goes on", func() bool { k.runs(r); return one.executions() > before })
	namespace := k.benchNamespaces()[0]
	pod := strings.Fields(k.ctl("get", "pods", "--namespace="+namespace, "--output=jsonpath={.items[*].metadata.name}"))
	i := slices.IndexFunc(pod, func(name string) bool { return strings.Contains(name, "-brfusion-client-") })
	k.evict(namespace, pod[i])
	if code := r.end(k.t, 15*time.Minute); code != 1 && code != 0 {
		k.t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	run, _, err := rundir.Load(one.dir)
	k.check(err)
	if len(run.Failures) == 0 || one.executions()+len(run.Failures) != run.Planned {
		k.t.Errorf("%d of %d executions, failures %+v:\n%s", one.executions(), run.Planned, run.Failures, r.out.String())
	}
	for _, f := range run.Failures {
		if f.Configuration != "brfusion" || !regexp.MustCompile(`pod unnest-\S+ (on node\d )?(was evicted|is gone: it was evicted)`).MatchString(f.Error) {
			k.t.Errorf("a hole: %+v", f)
		}
	}
	k.t.Logf("holes: %+v", run.Failures)
}

func (k *kubernetes) evict(namespace, pod string) {
	k.t.Helper()
	cmd := exec.Command(k.kubectl, "--kubeconfig="+k.config, "create", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", namespace, pod), "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, pod, namespace))
	if out, err := cmd.CombinedOutput(); err != nil {
		k.t.Fatalf("evict %s: %v: %s", pod, err, out)
	}
}

// checkRun checks that a run is complete, and that other commands read it.
func (k *kubernetes) checkRun(one clusterRun, printed string) {
	k.t.Helper()
	run, samples, err := rundir.Load(one.dir)
	k.check(err)
	if run.State != result.Complete || one.executions() != 24 || len(run.Guests) != 2 || run.Accelerator != result.ClusterNodes {
		k.t.Errorf("%s, %d executions, nodes %+v, accelerator %s", run.State, one.executions(), run.Guests, run.Accelerator)
	}
	spent := map[string]float64{}
	for _, s := range samples {
		spent[s.Metric] += s.Value
	}
	for _, metric := range []string{"latency_mean", "transaction_rate", "throughput", "node_usr", "node_sys"} {
		if !(spent[metric] > 0) {
			k.t.Errorf("no %s: %v", metric, spent)
		}
	}
	for _, want := range []string{"within node1", "from node1 to node2", "nodes of a cluster", "brfusion"} {
		if !strings.Contains(printed, want) {
			k.t.Errorf("%q is not in:\n%s", want, printed)
		}
	}
	all := mustRun(k.t, k.unnest, "report", one.dir)
	for _, want := range []string{"CPU time per unit of work", "node total", "node node1 kernel"} {
		if !strings.Contains(all, want) {
			k.t.Errorf("%q is not in the report:\n%s", want, all)
		}
	}
	mustRun(k.t, k.unnest, "report", one.dir, "--format", "html")
	k.t.Logf("advice:\n%s", mustRun(k.t, k.unnest, "advise", one.dir))
}

// clusterErrors checks that mistakes and missing rights have one clear line, and that a killed run in a
// namespace of a user with few rights is removed by the cluster.
func (k *kubernetes) clusterErrors(one clusterRun) {
	for _, tt := range []struct{ args, want string }{
		{"--context nowhere", `context "nowhere": not in the kubeconfig; there are `},
		{"--nodes node1", "there is no second node next to node1; measure within it by --pairs node1:node1"},
		{"--image localhost/none:1 --pairs node1:node1", "image localhost/none:1 cannot be pulled on node1"},
		{"--namespace nowhere", `namespaces "nowhere" not found`},
		{"--pairs node1:node9 --wait 10s", "it is not scheduled: "},
	} {
		r := k.bench(append(strings.Fields(tt.args), "-o", one.dir+"-wrong", one.file)...)
		code := r.end(k.t, 10*time.Minute)
		lines := strings.Split(strings.TrimSpace(r.out.String()), "\n")
		if last := lines[len(lines)-1]; code != 1 || !strings.HasPrefix(last, "unnest: ") || !strings.Contains(last, tt.want) {
			k.t.Errorf("%s: exit code %d:\n%s", tt.args, code, r.out.String())
		}
	}
	if left := k.benchNamespaces(); len(left) > 0 {
		k.t.Errorf("failed runs have left %q", left)
	}
	k.fewRights(one)
}

// fewRights runs as a user who may create pods and run commands in them, in one namespace.
func (k *kubernetes) fewRights(one clusterRun) {
	k.ctl("create", "namespace", "bench")
	k.ctl("--namespace=bench", "create", "serviceaccount", "user")
	admin := k.config
	defer func() { k.config = admin }()
	config := filepath.Join(k.t.TempDir(), "kubeconfig")
	content, err := os.ReadFile(admin)
	k.check(err)
	k.check(os.WriteFile(config, content, 0o600))
	token := strings.TrimSpace(k.ctl("--namespace=bench", "create", "token", "user"))
	k.asUser(config, token)

	k.config = config
	r := k.bench(one.file, "--namespace", "bench", "--nodes", "node1,node2", "--leave-out", "service,brfusion", "--repetitions", "1", "-o", one.dir+"-forbidden")
	if code := r.end(k.t, 5*time.Minute); code != 1 || !strings.Contains(r.out.String(), "create pod ") || !strings.Contains(r.out.String(), "forbidden") {
		k.t.Errorf("without rights: exit code %d:\n%s", code, r.out.String())
	}
	k.config = admin
	k.ctl("--namespace=bench", "create", "role", "bench", "--verb=create,get,list,delete", "--resource=pods")
	k.ctl("--namespace=bench", "create", "role", "exec", "--verb=create", "--resource=pods/exec")
	k.ctl("--namespace=bench", "create", "role", "lease", "--verb=create,patch,delete", "--resource=jobs")
	for _, role := range []string{"bench", "exec", "lease"} {
		k.ctl("--namespace=bench", "create", "rolebinding", role, "--role="+role, "--serviceaccount=bench:user")
	}
	k.config = config
	two := clusterRun{dir: one.dir + "-few"}
	r = k.bench(one.file, "--namespace", "bench", "--nodes", "node1,node2", "--leave-out", "service,brfusion", "--repetitions", "20", "-o", two.dir)
	k.within(10*time.Minute, "some executions are done", func() bool { k.runs(r); return two.executions() >= 2 })
	r.kill(k.t)
	k.config = admin
	job := strings.Fields(k.ctl("--namespace=bench", "get", "jobs", "--output=jsonpath={.items[*].metadata.name}"))
	if len(job) != 1 {
		k.t.Fatalf("jobs: %q", job)
	}
	k.ctl("--namespace=bench", "patch", "job", job[0], "--type=merge", "--patch", `{"spec":{"activeDeadlineSeconds":1}}`) // nobody has renewed it
	k.eventually("what the killed run has made is gone", func() bool {
		return k.ctl("--namespace=bench", "get", "jobs,pods,services", "--output=name") == ""
	})
	k.ctl("delete", "namespace", "bench")
}

// asUser makes the token that of the kubeconfig's user.
func (k *kubernetes) asUser(config, token string) {
	k.t.Helper()
	view := mustRun(k.t, k.kubectl, "--kubeconfig="+config, "config", "view", "--raw", "--output=json")
	var all map[string]any
	k.check(json.Unmarshal([]byte(view), &all))
	for _, u := range all["users"].([]any) {
		u.(map[string]any)["user"] = map[string]any{"token": token}
	}
	content, err := json.Marshal(all)
	k.check(err)
	k.check(os.WriteFile(config, content, 0o600))
}
