package report

import (
	"slices"
	"strings"
	"testing"

	"unnest/internal/measure/result"
)

func TestCrowded(t *testing.T) {
	of := func(name, stack, vcpus string) result.Configuration {
		return result.Configuration{Name: name, Stack: stack, Options: map[string]string{"vcpus": vcpus}}
	}
	run := result.Run{Host: result.Machine{VCPUs: 2}, Configurations: []result.Configuration{
		of("L0", "metal", "4"), of("L1", "vm", "3"), of("L2", "vm/vm", "2"), of("esxi", "ssh", "8"), {Name: "untold", Stack: "vm"},
	}}
	if got := overcommitted(run); !slices.Equal(got, []string{"L0 has 4", "L1 has 3"}) {
		t.Errorf("got %q", got)
	}
	run.Host.VCPUs = 0 // as in runs that say nothing of their host
	if got := overcommitted(run); len(got) > 0 {
		t.Errorf("of an unknown host: %q", got)
	}
}

func TestSettingOfARunThatWentOn(t *testing.T) {
	run, samples := synthetic(6)
	if got := Build(run, samples, Options{}).Setting; got != "6 repetitions, tcg" {
		t.Errorf("got %q", got)
	}
	further := samples[0]
	further.Block = 11
	if got := Build(run, append(samples, further), Options{}).Setting; got != "6 to 12 repetitions, tcg" {
		t.Errorf("got %q", got)
	}
	two := slices.DeleteFunc(slices.Clone(samples), func(s result.Sample) bool { return s.Case == run.Cases[0].Name && s.Block > 1 })
	if got := Build(run, two, Options{}).Setting; got != "2 to 6 repetitions, tcg" {
		t.Errorf("got %q", got)
	}
	run.Repetitions = 10 // of which an interrupted run has 6
	if got := Build(run, samples, Options{}).Setting; got != "6 repetitions, tcg" {
		t.Errorf("got %q", got)
	}
}

// Provenance and methods say which guests were booted and which were restored. Runs of earlier
// versions do not know.
func TestStartsOfGuests(t *testing.T) {
	run, samples := synthetic(6)
	named := func(ms []Method) string {
		for _, m := range ms {
			if m.Term == "guests" {
				return m.Text
			}
		}
		return ""
	}
	if got := named(Build(run, samples, Options{}).Methods); got != "" {
		t.Errorf("of a run that does not know: %q", got)
	}
	run.Guests = []result.Machine{{Name: "node1", Start: result.Booted}, {Name: "node2", Start: result.Restored}, {Name: "node3", Start: result.Booted}}
	got := named(Build(run, samples, Options{}).Methods)
	for _, want := range []string{"Booted for this run: node1, node3.", "Restored from a snapshot of a booted guest: node2. "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	said := facts("", run, samples)
	if !slices.Contains(said, fact{"guest node2 start", result.Restored}) || !slices.Contains(said, fact{"guest node3 start", result.Booted}) {
		t.Errorf("provenance: %v", said)
	}
}
