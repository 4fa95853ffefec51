package experiment

import (
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
)

// A disturbed execution is repeated at once, up to three times, whatever its result. On a machine that is
// always busy, none is repeated once that is known.
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
		{"always", func(int) bool { return true }, false, 17, 5, "0.900"},
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
				if tc.calls > 12 && r.bench.calls[0].Key() != r.bench.calls[1].Key() {
					t.Errorf("%s is not repeated at once: %s follows", r.bench.calls[0], r.bench.calls[1])
				}
			})
		})
	}
}

// On a noisy machine no block is added for precision, unless with --noisy, also by a resumption.
func TestNoisyRunEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, until, nil)
		r.bench.script = noisy(map[string]float64{"NoCont udp_rr/64": 3, "fused udp_rr/1024": 50})
		r.bench.observed = func(call int) noise.Reading {
			return noise.Reading{Elapsed: time.Second, Steal: 0.05 + 0.2*float64(call%2)}
		}
		blocks := func(want int, ended bool) {
			t.Helper()
			if err := r.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.wantState(result.Complete, "")
			run, _ := r.load()
			last := r.progress.events[len(r.progress.events)-2]
			if got := r.blocksOf()["fused udp_rr/1024"]; got != want || len(run.Notes) != 1 || (last.Kind == TooNoisy) != ended {
				t.Errorf("%d blocks, want %d; notes %q, event %+v", got, want, run.Notes, last)
			}
		}
		blocks(6, true)
		blocks(6, true)
		r.spec.Noisy = true
		blocks(9, false)
	})
}
