package report_test

import (
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/runs"
)

func TestSettingOfARunThatWentOn(t *testing.T) {
	run, samples := synthetic(6)
	if got := runs.Build(run, samples, runs.Options{}).Setting; got != "6 repetitions, tcg" {
		t.Errorf("got %q", got)
	}
	further := samples[0]
	further.Block = 11
	if got := runs.Build(run, append(samples, further), runs.Options{}).Setting; got != "6 to 12 repetitions, tcg" {
		t.Errorf("got %q", got)
	}
	two := slices.DeleteFunc(slices.Clone(samples), func(s result.Sample) bool { return s.Case == run.Cases[0].Name && s.Block > 1 })
	if got := runs.Build(run, two, runs.Options{}).Setting; got != "2 to 6 repetitions, tcg" {
		t.Errorf("got %q", got)
	}
	run.Repetitions = 10 // of which an interrupted run has 6
	if got := runs.Build(run, samples, runs.Options{}).Setting; got != "6 repetitions, tcg" {
		t.Errorf("got %q", got)
	}
}

// Provenance and methods say which guests were booted and which were restored. Runs of earlier
// versions do not know.
func TestStartsOfGuests(t *testing.T) {
	run, samples := synthetic(6)
	named := func(ms []document.Method) string {
		for _, m := range ms {
			if m.Term == "guests" {
				return m.Text
			}
		}
		return ""
	}
	if got := named(runs.Build(run, samples, runs.Options{}).Methods); got != "" {
		t.Errorf("of a run that does not know: %q", got)
	}
	run.Guests = []result.Machine{{Name: "node1", Start: result.Booted}, {Name: "node2", Start: result.Restored}, {Name: "node3", Start: result.Booted}}
	got := named(runs.Build(run, samples, runs.Options{}).Methods)
	for _, want := range []string{"Booted for this run: node1, node3.", "Restored from a snapshot of a booted guest: node2. "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	said := provenance.Facts("", run, samples)
	if !slices.Contains(said, document.Fact{Name: "guest node2 start", Value: result.Restored}) || !slices.Contains(said, document.Fact{Name: "guest node3 start", Value: result.Booted}) {
		t.Errorf("provenance: %v", said)
	}
}
