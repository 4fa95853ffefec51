package experiment

import (
	"testing"
	"testing/synctest"
	"time"

	"unnest/internal/measure/noise"
	"unnest/internal/measure/result"
)

// A disturbed execution is repeated at once, up to three times, whatever its result; in a
// run on a machine that is always busy, one for two.
func TestDisturbedExecutionsAreRepeated(t *testing.T) {
	busy := noise.Reading{Elapsed: time.Second, Others: 0.9}
	quiet := noise.Reading{Elapsed: time.Second, Others: 0.01, Steal: 0.02}
	for _, tc := range []struct {
		name      string
		busy      func(call int) bool
		noisy     bool
		calls     int
		disturbed int
		others    string // tag of the first execution
	}{
		{"quiet", func(int) bool { return false }, false, 12, 0, "0.010"},
		{"once", func(call int) bool { return call == 1 }, false, 13, 1, "0.010"},
		{"the first four", func(call int) bool { return call <= 4 }, false, 15, 3, "0.900"},
		{"always", func(int) bool { return true }, false, 18, 6, "0.900"},
		{"always, with --noisy", func(int) bool { return true }, true, 12, 0, "0.900"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigOf(t, small, nil)
				r.spec.Noisy = tc.noisy
				r.bench.observed = func(call int) noise.Reading {
					if tc.busy(call) {
						return busy
					}
					return quiet
				}
				if err := r.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				run, samples := r.load()
				if len(r.bench.calls) != tc.calls || run.Disturbed != tc.disturbed || run.State != result.Complete || len(run.Failures) != 0 {
					t.Errorf("%d executions, run %+v; want %d, %d repeated", len(r.bench.calls), run, tc.calls, tc.disturbed)
				}
				if n := len(r.discarded()); n < tc.disturbed || (n == 0) != (tc.disturbed == 0) {
					t.Errorf("%d discarded samples in the journal, want those of %d executions", n, tc.disturbed)
				}
				if got := samples[0].Tags["others"]; got != tc.others {
					t.Errorf("tags %v, want others %s", samples[0].Tags, tc.others)
				}
				events := 0
				for _, e := range r.progress.events {
					if e.Kind == Disturbed {
						events++
					}
				}
				if events != tc.disturbed {
					t.Errorf("%d events, want %d", events, tc.disturbed)
				}
				if tc.disturbed == 6 && r.bench.calls[10].Key() != r.bench.calls[11].Key() {
					t.Error("the first five executions have used up all repeats")
				}
				if tc.calls > 12 && r.bench.calls[0].Key() != r.bench.calls[1].Key() {
					t.Errorf("%s is not repeated at once: %s follows", r.bench.calls[0], r.bench.calls[1])
				}
			})
		})
	}
}
