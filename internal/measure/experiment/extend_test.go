package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest/internal/measure/result"
)

func TestWide(t *testing.T) {
	for _, test := range []struct {
		values   []float64
		fraction float64
		want     bool
	}{
		{nil, 0.03, false},
		{[]float64{5}, 0.03, true},
		{[]float64{5, 5, 5}, 0.03, false},
		{[]float64{0, 0}, 0.03, false},
		{[]float64{-1, 1}, 0.99, true},              // around 0 nothing is narrow
		{[]float64{99, 101, 99, 101}, 0.019, false}, // 100 ± 1.84
		{[]float64{99, 101, 99, 101}, 0.018, true},  //
		{[]float64{-99, -101, -99, -101}, 0.019, false},
	} {
		if got := wide(test.values, test.fraction); got != test.want {
			t.Errorf("wide(%v, %v) = %v", test.values, test.fraction, got)
		}
	}
}

// noisy is a bench whose value of a case varies by so many percent: even blocks have
// more, odd ones less.
func noisy(percent map[string]float64) func(context.Context, int, Execution) (Outcome, error) {
	return func(_ context.Context, _ int, x Execution) (Outcome, error) {
		o := good(x)
		for i := range o.Values {
			if o.Values[i].Metric == x.Case.Primary {
				o.Values[i].Value = 100 + percent[x.Configuration.Name+" "+x.Case.Name]*float64(1-2*(x.Block%2))
			}
		}
		return o, nil
	}
}

const until = small + "until: 3%\nlimit: 9\n"

// blocksOf counts the executions of each case in the journal, by configuration.
func (r *rig) blocksOf() map[string]int {
	_, samples := r.load()
	seen := map[result.Execution]bool{}
	blocks := map[string]int{}
	for _, s := range samples {
		if !seen[s.Execution()] {
			blocks[s.Configuration+" "+s.Case]++
		}
		seen[s.Execution()] = true
	}
	return blocks
}

// With a variation of ±s, n values of either sign have a half interval of about
// t·s/√(n-1), t from Student's table: ±2 % is within 3 % of the mean at n = 6
// (2.571·2/√5 = 2.3) and 4 (3.182·2/√3 = 3.7 is not), at 5 values that are not
// balanced (2.776·2.19/√5 = 2.7), so at 5.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, until, nil)
		r.bench.script = noisy(map[string]float64{"NoCont udp_rr/64": 2, "fused udp_rr/1024": 50})
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := map[string]int{
			"NoCont udp_rr/64": 5, "fused udp_rr/64": 5, // the other configuration goes along
			"NoCont udp_rr/1024": 9, "fused udp_rr/1024": 9, // to the limit
			"NoCont tcp_stream/1280": 2, "fused tcp_stream/1280": 2, // narrow at once
		}
		if diff := cmp.Diff(want, r.blocksOf()); diff != "" {
			t.Errorf("blocks (-want +got):\n%s", diff)
		}
		r.wantState(result.Complete, "")
		run, _ := r.load()
		if run.Planned != 32 || run.Repetitions != 2 {
			t.Errorf("planned %d, repetitions %d; want 32, 2", run.Planned, run.Repetitions)
		}
		// The scheduled blocks are those of the seed, and in the others too the
		// configurations of a case follow each other.
		calls := r.bench.calls
		for i, x := range Schedule(r.spec, 42) {
			if calls[i].Key() != x.Key() {
				t.Errorf("execution %d is %s, want %s", i, calls[i], x)
			}
		}
		for turn := range slices.Chunk(calls[12:], 2) {
			if turn[0].Case.Name != turn[1].Case.Name || turn[0].Configuration.Name == turn[1].Configuration.Name || turn[0].Block != turn[1].Block {
				t.Errorf("not side by side: %+v", turn)
			}
		}
		var added [][]string
		for _, e := range r.progress.events {
			if e.Kind == Extended {
				slices.Sort(e.Cases)
				added = append(added, e.Cases)
			}
		}
		both, one := []string{"udp_rr/1024", "udp_rr/64"}, []string{"udp_rr/1024"}
		if diff := cmp.Diff([][]string{both, both, both, one, one, one, one}, added); diff != "" {
			t.Errorf("blocks added (-want +got):\n%s", diff)
		}
	})
}

// The orders of the configurations are balanced in the added blocks too.
func TestExtensionIsBalanced(t *testing.T) {
	s := specOf(3, 2, 6)
	s.Until, s.Limit = 0.01, 12
	for i := range s.Cases {
		s.Cases[i].Primary = "m"
	}
	var samples []result.Sample
	for _, x := range Schedule(s, 1) {
		samples = append(samples, result.Sample{Configuration: x.Configuration.Name, Case: x.Case.Name, Metric: "m", Block: x.Block, Value: float64(x.Block)})
	}
	orders := map[string]map[string]bool{}
	for block := 6; block < 12; block++ {
		schedule := extension(s, 7, samples, block)
		if len(schedule) != 6 || !cmp.Equal(keysOf(schedule), keysOf(extension(s, 7, samples, block))) {
			t.Fatalf("block %d: %v", block, schedule)
		}
		for turn := range slices.Chunk(schedule, 3) {
			c := turn[0].Case.Name
			if orders[c] == nil {
				orders[c] = map[string]bool{}
			}
			orders[c][fmt.Sprint(turn[0], turn[1], turn[2])] = true
		}
	}
	if len(orders["k0"]) != 6 || len(orders["k1"]) != 6 {
		t.Errorf("three configurations do not come in all six orders: %v", orders)
	}
}

func keysOf(schedule []Execution) (keys []result.Execution) {
	for _, x := range schedule {
		keys = append(keys, x.Key())
	}
	return keys
}

// Wherever a run with added blocks is interrupted, the resumed run has the executions of
// an uninterrupted one, in order.
func TestInterruptAndResumeWithUntil(t *testing.T) {
	script := noisy(map[string]float64{"NoCont udp_rr/64": 2, "fused udp_rr/1024": 50})
	var whole []result.Execution
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, until, nil)
		r.bench.script = script
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		whole = keysOf(r.bench.calls)
	})
	for stop := 11; stop <= len(whole); stop += 2 { // around and after the first block that is added
		synctest.Test(t, func(t *testing.T) {
			r := newRigOf(t, until, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("interrupted by a signal")
			r.bench.script = func(ctx context.Context, call int, x Execution) (Outcome, error) {
				if call == stop {
					cancel(cause)
					return Outcome{}, ctx.Err()
				}
				return script(ctx, call, x)
			}
			if err := r.run(ctx); !errors.Is(err, cause) {
				t.Errorf("error %v, want %v", err, cause)
			}
			first := keysOf(r.bench.calls)[:stop-1]
			r.bench = fakeBench{script: script}
			if err := r.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.wantState(result.Complete, "")
			if diff := cmp.Diff(whole, append(first, keysOf(r.bench.calls)...)); diff != "" {
				t.Errorf("interrupted at %d (-whole +in two parts):\n%s", stop, diff)
			}
			if run, _ := r.load(); run.Planned != len(whole) {
				t.Errorf("planned %d, want %d", run.Planned, len(whole))
			}
		})
	}
}

// A run can be interrupted between the last scheduled and the first added execution. If
// its intervals are narrow then, it is complete.
func TestInterruptBetweenScheduleAndExtension(t *testing.T) {
	for name, test := range map[string]struct {
		percent float64
		want    result.State
	}{"wide": {50, result.Interrupted}, "narrow": {0, result.Complete}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigOf(t, until, nil)
				ctx, cancel := context.WithCancel(t.Context())
				script := noisy(map[string]float64{"NoCont udp_rr/64": test.percent})
				r.bench.script = func(ctx context.Context, call int, x Execution) (Outcome, error) {
					if call == 12 {
						cancel()
					}
					return script(ctx, call, x)
				}
				_ = r.run(ctx)
				if run, _ := r.load(); run.State != test.want || len(r.bench.calls) != 12 {
					t.Errorf("%s after %d executions, want %s", run.State, len(r.bench.calls), test.want)
				}
			})
		})
	}
}

// No block is added for a configuration in which a case never worked, and added blocks
// leave it out.
func TestUntilLeavesUnsupportedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, until, nil)
		script := noisy(map[string]float64{"NoCont udp_rr/64": 50})
		r.bench.script = func(ctx context.Context, call int, x Execution) (Outcome, error) {
			if x.Configuration.Name == "fused" && x.Case.Name != "tcp_stream/1280" {
				return Outcome{}, errors.New("no such tool")
			}
			return script(ctx, call, x)
		}
		if err := r.run(t.Context()); !errors.Is(err, ErrIncomplete) {
			t.Errorf("error %v, want ErrIncomplete", err)
		}
		want := map[string]int{"NoCont udp_rr/64": 9, "NoCont udp_rr/1024": 2, "NoCont tcp_stream/1280": 2, "fused tcp_stream/1280": 2}
		if diff := cmp.Diff(want, r.blocksOf()); diff != "" {
			t.Errorf("blocks (-want +got):\n%s", diff)
		}
		if run, _ := r.load(); len(run.Failures) != 4 || run.Planned != 19 {
			t.Errorf("%d failures, planned %d; want 4, 19", len(run.Failures), run.Planned)
		}
	})
}

// A resumed run that fills scheduled executions counts the existing added blocks, and adds
// others if the intervals require them.
func TestResumeFillsTheScheduleBesideAddedBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, until, nil)
		script := noisy(map[string]float64{"NoCont udp_rr/64": 2, "fused tcp_stream/1280": 50})
		r.bench.script = func(ctx context.Context, call int, x Execution) (Outcome, error) {
			if x.Configuration.Name == "fused" && x.Case.Group == "tcp_stream" {
				return Outcome{}, errors.New("connection refused")
			}
			return script(ctx, call, x)
		}
		if err := r.run(t.Context()); !errors.Is(err, ErrIncomplete) {
			t.Errorf("error %v, want ErrIncomplete", err)
		}
		if run, _ := r.load(); run.Planned != 18 || len(run.Failures) != 2 {
			t.Errorf("planned %d with %d failures; want 18 with 2", run.Planned, len(run.Failures))
		}
		r.bench, r.progress = fakeBench{script: script}, recorder{}
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if begun := r.progress.events[0]; begun.Kind != Begun || begun.Planned != 18 || begun.Done != 16 {
			t.Errorf("resumed with %+v", begun)
		}
		want := map[string]int{
			"NoCont udp_rr/64": 5, "fused udp_rr/64": 5, "NoCont udp_rr/1024": 2, "fused udp_rr/1024": 2,
			"NoCont tcp_stream/1280": 9, "fused tcp_stream/1280": 9,
		}
		got := r.blocksOf()
		if run, _ := r.load(); run.Planned != 32 || len(r.bench.calls) != 16 {
			t.Errorf("planned %d, %d executions", run.Planned, len(r.bench.calls))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("blocks (-want +got):\n%s", diff)
		}
	})
}

// A block that was begun is finished, although a sample of the resumed run makes the
// interval narrow.
func TestBlockThatWasBegunIsFinished(t *testing.T) {
	s := specOf(2, 1, 3)
	s.Until, s.Limit, s.Cases[0].Primary = 0.03, 9, "m"
	sample := func(configuration string, block int, value float64) result.Sample {
		return result.Sample{Configuration: configuration, Case: "k0", Metric: "m", Block: block, Value: value}
	}
	narrow := []result.Sample{
		sample("c0", 0, 100), sample("c0", 1, 100), sample("c0", 2, 100),
		sample("c1", 0, 100), sample("c1", 1, 100), sample("c1", 2, 100),
	}
	if schedule := extension(s, 1, narrow, 3); len(schedule) != 0 {
		t.Errorf("narrow, but %v", schedule)
	}
	if schedule := extension(s, 1, append(narrow, sample("c1", 4, 100)), 3); len(schedule) != 2 {
		t.Errorf("begun, but %v", schedule)
	}
}

// Samples of other metrics do not decide.
func TestOnlyThePrimaryMetricDecides(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s := specOf(1, 1, 2)
	s.Until, s.Limit, s.Cases[0].Primary = 0.03, 9, "m"
	var samples []result.Sample
	for block := range 2 {
		samples = append(samples,
			result.Sample{Configuration: "c0", Case: "k0", Metric: "m", Block: block, Value: 1},
			result.Sample{Configuration: "c0", Case: "k0", Metric: "other", Block: block, Value: r.Float64(), Start: time.Time{}})
	}
	if schedule := extension(s, 1, samples, 2); len(schedule) != 0 {
		t.Errorf("got %v", schedule)
	}
}
