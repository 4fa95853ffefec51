//go:build kubernetes

package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/cluster"
	"unnest.io/unnest/internal/testbed/guest"
)

var (
	splitReport = flag.String("split-report", "", "file for the page of TestKubernetesSplitStory, in Markdown")
	storyRounds = flag.Int("split-rounds", 1, "rounds in which TestKubernetesSplitStory compares a split pod with a whole one")
)

// splitStory is a cluster with the sizes of a cloud's smallest useful VMs, of which it has one too many.
type splitStory struct {
	*kubernetes
	span     string // of segments
	requests *requests
	phases   []string // rows of the page
	lost     []int    // by phase
	cost     [2]float64
	split    string                            // the annotation that the plan has written
	values   map[string][2][]stats.Observation // by metric: of the split pod, and of the whole one
}

// TestKubernetesSplitStory has pods on three nodes that do not fit whole on two. It plans, applies what the plan writes, and
// removes a node; requests are answered meanwhile. Then it compares a split pod with a whole one. It does so with both spans of segments.
func TestKubernetesSplitStory(t *testing.T) {
	var stories []*splitStory
	for _, span := range []string{cluster.SpanHost, cluster.SpanNetwork} {
		t.Run(span, func(t *testing.T) {
			s := &splitStory{kubernetes: newKubernetes(t, "--split-pods="+span, "--nodes=3"), span: span, values: map[string][2][]stats.Observation{}}
			for _, step := range []struct {
				name string
				run  func()
			}{
				{"up", s.start},
				{"three nodes", s.storyPods},
				{"a rolling update", func() {
					s.phase("a rolling update without splitting", func() {
						s.ctl("set", "env", "deployment/shop", "VERSION=2")
						s.ctl("rollout", "status", "deployment/shop", podLimit)
					})
				}},
				{"plan and apply", s.storySplit},
				{"two nodes", s.storyRemove},
				{"a split pod and a whole one", s.storyCompare},
				{"down", s.down},
			} {
				if !s.step(step.name, step.run) {
					return
				}
			}
			stories = append(stories, s)
		})
	}
	if !t.Failed() {
		storyReport(t, stories)
	}
}

// requests are sent one after the other, and counted.
type requests struct {
	mu             sync.Mutex
	answered, lost int
	longest        time.Duration // without an answer
	errors         []string
	stop           context.CancelFunc
	ended          chan struct{}
}

// sendRequests requests a URL until stop is called, with a new connection each.
func (s *splitStory) sendRequests(url, want string) *requests {
	ctx, stop := context.WithCancel(context.Background())
	r := &requests{stop: stop, ended: make(chan struct{})}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: s.fleet.Lab.Dial, DisableKeepAlives: true}}
	ask := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err == nil && (answer.StatusCode != http.StatusOK || string(body) != want) {
			err = fmt.Errorf("%s %q", answer.Status, body)
		}
		return err
	}
	go func() {
		defer close(r.ended)
		for last := time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			err := ask()
			if ctx.Err() != nil {
				return
			}
			r.mu.Lock()
			r.longest = max(r.longest, time.Since(last))
			if err == nil {
				r.answered, last = r.answered+1, time.Now()
			} else {
				r.lost++
				r.errors = append(r.errors, err.Error())
			}
			r.mu.Unlock()
		}
	}()
	return r
}

// take returns what has been counted, and begins anew.
func (r *requests) take() (answered, lost int, longest time.Duration, errors []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answered, lost, longest, errors = r.answered, r.lost, r.longest, r.errors
	r.answered, r.lost, r.longest, r.errors = 0, 0, 0, nil
	return answered, lost, longest, errors
}

// phase counts the requests while f runs, and some after it.
func (s *splitStory) phase(name string, f func()) {
	s.t.Helper()
	s.requests.take()
	begin := time.Now()
	f()
	took := time.Since(begin)
	s.requests.mu.Lock()
	so := s.requests.answered
	s.requests.mu.Unlock()
	s.eventually("twenty more requests are answered", func() bool {
		s.requests.mu.Lock()
		defer s.requests.mu.Unlock()
		return s.requests.answered >= so+20
	})
	answered, lost, longest, errors := s.requests.take()
	row := fmt.Sprintf("| %s | %.0f | %d | %d | %.1f |", name, took.Seconds(), answered, lost, longest.Seconds())
	s.t.Logf("%s %q", row, errors)
	s.phases, s.lost = append(s.phases, row), append(s.lost, lost)
	if limit := s.lost[min(1, len(s.lost)-1)]; lost > limit { // before and in the update without splitting it is its own limit
		s.t.Errorf("%s: %d requests are lost, and %d in a rolling update without splitting", name, lost, limit)
	}
}

// storyModel is the model that the nodes are said to be: it has 2 vCPUs, too.
const storyModel = "t3.small"

// storyPods makes two Deployments of one container that each takes most of a node, and one of two containers. A request to it is
// answered by its first container with what the second one answers at 127.0.0.1.
func (s *splitStory) storyPods() {
	s.ctl("label", "nodes", "--all", "node.kubernetes.io/instance-type="+storyModel, "topology.kubernetes.io/region=us-east-1", "topology.kubernetes.io/zone=us-east-1a")
	container := func(name, cpu, script string) map[string]any {
		return map[string]any{
			"name": name, "image": cluster.ToolsImage, "resources": map[string]any{"requests": map[string]string{"cpu": cpu, "memory": "100Mi"}},
			// It goes on serving while Services learn that it ends.
			"command": []string{"sh", "-c", script + " & trap 'sleep 10; exit 0' TERM; while :; do sleep 1; done"},
		}
	}
	web := func(name, listen string) string {
		return "busybox mkdir -p /www/cgi-bin; echo " + name + " >/www/index.html; httpd -f -p " + listen + " -h /www"
	}
	front := container("front", "500m", "busybox mkdir -p /www/cgi-bin; printf '#!/bin/sh\\necho; exec wget -q -O - http://127.0.0.1:8081/\\n' >/www/cgi-bin/get; busybox chmod +x /www/cgi-bin/get; httpd -f -p 8080 -h /www")
	front["readinessProbe"] = map[string]any{"httpGet": map[string]any{"path": "/cgi-bin/get", "port": 8080}, "periodSeconds": 2, "timeoutSeconds": 30}
	deploy := func(name string, containers ...any) {
		labels := map[string]string{"app": name}
		s.apply(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name}, "spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
				"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": containers, "terminationGracePeriodSeconds": 20},
			},
		}})
		s.ctl("rollout", "status", "deployment/"+name, podLimit)
	}
	deploy("mail", container("mail", "1200m", web("mail", "8080")))
	deploy("wiki", container("wiki", "1200m", web("wiki", "8080")))
	deploy("shop", front, container("back", "500m", web("back", "127.0.0.1:8081")))
	s.apply(service("shop", map[string]string{"app": "shop"}, map[string]any{"type": "NodePort", "ports": nodePort(30080)}))
	on := map[string]bool{}
	for _, app := range []string{"mail", "wiki", "shop"} {
		on[s.nodeOf(app)] = true
	}
	if len(on) != 3 {
		s.t.Fatalf("the pods are on %v, want three nodes", on)
	}
	// mail's node stays.
	url := "http://" + net.JoinHostPort(s.nodeAddresses(s.nodeOf("mail"))[0].String(), "30080") + "/cgi-bin/get"
	s.requests = s.sendRequests(url, "back\n")
	s.whole.Cleanup(func() { s.requests.stop(); <-s.requests.ended })
	s.eventually("the Service answers", func() bool {
		s.requests.mu.Lock()
		defer s.requests.mu.Unlock()
		return s.requests.answered > 0
	})
	s.phase("before", func() {})
}

// nodeOf returns the node of the pod with a label app, once there is one only.
func (s *splitStory) nodeOf(app string) (node string) {
	s.t.Helper()
	s.eventually("there is one pod of "+app, func() bool {
		nodes := strings.Fields(s.ctl("get", "pods", "--selector=app="+app, "--output=jsonpath={.items[*].spec.nodeName}"))
		if len(nodes) == 1 {
			node = nodes[0]
		}
		return len(nodes) == 1
	})
	return node
}

// storySplit plans and applies what the plan writes. The node of the pod that is to be split takes no pods any more.
func (s *splitStory) storySplit() {
	old := s.nodeOf("shop") // when the pod before the last update has ended
	dir := s.t.TempDir()
	offer, out := filepath.Join(dir, "offer.yaml"), filepath.Join(dir, "plan")
	s.check(os.WriteFile(offer, []byte("catalogues: [t3]\nmodels: ["+storyModel+"]\n"), 0o600))
	cmd := exec.Command(s.unnest, "plan", "--kubeconfig", s.config, "--catalogue", offer, "--write", out, "--json")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(s.kubectl)+":"+os.Getenv("PATH"))
	text, err := cmd.Output()
	s.check(err)
	var plan struct {
		Cluster struct {
			Now    float64 `json:"pay_now"`
			Packed float64 `json:"could_pay_packed"`
			Split  float64 `json:"could_pay_split"`
		}
	}
	s.check(json.Unmarshal(text, &plan))
	s.cost = [2]float64{plan.Cluster.Now, plan.Cluster.Split}
	s.t.Logf("the plan: %+v", plan.Cluster)
	if c := plan.Cluster; c.Packed != c.Now || c.Split >= c.Now {
		s.t.Errorf("the plan costs %v, whole %v and split %v $/h", c.Now, c.Packed, c.Split)
	}
	files, err := filepath.Glob(filepath.Join(out, "manifests", "*"))
	s.check(err)
	if len(files) != 1 {
		s.t.Fatalf("the plan has written %v, want one patch", files)
	}
	s.ctl("cordon", old)
	s.phase("the rolling update that splits it", func() {
		s.ctl("apply", "--server-side", "--field-manager=unnest-plan", "--filename="+files[0])
		s.ctl("rollout", "status", "deployment/shop", podLimit)
	})
	s.split = s.ctl("get", "deployment", "shop", `--output=jsonpath={.spec.template.metadata.annotations.unnest\.io/split}`)
}

// storyRemove removes the node that has no pods any more. Three are left on two nodes, and one of them is split.
func (s *splitStory) storyRemove() {
	var empty string
	s.eventually("a node is empty", func() bool {
		empty = s.ctl("get", "nodes", "--output=jsonpath={.items[?(@.spec.unschedulable==true)].metadata.name}")
		return empty != "" && s.ctl("get", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+empty, "--output=name") == ""
	})
	s.phase("its old node is removed", func() {
		s.ctl("drain", empty)
		s.ctl("delete", "node", empty)
		n, err := s.fleet.Find(empty)
		s.check(err)
		s.check(unix.Kill(n.PID, unix.SIGKILL))
	})
	s.phase("after", func() {})
	pods := s.ctl("get", "pods", "--output=custom-columns=POD:.metadata.name,NODE:.spec.nodeName,READY:.status.containerStatuses[*].ready", "--no-headers")
	s.t.Log("\n" + pods)
	on := map[string]bool{}
	for line := range strings.Lines(pods) {
		on[strings.Fields(line)[1]] = true
	}
	if n := strings.Count(pods, "\n"); n != 4 || len(on) != 2 || strings.Contains(pods, "false") {
		s.t.Errorf("%d fractions and pods are on %v, want 4 on two nodes, all ready", n, on)
	}
	s.requests.stop()
	<-s.requests.ended
}

// storyLoads are the loads that compare a split pod with a whole one.
var storyLoads = []localhostLoad{
	{"UDP ping-pong of 64 B, µs", "latency_mean", "sockperf", workload.Params{Protocol: workload.UDP, Size: 64, Duration: time.Second}, 11111},
	{"TCP stream of 16384 B, Mbit/s", "throughput", "iperf3", workload.Params{Protocol: workload.TCP, Size: 16384, Duration: time.Second}, 5201},
}

const storyStart = "start until Ready, s"

// storyCompare compares pods without requests, in rounds: the localhost of two that run, and the start of two more.
func (s *splitStory) storyCompare() {
	pod := func(name string, split bool) map[string]any {
		template := splitTemplate(map[string]string{"app": name})
		if !split {
			delete(template["metadata"].(map[string]any), "annotations")
		}
		template["metadata"].(map[string]any)["name"] = name
		template["apiVersion"], template["kind"] = "v1", "Pod"
		return template
	}
	kinds := []string{"split", "whole"}
	servers := map[string]podLoad{}
	for _, kind := range kinds {
		s.apply(pod(kind, kind == "split"))
		s.ctl("wait", "--for=condition=Ready", "pod/"+kind, podLimit)
		last := kind
		if kind == "split" {
			last += "-f1"
		}
		servers[kind] = s.serveIn(kind, last, storyLoads)
	}
	note := func(metric string, i, round int, value float64) {
		both := s.values[metric]
		both[i] = append(both[i], stats.Observation{Block: round, Value: value})
		s.values[metric] = both
		s.t.Logf("round %d: %s pod: %s: %.3f", round+1, kinds[i], metric, value)
	}
	for round := range *storyRounds {
		for _, i := range rand.Perm(len(kinds)) {
			for _, l := range storyLoads {
				note(l.name, i, round, s.loadIn(servers[kinds[i]], l))
			}
			began, name := time.Now(), "starts-"+kinds[i]
			s.apply(pod(name, kinds[i] == "split"))
			s.ctl("wait", "--for=condition=Ready", "pod/"+name, podLimit)
			note(storyStart, i, round, time.Since(began).Seconds())
			s.ctl("delete", "pod/"+name, "--wait", podLimit)
			s.eventually(name+" has no fractions", func() bool { return !strings.Contains(s.ctl("get", "pods", "--output=name"), name) })
		}
	}
	s.ctl("delete", "pod/split", "pod/whole", "--wait", podLimit)
}

// tables returns the rows of the requests, and those of the comparison.
func (s *splitStory) tables(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "## Segments with the span `%s`\n\n| requests | seconds | answered | lost | longest time without an answer, s |\n|---|---:|---:|---:|---:|\n", s.span)
	fmt.Fprintf(&b, "%s\n\n| | whole pod | split pod | ratio |\n|---|---:|---:|---|\n", strings.Join(s.phases, "\n"))
	for _, metric := range []string{storyStart, storyLoads[0].name, storyLoads[1].name} {
		both, ratio := s.values[metric], "one round, no verdict"
		if len(both[0]) > 1 {
			e, err := stats.Compare(both[0], both[1], true)
			if err != nil {
				t.Fatal(err)
			}
			ratio = ratioInWords(e)
		}
		fmt.Fprintf(&b, "| %s | %.1f | %.1f | %s |\n", metric, centerOf(t, both[1]), centerOf(t, both[0]), ratio)
	}
	return b.String()
}

// storyReport prints the tables, and publishes them if asked to.
func storyReport(t *testing.T, stories []*splitStory) {
	t.Helper()
	first := stories[0]
	var tables []string
	for _, s := range stories {
		tables = append(tables, s.tables(t))
		if s.cost != first.cost || s.split != first.split {
			t.Errorf("the plans differ: %v $/h, split %q, and %v $/h, split %q", first.cost, first.split, s.cost, s.split)
		}
	}
	text := strings.Join(tables, "\n")
	t.Logf("%v $/h; split %s\n%s", first.cost, first.split, text)
	if *splitReport == "" {
		return
	}
	host, err := machine.DescribeHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	accel, err := guest.ChooseAccel("")
	if err != nil {
		t.Fatal(err)
	}
	page := fmt.Sprintf(splitPage, *storyRounds, first.cost[0], first.cost[1], text, first.split, storyModel,
		time.Now().UTC().Format(time.DateOnly), accel.Accel, host.CPU, strconv.Itoa(host.VCPUs), host.Kernel)
	if err := os.WriteFile(filepath.Clean(*splitReport), []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}

// splitPage takes the number of rounds, the cost before and after, the tables, the annotation, the model of
// the nodes, date, accelerator, processor, number of processors, and kernel.
const splitPage = `# Split pods: from three nodes to two

**Result.** The pods of three nodes do not fit whole on two. ` + "`unnest plan --write`" + ` splits one of them, ` + "`kubectl apply`" + ` carries it out, and the third node is
removed: %.4[2]f $/h before, %.4[3]f $/h after.

For readers of [split-pods.md](../split-pods.md) who want to see a plan carried out, and what it costs.
` + "`make e2e TEST=TestKubernetesSplitStory ARGS='-split-rounds %[1]d -split-report ../../docs/results/split-pods.md'`" + ` measures again and writes this page.

%[4]s
## How it was measured

- The nodes have 2 vCPUs and 1.5 GiB, and the label of ` + "`%[6]s`" + `, which has 2 vCPUs and 2 GiB, and whose price is that of AWS on demand. Two pods have one container that requests 1.2 vCPUs. A third one, ` + "`shop`" + `,
  has two that request 0.5 vCPUs each. The plan writes the annotation ` + "`unnest.io/split: \"%[5]s\"`" + ` for its Deployment.
- A request goes to a Service of ` + "`shop`" + `, by the port of a node that stays. The container ` + "`front`" + ` answers with what ` + "`back`" + ` answers it at 127.0.0.1. One is sent 50 ms after the
  answer of the last. It is lost if it fails, or its answer is another one. Containers serve for 10 s after they are told to end. The Deployment has the
  default strategy, so the new pod is ready before the old one ends. The node of the old pod is cordoned before the split.
- The second table of each span is of other pods, without requests for processors, on the two nodes that are left: %[1]d rounds with both in random order. Both containers of the whole pod are on one
  node, and those of the split one on two, which the host connects (span ` + "`host`" + `), or a tunnel between the nodes (span ` + "`network`" + `). Values are geometric means. Ratios are of the split pod to the whole
  one in the same round with their 95 %% interval, by [the rule of all reports](../explanation/statistics.md).
- Each span has a cluster of its own, one after the other: compare the ratios, not the values.
- Control plane and nodes share the processors of one machine, so times are longer than on a cluster, and those of the rolling updates can be compared with each other only.

%[7]s, accelerator %[8]s, %[9]s, %[10]s processors, Linux %[11]s.
`
