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

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

func TestLeastPrecise(t *testing.T) {
	s := specOf(3, 1, 6)
	s.Until, s.Limit, s.Baselines = 0.05, 20, []string{"c0"}
	of := func(values ...float64) (obs []stats.Observation) {
		for block, v := range values {
			obs = append(obs, stats.Observation{Block: block, Value: v})
		}
		return obs
	}
	steady, ripple := of(100, 100, 100, 100, 100, 100), of(101, 99, 101, 99, 101, 99)
	for _, test := range []struct {
		name   string
		c1, c2 []stats.Observation
		want   string // the configuration, empty: precise
	}{
		{"constant", steady, steady, ""},
		{"a ripple", ripple, ripple, ""},
		{"one is wide", ripple, of(110, 90, 110, 90, 110, 90), "c2"},
		{"the wider of two", of(120, 80, 120, 80, 120, 80), of(110, 90, 110, 90, 110, 90), "c1"},
		{"five blocks", ripple[:5], ripple, "c1"},
		{"never worked", nil, ripple, ""},
		{"no ratio", of(0, 1, 0, 1, 0, 1), ripple, ""},
	} {
		worst, wide := leastPrecise(s, s.Cases[0], map[string][]stats.Observation{"c0": steady, "c1": test.c1, "c2": test.c2})
		if wide != (test.want != "") || worst.Configuration != test.want || wide && worst.Baseline != "c0" {
			t.Errorf("%s: %+v, wide %v; want %q", test.name, worst, wide, test.want)
		}
	}
	worst, _ := leastPrecise(s, s.Cases[0], map[string][]stats.Observation{"c0": steady, "c1": of(110, 90, 110, 90, 110, 90), "c2": ripple})
	e, err := stats.Compare(of(110, 90, 110, 90, 110, 90), steady, true)
	if err != nil || worst.Half != e.Interval(0.95).High/e.Ratio()-1 || worst.Blocks != 6 || worst.Further != 14 {
		t.Errorf("%+v, error %v", worst, err)
	}
	single := specOf(1, 1, 6)
	single.Until, single.Limit, single.Baselines = 0.05, 20, []string{"c0"}
	if worst, wide := leastPrecise(single, single.Cases[0], map[string][]stats.Observation{"c0": of(110, 90, 110, 90, 110, 90)}); !wide || worst.Baseline != "" || worst.Ratio < 99 {
		t.Errorf("one configuration: %+v, wide %v", worst, wide)
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

// With a variation of ±s around a steady baseline, n values of either sign have a half
// interval of about t·s/√(n-1), t from Student's table: ±3 % is within 3 % of the ratio at
// n = 8 (2.365·3/√7 = 2.7), not at 6 (2.571·3/√5 = 3.4). No ratio is known below six.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, until, nil)
		r.bench.script = noisy(map[string]float64{"NoCont udp_rr/64": 3, "fused udp_rr/1024": 50})
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := map[string]int{
			"NoCont udp_rr/64": 8, "fused udp_rr/64": 8, // the other configuration goes along
			"NoCont udp_rr/1024": 9, "fused udp_rr/1024": 9, // to the limit
			"NoCont tcp_stream/1280": 6, "fused tcp_stream/1280": 6, // narrow at once
		}
		if diff := cmp.Diff(want, r.blocksOf()); diff != "" {
			t.Errorf("blocks (-want +got):\n%s", diff)
		}
		r.wantState(result.Complete, "")
		run, _ := r.load()
		if run.Planned != 46 || run.Repetitions != 2 {
			t.Errorf("planned %d, repetitions %d; want 46, 2", run.Planned, run.Repetitions)
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
				var cases []string
				for _, p := range e.Precisions {
					cases = append(cases, p.Case)
				}
				slices.Sort(cases)
				added = append(added, cases)
			}
		}
		all, both, one := []string{"tcp_stream/1280", "udp_rr/1024", "udp_rr/64"}, []string{"udp_rr/1024", "udp_rr/64"}, []string{"udp_rr/1024"}
		if diff := cmp.Diff([][]string{all, all, all, all, both, both, one}, added); diff != "" {
			t.Errorf("blocks added (-want +got):\n%s", diff)
		}
	})
}

// The orders of the configurations are balanced in the added blocks too.
func TestExtensionIsBalanced(t *testing.T) {
	s := specOf(3, 2, 6)
	s.Until, s.Limit, s.Baselines = 0.01, 12, []string{"c0"}
	for i := range s.Cases {
		s.Cases[i].Primary = "m"
	}
	var samples []result.Sample
	for _, x := range Schedule(s, 1) {
		samples = append(samples, result.Sample{Configuration: x.Configuration.Name, Case: x.Case.Name, Metric: "m", Block: x.Block, Value: 100 + float64(x.Block*len(x.Configuration.Name+x.Case.Name)*int(x.Configuration.Name[1]))})
	}
	orders := map[string]map[string]bool{}
	for block := 6; block < 12; block++ {
		schedule, _ := extension(s, 7, samples, block)
		if len(schedule) != 6 || !cmp.Equal(keysOf(schedule), keysOf(first(extension(s, 7, samples, block)))) {
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

func first(schedule []Execution, _ []Precision) []Execution { return schedule }

func keysOf(schedule []Execution) (keys []result.Execution) {
	for _, x := range schedule {
		keys = append(keys, x.Key())
	}
	return keys
}

// Wherever a run with added blocks is interrupted, the resumed run has the executions of
// an uninterrupted one, in order.
func TestInterruptAndResumeWithUntil(t *testing.T) {
	script := noisy(map[string]float64{"NoCont udp_rr/64": 3, "fused udp_rr/1024": 50})
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
				r := newRigOf(t, until, func(s *Spec) { s.Repetitions = 6 })
				ctx, cancel := context.WithCancel(t.Context())
				script := noisy(map[string]float64{"NoCont udp_rr/64": test.percent})
				r.bench.script = func(ctx context.Context, call int, x Execution) (Outcome, error) {
					if call == 36 {
						cancel()
					}
					return script(ctx, call, x)
				}
				_ = r.run(ctx)
				if run, _ := r.load(); run.State != test.want || len(r.bench.calls) != 36 {
					t.Errorf("%s after %d executions, want %s", run.State, len(r.bench.calls), test.want)
				}
			})
		})
	}
}

// No block is added for a case that never worked in one of two configurations: it has no
// ratio.
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
		want := map[string]int{"NoCont udp_rr/64": 2, "NoCont udp_rr/1024": 2, "NoCont tcp_stream/1280": 6, "fused tcp_stream/1280": 6}
		if diff := cmp.Diff(want, r.blocksOf()); diff != "" {
			t.Errorf("blocks (-want +got):\n%s", diff)
		}
		if run, _ := r.load(); len(run.Failures) != 4 || run.Planned != 20 {
			t.Errorf("%d failures, planned %d; want 4, 20", len(run.Failures), run.Planned)
		}
	})
}

// A resumed run that fills scheduled executions counts the existing added blocks, and adds
// others if the intervals require them.
func TestResumeFillsTheScheduleBesideAddedBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, until, nil)
		script := noisy(map[string]float64{"NoCont udp_rr/64": 3, "fused tcp_stream/1280": 50})
		r.bench.script = func(ctx context.Context, call int, x Execution) (Outcome, error) {
			if x.Configuration.Name == "fused" && x.Case.Group == "tcp_stream" {
				return Outcome{}, errors.New("connection refused")
			}
			return script(ctx, call, x)
		}
		if err := r.run(t.Context()); !errors.Is(err, ErrIncomplete) {
			t.Errorf("error %v, want ErrIncomplete", err)
		}
		if run, _ := r.load(); run.Planned != 32 || len(run.Failures) != 2 {
			t.Errorf("planned %d with %d failures; want 32 with 2", run.Planned, len(run.Failures))
		}
		r.bench, r.progress = fakeBench{script: script}, recorder{}
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if begun := r.progress.events[0]; begun.Kind != Begun || begun.Planned != 32 || begun.Done != 30 {
			t.Errorf("resumed with %+v", begun)
		}
		want := map[string]int{
			"NoCont udp_rr/64": 8, "fused udp_rr/64": 8, "NoCont udp_rr/1024": 6, "fused udp_rr/1024": 6,
			"NoCont tcp_stream/1280": 9, "fused tcp_stream/1280": 9,
		}
		got := r.blocksOf()
		if run, _ := r.load(); run.Planned != 46 || len(r.bench.calls) != 16+2 { // the other configuration of what was filled
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
	s := specOf(2, 1, 6)
	s.Until, s.Limit, s.Baselines, s.Cases[0].Primary = 0.03, 9, []string{"c0"}, "m"
	sample := func(configuration string, block int, value float64) result.Sample {
		return result.Sample{Configuration: configuration, Case: "k0", Metric: "m", Block: block, Value: value}
	}
	var narrow []result.Sample
	for block := range 6 {
		narrow = append(narrow, sample("c0", block, 100), sample("c1", block, 100+float64(block%2)))
	}
	if schedule, _ := extension(s, 1, narrow, 6); len(schedule) != 0 {
		t.Errorf("narrow, but %v", schedule)
	}
	if schedule, _ := extension(s, 1, append(narrow, sample("c1", 7, 100)), 6); len(schedule) != 2 {
		t.Errorf("begun, but %v", schedule)
	}
}

// Samples of other metrics do not decide.
func TestOnlyThePrimaryMetricDecides(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s := specOf(1, 1, 6)
	s.Until, s.Limit, s.Baselines, s.Cases[0].Primary = 0.03, 9, []string{"c0"}, "m"
	var samples []result.Sample
	for block := range 6 {
		samples = append(samples,
			result.Sample{Configuration: "c0", Case: "k0", Metric: "m", Block: block, Value: 1},
			result.Sample{Configuration: "c0", Case: "k0", Metric: "other", Block: block, Value: r.Float64(), Start: time.Time{}})
	}
	if schedule, _ := extension(s, 1, samples, 6); len(schedule) != 0 {
		t.Errorf("got %v", schedule)
	}
}
