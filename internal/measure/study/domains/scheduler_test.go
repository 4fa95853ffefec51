package domains

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/sched"
	"unnest.io/unnest/internal/measure/workload"
)

// byMetric checks that every value is of a metric of the study.
func byMetric(t *testing.T, values []workload.Value) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, v := range values {
		if !slices.ContainsFunc(collocation.Metrics(), func(m result.Metric) bool { return m.Name == v.Metric }) {
			t.Errorf("%s is not a metric of the study", v.Metric)
		}
		all[v.Metric] = v.Value
	}
	return all
}

func TestSchedulerValues(t *testing.T) {
	d := sched.Counters{CPU: time.Second, Waiting: 3 * time.Second, Softirq: 20 * time.Millisecond, Executions: 500, Voluntary: 300, Involuntary: 200}
	all := schedulerValues(sched.Reading{Window: 2 * time.Second, Domains: map[string]sched.Counters{"hvm1": d}, Rest: d, Steal: 100 * time.Millisecond})
	want := map[string]float64{collocation.Executions: 250, collocation.PerExecution: 2000, collocation.Waiting: 150,
		collocation.Softirq: 1, collocation.Voluntary: 150, collocation.Involuntary: 100}
	if diff := cmp.Diff(want, byMetric(t, all["hvm1"])); diff != "" {
		t.Errorf("domain differs (-want +got):\n%s", diff)
	}
	want = map[string]float64{collocation.HostCPU: 50, collocation.HostExecutions: 250, collocation.HostPerExecution: 2000, collocation.Steal: 5}
	if diff := cmp.Diff(want, byMetric(t, all[ofHost])); diff != "" {
		t.Errorf("host differs (-want +got):\n%s", diff)
	}
}

// The control group of a domain is found by the program, in both versions of control groups,
// and the CPU time that it counts is that of the group.
func TestCountScheduler(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	processors, _, _, err := splitProcessors()
	if err != nil {
		t.Fatal(err)
	}
	top := fmt.Sprintf("unnest-sched-test-%d", os.Getpid())
	g, err := cgroup.New(cgroup.Root, filepath.Join(top, "hvm1"), processors)
	if err != nil {
		t.Fatal(err)
	}
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
		if err := cgroup.Remove(top); err != nil {
			t.Error(err)
		}
	})
	if err := g.Join(busy.Process.Pid); err != nil {
		t.Fatal(err)
	}
	before, err := g.Time()
	if err != nil {
		t.Fatal(err)
	}
	stop, err := countScheduler(map[string]*cgroup.Group{"hvm1": g})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	values, err := stop()
	if err != nil {
		t.Fatal(err)
	}
	after, err := g.Time()
	if err != nil {
		t.Fatal(err)
	}
	of := byMetric(t, values["hvm1"])
	if after == before || of[collocation.Executions]+of[collocation.Waiting] == 0 {
		t.Errorf("%v of CPU time, but %v", after-before, of)
	}
}
