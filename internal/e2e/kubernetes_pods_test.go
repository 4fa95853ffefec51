//go:build kubernetes

package e2e

import (
	"bufio"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/testbed/cluster"
	"unnest.io/unnest/internal/testbed/guest"
)

var (
	podsReport = flag.String("pods-report", "", "file for the page of TestKubernetesPods, in Markdown; the values of all rounds go into a CSV file of the same name")
	podsRounds = flag.Int("pods-rounds", 1, "rounds of TestKubernetesPods")
	podsNumber = flag.Int("pods-number", 100, "pods that TestKubernetesPods starts at once, up to 100")
)

// startTimes are what the start of many pods took.
type startTimes struct{ half, all, vm time.Duration }

// podStarts starts many pods of one node at once, in one network after the other. Each time the
// cluster is a new one, because a node takes longer to delete the pods than to start them.
type podStarts struct {
	*kubernetes
	pid    int                     // of the node's VM
	rounds map[string][]startTimes // by network
}

// networksOfPods are the RuntimeClasses that are compared; the second is the baseline.
var networksOfPods = []string{cluster.BrFusion, cluster.Bridge}

// TestKubernetesPods measures how long many pods of one node take until all are Ready, if each has
// its own NIC, and if all are behind the bridge of the node. Both are measured in each round, in
// random order.
func TestKubernetesPods(t *testing.T) {
	k := newKubernetes(t, "--nodes", "1", "--slots", "110", "--memory", "6GiB")
	p := &podStarts{kubernetes: k, rounds: map[string][]startTimes{}}
	for round := range *podsRounds {
		for _, i := range rand.Perm(len(networksOfPods)) {
			network := networksOfPods[i]
			k.start()
			n, err := k.fleet.Find("node1")
			k.check(err)
			p.pid = n.PID
			p.measure("warm-up", network, 4) // the first pods unpack the image
			s := p.measure("many", network, *podsNumber)
			k.down()
			t.Logf("round %d: %d pods of %s: half are ready after %.1f s, all after %.1f s; the VM took %.1f s of processor time",
				round+1, *podsNumber, network, s.half.Seconds(), s.all.Seconds(), s.vm.Seconds())
			p.rounds[network] = append(p.rounds[network], s)
		}
		p.report()
	}
}

// measure starts pods of a network at once, when the node has nothing else to do.
func (p *podStarts) measure(name, network string, pods int) (s startTimes) {
	p.t.Helper()
	p.calm()
	before := p.guestStatus("node1").Attachments
	many := busyboxes("Deployment", name, pods)
	template := many["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	template["runtimeClassName"] = network
	watch := exec.Command(p.kubectl, "--kubeconfig="+p.config, "get", "deployments", "--watch", "--field-selector=metadata.name="+name,
		`--output=jsonpath={.status.readyReplicas}{"\n"}`)
	out, err := watch.StdoutPipe()
	p.check(err)
	p.check(watch.Start())
	defer func() { _ = watch.Process.Kill(); _ = watch.Wait() }()
	taken, begin := p.vmTime(), time.Now()
	p.apply(many)
	limit := time.AfterFunc(20*time.Minute, func() { _ = watch.Process.Kill() })
	defer limit.Stop()
	s.half, s.all = readyTimes(out, begin, pods)
	s.vm = p.vmTime() - taken
	if s.all == 0 {
		p.t.Fatalf("%d pods of %s are not ready after %v:\n%s", pods, network, time.Since(begin), p.ctl("get", "pods", "--output=wide"))
	}
	nics := 0
	if network == cluster.BrFusion {
		nics = pods
	}
	if got := p.guestStatus("node1").Attachments - before; got != nics {
		p.t.Errorf("%d pods of %s have %d NICs, want %d", pods, network, got, nics)
	}
	return s
}

// readyTimes reads the numbers of ready pods, a line each, until all are ready. It returns
// when half of them were, and when all were; 0 if that was not so before the end of the input.
func readyTimes(in io.Reader, begin time.Time, pods int) (half, all time.Duration) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		ready, _ := strconv.Atoi(lines.Text()) // empty: none
		if half == 0 && 2*ready >= pods {
			half = time.Since(begin)
		}
		if ready == pods {
			return half, time.Since(begin)
		}
	}
	return half, 0
}

// vmTime returns the processor time that the VM has taken.
func (p *podStarts) vmTime() time.Duration {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	p.check(err)
	times, err := cputime.ParseProcess(stat)
	p.check(err)
	return times.Breakdown().Total()
}

// calm waits until the VM takes less than a quarter of a processor for five seconds.
func (p *podStarts) calm() {
	p.t.Helper()
	const span = 5 * time.Second
	begin, before := time.Now(), p.vmTime()
	p.within(5*time.Minute, "the node has nothing to do", func() bool {
		if time.Since(begin) < span {
			return false
		}
		took, elapsed := p.vmTime()-before, time.Since(begin)
		begin, before = time.Now(), p.vmTime()
		return took < elapsed/4
	})
}

// podsMetrics are what is compared, in seconds.
var podsMetrics = []struct {
	name string
	of   func(startTimes) time.Duration
}{
	{"until all are Ready", func(s startTimes) time.Duration { return s.all }},
	{"until half are Ready", func(s startTimes) time.Duration { return s.half }},
	{"processor time of the VM", func(s startTimes) time.Duration { return s.vm }},
}

// report prints a table, and publishes it if asked to. Each metric is a comparison of its own.
func (p *podStarts) report() {
	p.t.Helper()
	var table strings.Builder
	var first string
	for _, m := range podsMetrics {
		var sides [2][]stats.Observation
		for i, network := range networksOfPods {
			for round, s := range p.rounds[network] {
				sides[i] = append(sides[i], stats.Observation{Block: round, Value: m.of(s).Seconds()})
			}
		}
		if len(sides[0]) < 2 {
			continue // no ratio has a scatter
		}
		e, err := stats.Compare(sides[0], sides[1], true)
		p.check(err)
		ratio := ratioInWords(e)
		if first == "" {
			first = ratio
		}
		fmt.Fprintf(&table, "| %s | %.1f | %.1f | %s |\n", m.name, centerOf(p.t, sides[0]), centerOf(p.t, sides[1]), ratio)
	}
	p.t.Log("\n" + table.String())
	if *podsReport == "" || first == "" {
		return
	}
	host, err := machine.DescribeHost(p.t.Context())
	p.check(err)
	accel, err := guest.ChooseAccel("")
	p.check(err)
	name := strings.TrimSuffix(*podsReport, ".md")
	page := fmt.Sprintf(podsPage, *podsNumber, first, strings.TrimSpace(table.String()), len(p.rounds[cluster.Bridge]), filepath.Base(name),
		time.Now().UTC().Format(time.DateOnly), accel.Accel, host.CPU, host.VCPUs, host.Kernel)
	p.check(os.WriteFile(filepath.Clean(*podsReport), []byte(page), 0o644))
	p.writeRounds(name + ".csv")
}

func centerOf(t *testing.T, values []stats.Observation) float64 {
	t.Helper()
	s, err := stats.Summarize(stats.Values(values))
	if err != nil {
		t.Fatal(err)
	}
	return s.Center
}

// ratioInWords is the ratio of one comparison with its interval and verdict.
func ratioInWords(e stats.Effect) string {
	i, verdict := e.Judge(stats.Judge([]float64{e.P()}, stats.DefaultAlpha), stats.DefaultMargin, false)
	if !i.Defined() {
		return fmt.Sprintf("%.2f, %s for a verdict", e.Ratio(), verdict)
	}
	words := map[stats.Verdict]string{stats.Better: "less", stats.Worse: "more"}
	if words[verdict] == "" {
		words[verdict] = string(verdict)
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f], %s", e.Ratio(), i.Low, i.High, words[verdict])
}

func (p *podStarts) writeRounds(path string) {
	p.t.Helper()
	out, err := os.Create(filepath.Clean(path))
	p.check(err)
	defer func() { p.check(out.Close()) }()
	rows := csv.NewWriter(out)
	header := []string{"network", "round"}
	for _, m := range podsMetrics {
		header = append(header, m.name+", s")
	}
	p.check(rows.Write(header))
	for _, network := range networksOfPods {
		for round, s := range p.rounds[network] {
			row := []string{network, strconv.Itoa(round)}
			for _, m := range podsMetrics {
				row = append(row, strconv.FormatFloat(m.of(s).Seconds(), 'f', 3, 64))
			}
			p.check(rows.Write(row))
		}
	}
	rows.Flush()
	p.check(rows.Error())
}

// podsPage takes the number of pods, the ratio of the times until all are Ready, the table, the number
// of rounds, the name of the CSV file, date, accelerator, processor, number of processors, and kernel.
const podsPage = `# The start of many pods on one node

**Result.** %[1]d pods of one node start at once. The time until all are Ready, with BrFusion in relation to the bridge plugin: %[2]s.

For readers of [kubernetes.md](../kubernetes.md) who want to know what a NIC for each pod costs when many start at once.
` + "`make e2e TEST=TestKubernetesPods ARGS='-pods-rounds 6 -pods-report ../../docs/results/kubernetes-pods.md'`" + ` measures again and writes this page.

| seconds | BrFusion | bridge | ratio |
|---|---:|---:|---|
%[3]s

%[4]d rounds, each with both networks in random order, on a new node each time. [Every round](%[5]s.csv) is kept. Values are geometric means. The ratio
is that of BrFusion to the bridge in the same round, with its 95 %% interval, by [the rule of all reports](../explanation/statistics.md).

- The time begins when a Deployment of %[1]d pods is created, and ends when the API server reports its last pod as Ready. A pod is Ready
  when its container runs: it has no probe.
- The processor time is that of QEMU during that time, so it includes the emulation of the node.
- BrFusion: each pod gets a NIC of its own, plugged by the VMM; four are plugged in advance. Bridge: the reference plugin
  ` + "`bridge`" + ` with ` + "`host-local`" + ` in the node.
- The node is a VM with 2 vCPUs and 6 GiB of memory, restored from one snapshot by ` + "`unnest cluster up`" + `. Four pods of the network
  run already, so the image is unpacked. The control plane runs on the host, on the same processors.

%[6]s, accelerator %[7]s, %[8]s, %[9]d processors, Linux %[10]s.
`
