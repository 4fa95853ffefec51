package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"unnest/experiments"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/testbed/guest"
)

// metricNames checks the metrics of a case and returns their names.
func metricNames(t *testing.T, c result.Case) []string {
	t.Helper()
	var names []string
	for _, m := range c.Metrics {
		if err := m.Order.Validate(); err != nil || m.Unit == "" || slices.Contains(names, m.Name) {
			t.Errorf("%s: metric %+v has no order or unit, or is there twice (%v)", c.Name, m, err)
		}
		names = append(names, m.Name)
	}
	if !slices.Contains(names, c.Primary) {
		t.Errorf("%s: primary %s is not among %v", c.Name, c.Primary, names)
	}
	return names
}

func TestBootSpec(t *testing.T) {
	s := BootSpec()
	if plan := experiment.Schedule(s, 1); len(plan) != 2*s.Repetitions {
		t.Errorf("%d executions, want %d of each kernel", len(plan), s.Repetitions)
	}
	if len(s.Warnings()) > 0 {
		t.Errorf("its results are weak: %v", s.Warnings())
	}
	for _, b := range s.Baselines {
		if !slices.ContainsFunc(experiment.Schedule(s, 1), func(e experiment.Execution) bool { return e.Configuration.Name == b }) {
			t.Errorf("baseline %s is no configuration", b)
		}
	}
	for _, c := range s.Configurations {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
	names := metricNames(t, s.Cases[0].Case)
	values := bootValues(guest.BootTimes{
		Firmware: time.Second, Kernel: 2 * time.Second, Userspace: 3 * time.Second, SSH: 4 * time.Second, Total: 10 * time.Second,
	})
	want := map[string]float64{"total": 10, "firmware": 1, "kernel": 2, "userspace": 3, "ssh": 4}
	for _, v := range values {
		if !slices.Contains(names, v.Metric) || want[v.Metric] != v.Value {
			t.Errorf("got %+v, want %v of the metrics %v", v, want[v.Metric], names)
		}
	}
	if len(values) != len(names) {
		t.Errorf("%d values for %d metrics", len(values), len(names))
	}
}

// The study of the harness has the configurations that the harness tells apart,
// and room for what it measures beside the workloads.
func TestHarnessSpec(t *testing.T) {
	file, text, err := experiments.Open("harness")
	if err != nil {
		t.Fatal(err)
	}
	s, err := experiment.Parse(file, text)
	if err != nil {
		t.Fatal(err)
	}
	s.AddMetrics(HarnessMetrics()...)
	var names []string
	for _, c := range s.Configurations {
		names = append(names, c.Name)
	}
	if want := []string{byHand, through}; !slices.Equal(names, want) {
		t.Errorf("configurations are %v, want %v", names, want)
	}
	for _, c := range s.Cases {
		if names := metricNames(t, c.Case); !slices.Contains(names, "wall") || !slices.Contains(names, "host_usr") {
			t.Errorf("%s: metrics are %v, want wall and the CPU times among them", c.Name, names)
		}
	}
	if err := supported(s); err != nil {
		t.Error(err)
	}
	if slices.Equal(HarnessMetrics(), Metrics()) || len(Metrics()) != 7 {
		t.Errorf("the metrics of the harness leak into those of every bench: %v", Metrics())
	}
}

// What follows is not foretold into an execution by hand: it would disturb it.
func TestHarnessNext(t *testing.T) {
	h := Harness{&Bench{}}
	h.Next(newExecution(byHand, pingPong, 0))
	if h.next != nil {
		t.Error("an execution by hand is to be started ahead")
	}
	h.Next(newExecution(through, pingPong, 0))
	if h.next == nil {
		t.Error("an execution through unnest is not foretold")
	}
}

// Programs that were not built are noticed before a guest image is made.
func TestBuildImageWithoutPrograms(t *testing.T) {
	t.Setenv("UNNEST_CACHE", t.TempDir())
	dir := t.TempDir()
	_, err := BuildImage(t.Context(), dir, func(step string) { t.Errorf("it begins to %s", step) })
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v; want an error that names `make build`", err)
	}
}
