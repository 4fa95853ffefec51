package domains

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/testbed/xen"
)

// What is not of the run is the host's: dom0, and domains of others.
func TestProcessorValues(t *testing.T) {
	h := xenCounters{XenHost: &machines.XenHost{Host: xen.Host{Dir: "/var/tmp/unnest-run-a"}}}
	values := h.processorValues([]xen.Sample{
		{Percent: map[string]float64{"Domain-0": 90, "unnest-run-a-xen-pv1": 40, "unnest-run-b-pv": 6}},
		{Percent: map[string]float64{"Domain-0": 100, "unnest-run-a-xen-pv1": 60, "unnest-run-b-pv": 4}},
	})
	for name, want := range map[string]float64{"xen-pv1": 50, ofHost: 100} {
		if v := values[name]; len(v) != 1 || v[0].Value != want {
			t.Errorf("%q: got %v, want %v", name, v, want)
		}
	}
	if len(values) != 2 || values["xen-pv1"][0].Metric != collocation.Utilisation || values[ofHost][0].Metric != collocation.HostCPU {
		t.Errorf("got %v", values)
	}
}

// Domains that are not of the run are the host's, and one of the run that was asleep had no execution.
func TestExecutionValues(t *testing.T) {
	h := xenCounters{XenHost: &machines.XenHost{Host: xen.Host{Dir: "/var/tmp/unnest-run-a"}}}
	values := executionValues(h.reading(xen.Trace{Window: 2 * time.Second, Domains: map[int]xen.Scheduled{
		0: {CPU: time.Second, Waiting: time.Second, Executions: 100, Waited: 60, Preempted: 40},
		3: {CPU: 500 * time.Millisecond, Waiting: 3 * time.Second, Executions: 50, Waited: 20, Preempted: 30},
		5: {CPU: time.Second, Executions: 100},
	}}, []xen.Entry{{Name: "unnest-run-a-xen-pv1", ID: 3}, {Name: "unnest-run-a-xen-pv2", ID: 4}}))
	for name, want := range map[string]map[string]float64{
		"xen-pv1": {collocation.Executions: 25, collocation.PerExecution: 10000, collocation.Waiting: 150, collocation.Voluntary: 10, collocation.Involuntary: 15},
		"xen-pv2": {collocation.Executions: 0, collocation.PerExecution: 0, collocation.Waiting: 0, collocation.Voluntary: 0, collocation.Involuntary: 0},
		ofHost:    {collocation.HostExecutions: 100, collocation.HostPerExecution: 10000},
	} {
		if diff := cmp.Diff(want, byMetric(t, values[name])); diff != "" {
			t.Errorf("%q differs (-want +got):\n%s", name, diff)
		}
	}
	if len(values) != 3 {
		t.Errorf("got %v", values)
	}
}

// fakeTop is dom0, in which xentop prints a table when it is told to.
type fakeTop struct {
	place.Place
	printed io.Writer
}

func (f *fakeTop) Start(_ context.Context, c place.Command) (place.Process, error) {
	f.printed = c.Stdout
	f.print(0)
	return benchtest.Process(func() error { return nil }), nil
}

func (f *fakeTop) print(percent float64) {
	_, _ = fmt.Fprintf(f.printed, " NAME STATE CPU(sec) CPU(%%)\n Domain-0 -----r 1 %.1f\n unnest-run-a-xen-pv1 -----r 1 %.1f\n", 2*percent, percent)
}

// Only tables count whose intervals are between the begin of the load and its end, when what counts meanwhile stops.
func TestCountProcessors(t *testing.T) {
	top := &fakeTop{}
	h := xenCounters{XenHost: &machines.XenHost{Host: xen.Host{Dir: "/var/tmp/unnest-run-a", Dom0: top}, Machine: &machine.Machine{}}}
	h.inner = []counter{func(map[string]*cgroup.Group) (stopCounting, error) {
		top.print(7) // it takes a while to start
		top.print(9)
		return func() (map[string][]workload.Value, error) {
			top.print(1) // and to stop
			return map[string][]workload.Value{"xen-pv1": {{Metric: collocation.Executions, Value: 3}}}, nil
		}, nil
	}}
	for _, tt := range []struct {
		tables []float64
		want   float64
	}{{[]float64{20, 40, 60}, 50}, {[]float64{20}, 20}} {
		stop, err := h.countProcessors(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, percent := range tt.tables { // the interval of the first one began before the load
			top.print(percent)
		}
		values, err := stop()
		if of := byMetric(t, values["xen-pv1"]); err != nil || of[collocation.Utilisation] != tt.want || of[collocation.Executions] != 3 || byMetric(t, values[ofHost])[collocation.HostCPU] != 2*tt.want {
			t.Errorf("tables %v: %v, %v; want %v", tt.tables, values, err, tt.want)
		}
	}
	synctest.Test(t, func(t *testing.T) { // a load that ends before xentop prints
		stop, err := h.countProcessors(nil)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { top.print(20) })
		if values, err := stop(); err != nil || byMetric(t, values["xen-pv1"])[collocation.Utilisation] != 20 {
			t.Errorf("short load: %v, %v", values, err)
		}
	})
}
