package bench

import (
	"slices"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
)

// The study harness has the configurations that the code distinguishes, and metrics for
// CPU times and wall.
func TestHarnessSpec(t *testing.T) {
	s := benchtest.Open(t, "harness")
	s.AddMetrics(Metrics(s)...)
	names := benchtest.CheckStudy(t, s)
	if want := []string{"by-hand", "unnest"}; !slices.Equal(names, want) {
		t.Errorf("configurations are %v, want %v", names, want)
	}
	for _, c := range s.Cases {
		if names := benchtest.MetricNames(t, c.Case); !slices.Contains(names, "wall") || !slices.Contains(names, "host_usr") {
			t.Errorf("%s: metrics are %v, want wall and the CPU times among them", c.Name, names)
		}
	}
	if quick := Metrics(benchtest.Open(t, "quickstart")); len(quick) != 7 || slices.Equal(Metrics(s), quick) {
		t.Errorf("the metrics of the harness are among those of other studies: %v", quick)
	}
	for _, name := range []string{"boot", "boot-kernel", "startup", "levels"} {
		if got := Metrics(benchtest.Open(t, name)); got != nil {
			t.Errorf("%s: additional metrics are %v, want none", name, got)
		}
	}
}

// Applications have the CPU times of their processes, too.
func TestApplicationMetrics(t *testing.T) {
	names := func(spec *experiment.Spec) (names []string) {
		for _, m := range Metrics(spec) {
			names = append(names, m.Name)
		}
		return names
	}
	if got := names(benchtest.Open(t, "applications")); !slices.Contains(got, "vm_usr") || !slices.Contains(got, "host_usr") {
		t.Errorf("got %q", got)
	}
	if got := names(benchtest.Open(t, "quickstart")); slices.Contains(got, "server_usr") {
		t.Errorf("quickstart: got %q", got)
	}
}
