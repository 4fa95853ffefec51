package bench

import (
	"context"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
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

// oneGuest is a study with a guest that begins in a given way.
type oneGuest struct{ *machines.Set }

func (oneGuest) Check(stack.Configuration) error                  { return nil }
func (oneGuest) Needs() machines.Needs                            { return machines.Needs{} }
func (oneGuest) Begin(context.Context) error                      { return nil }
func (oneGuest) Start(context.Context, stack.Configuration) error { return nil }
func (oneGuest) Execute(context.Context, experiment.Execution) (experiment.Outcome, error) {
	return experiment.Outcome{}, nil
}

// A block whose guest boots, although that of the first block was restored, has no value, and the next attempt has new machines.
func TestFreshGuestsStartAlike(t *testing.T) {
	starts := []string{result.Booted, result.Restored}
	up := 0
	f := &fresh{
		first: []result.Machine{{Name: "node1", Start: result.Restored}},
		make: func() (study, error) {
			return oneGuest{machines.New(benchtest.Open(t, "quickstart"), machines.Options{})}, nil
		},
		bringUp: func(_ context.Context, s study) error {
			s.Machines().Add("node1", &machine.Machine{Facts: result.Machine{Name: "node1", Start: starts[up]}})
			up++
			return nil
		},
	}
	err := f.Renew(t.Context(), experiment.Execution{})
	if err == nil || !strings.Contains(err.Error(), "guest node1 is booted, and was restored from a snapshot in the first block") || f.up {
		t.Errorf("got %v, up %t", err, f.up)
	}
	if err := f.Renew(t.Context(), experiment.Execution{}); err != nil || !f.up || up != 2 {
		t.Errorf("again: got %v, up %t after %d studies", err, f.up, up)
	}
}
