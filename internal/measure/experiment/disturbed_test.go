package experiment

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
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

// A configuration disturbs the machine itself in four of six blocks, and is calm when it is measured again. The run
// and its report judge by the same measurements, the first ones, which are too noisy and not the last ones, which are all equal.
func TestRunJudgesByWhatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, until, func(s *Spec) {
			s.Repetitions = 6
			if err := s.Choose([]string{"udp_rr/64"}); err != nil {
				t.Fatal(err)
			}
		})
		tries := map[result.Execution]int{}
		disturbs := func(x Execution) bool {
			return x.Configuration.Name == "fused" && x.Block < 4 && tries[x.Key()] == 1
		}
		r.bench.script = func(ctx context.Context, call int, x Execution) (Outcome, error) {
			tries[x.Key()]++
			if disturbs(x) {
				return noisy(map[string]float64{"fused udp_rr/64": 50})(ctx, call, x)
			}
			return good(x), nil
		}
		r.bench.observed = func(call int) noise.Reading {
			if disturbs(r.bench.calls[call-1]) {
				return noise.Reading{Elapsed: time.Second, Others: 0.9}
			}
			return noise.Reading{Elapsed: time.Second, Others: 0.01}
		}
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		run, journal, err := rundir.Read(r.path)
		if err != nil || len(r.bench.calls) != 16 || !noise.TooNoisy(noise.OfSamples(noise.Select(journal))) {
			t.Errorf("%d executions, error %v; want a report that is too noisy to conclude", len(r.bench.calls), err)
		}
		if !slices.Equal(run.Notes, []string{noteTooNoisy}) {
			t.Errorf("the run notes %q", run.Notes)
		}
	})
}

// A resumed run knows what the machine did in all measurements of before. Eight of them tell that it is always busy.
func TestResumedRunKnowsAllReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, small, nil)
		r.bench.observed = func(int) noise.Reading { return noise.Reading{Elapsed: time.Second, Others: 0.9} }
		ctx, cancel := context.WithCancel(t.Context())
		r.bench.script = func(ctx context.Context, call int, x Execution) (Outcome, error) {
			if call == 10 { // four executions and five repeats are done
				cancel()
				return Outcome{}, ctx.Err()
			}
			return good(x), nil
		}
		if err := r.run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		r.bench.script = nil
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if run, samples := r.load(); run.Disturbed != 5 || len(samples) == 0 {
			t.Errorf("%d executions were repeated, want 5", run.Disturbed)
		}
	})
}
