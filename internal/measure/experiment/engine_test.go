package experiment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/workload"
)

// fakeBench takes a second for an execution, unless its script does something else. A
// real bench cannot be made to fail on demand.
type fakeBench struct {
	calls     []Execution
	first     []Execution                                                       // of the renewals
	script    func(ctx context.Context, call int, x Execution) (Outcome, error) // nil: always good
	renewals  []int                                                             // before which call each was
	renew     func(renewal int) error                                           // nil: always good, and takes no time
	observed  func(call int) noise.Reading                                      // nil: the machine is quiet
	announced [][]Execution                                                     // what comes, what follows
	next      []Execution
}

func (b *fakeBench) Renew(_ context.Context, first Execution) error {
	b.renewals, b.first = append(b.renewals, len(b.calls)), append(b.first, first)
	if b.renew != nil {
		return b.renew(len(b.renewals))
	}
	return nil
}

func (b *fakeBench) Observe(Execution) (func() (noise.Reading, error), error) {
	return func() (noise.Reading, error) {
		if b.observed == nil {
			return noise.Reading{}, nil
		}
		return b.observed(len(b.calls)), nil
	}, nil
}

func (b *fakeBench) Next(following []Execution) { b.next = following }

func (b *fakeBench) Execute(ctx context.Context, x Execution) (Outcome, error) {
	b.calls = append(b.calls, x)
	b.announced, b.next = append(b.announced, append([]Execution{x}, b.next...)), nil
	if b.script != nil {
		return b.script(ctx, len(b.calls), x)
	}
	time.Sleep(time.Second)
	return good(x), nil
}

// good returns a value for each metric of x: 100, 101, …
func good(x Execution) Outcome {
	o := Outcome{Boot: "boot-1", Tags: map[string]string{"tool": x.Case.Tool}}
	for i, m := range x.Case.Metrics {
		o.Values = append(o.Values, workload.Value{Metric: m.Name, Value: float64(100 + i)})
	}
	return o
}

func keys(executions []Execution) (all []result.Execution) {
	for _, x := range executions {
		all = append(all, x.Key())
	}
	return all
}

// recorder records phases and events.
type recorder struct {
	phases []string
	events []Event
}

func (r *recorder) Phase(name string) { r.phases = append(r.phases, name) }
func (r *recorder) Report(e Event)    { r.events = append(r.events, e) }

// kinds returns one letter per event.
func (r *recorder) kinds() string {
	var b strings.Builder
	for _, e := range r.events {
		b.WriteByte("BSRDGEX"[e.Kind])
	}
	return b.String()
}

// rig is a run directory, its experiment and its bench.
type rig struct {
	t        *testing.T
	path     string
	spec     *Spec
	bench    fakeBench
	progress recorder
}

func newRig(t *testing.T, change func(*Spec)) *rig {
	t.Helper()
	return newRigOf(t, small, change)
}

func newRigOf(t *testing.T, text string, change func(*Spec)) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "run"), spec: mustParse(t, text)}
	r.spec.Repetitions, r.spec.Warmup = 2, 0
	if change != nil {
		change(r.spec)
	}
	dir, err := rundir.Create(r.path, r.spec.NewRun("r1", 42, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// run starts or resumes the run in its directory.
func (r *rig) run(ctx context.Context) error {
	r.t.Helper()
	dir, err := rundir.Open(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	spec, err := FromRun(r.path, dir.Run())
	if err != nil {
		r.t.Fatal(err)
	}
	spec.Warmup, spec.Noisy = r.spec.Warmup, r.spec.Noisy
	return errors.Join(Run(ctx, spec, dir, &r.bench, &r.progress), dir.Close())
}

func (r *rig) load() (result.Run, []result.Sample) {
	r.t.Helper()
	run, samples, err := rundir.Load(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	return run, samples
}

func (r *rig) discarded() []result.Sample {
	r.t.Helper()
	_, journal, err := rundir.Read(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	return journal.Discarded
}

// wantExecutions checks that the journal has exactly these executions, in this order.
func (r *rig) wantExecutions(want []Execution) {
	r.t.Helper()
	_, samples := r.load()
	var got, keys []result.Execution
	for _, s := range samples {
		if len(got) == 0 || got[len(got)-1] != s.Execution() {
			got = append(got, s.Execution())
		}
	}
	for _, x := range want {
		keys = append(keys, x.Key())
	}
	if diff := cmp.Diff(keys, got); diff != "" {
		r.t.Errorf("executions in the journal (-want +got):\n%s", diff)
	}
}

func (r *rig) wantState(state result.State, message string) {
	r.t.Helper()
	run, _ := r.load()
	if run.State != state || !strings.Contains(run.Error, message) || (message == "") != (run.Error == "") {
		r.t.Errorf("state %s, error %q; want %s, %q", run.State, run.Error, state, message)
	}
	if run.Ended.IsZero() {
		r.t.Error("the run has no end")
	}
}

func TestRunCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		start := time.Now()
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		schedule := Schedule(r.spec, 42)
		r.wantState(result.Complete, "")
		r.wantExecutions(schedule)
		run, samples := r.load()
		if run.Planned != 12 || len(run.Failures) != 0 || run.Ended.Sub(start) != 12*time.Second {
			t.Errorf("planned %d, failures %v, took %v", run.Planned, run.Failures, run.Ended.Sub(start))
		}
		x := schedule[0]
		want := result.Sample{
			Run: "r1", Configuration: x.Configuration.Name, Suite: "network", Case: x.Case.Name,
			Metric: x.Case.Metrics[1].Name, Unit: x.Case.Metrics[1].Unit, Order: x.Case.Metrics[1].Order, Value: 101,
			Boot: "boot-1", Start: start.UTC(), Duration: 1, Tags: map[string]string{"tool": x.Case.Tool},
		}
		if diff := cmp.Diff(want, samples[1]); diff != "" {
			t.Errorf("second sample (-want +got):\n%s", diff)
		}
		if got, want := r.progress.kinds(), "B"+strings.Repeat("SD", 12)+"E"; got != want {
			t.Errorf("events %s, want %s", got, want)
		}
		last := r.progress.events[len(r.progress.events)-2]
		if last.Done != 12 || last.Planned != 12 || last.Left != 0 || last.Value != 100 {
			t.Errorf("last execution reported as %+v", last)
		}
	})
}

func TestRunLearnsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.bench.script = func(_ context.Context, _ int, x Execution) (Outcome, error) {
			time.Sleep(x.Case.Wall + 3*time.Second)
			return good(x), nil
		}
		start := time.Now()
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		end := time.Now()
		if begun := r.progress.events[0]; begun.Left != r.spec.Estimate() {
			t.Errorf("at first %v are left, want %v", begun.Left, r.spec.Estimate())
		}
		schedule := Schedule(r.spec, 42)
		// The first execution improves the estimate of its group only.
		left := end.Sub(start) - schedule[0].Case.Wall - 3*time.Second
		for _, x := range schedule {
			if x.Case.Group != schedule[0].Case.Group {
				left += overhead - x.Case.Lead*3/4 - 3*time.Second
			}
		}
		if first := r.progress.events[2]; first.Left != left {
			t.Errorf("after the first execution %v are left, want %v", first.Left, left)
		}
	})
}

// Renew is called once before each block and the warm-up, and again when a run is resumed
// in a block. Next does not announce executions of another block.
func TestRenewsOncePerBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Spec) { s.Warmup, s.Repetitions = 2, 3 })
		ctx, cancel := context.WithCancel(t.Context())
		const warmup, block = 8, 6
		r.bench.script = func(ctx context.Context, call int, x Execution) (Outcome, error) {
			switch call {
			case 3, warmup + 2:
				return Outcome{}, errors.New("tried again")
			case warmup + block + 3:
				cancel()
				return Outcome{}, ctx.Err()
			}
			return good(x), nil
		}
		if err := r.run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		// One execution of the first block took two calls.
		if diff := cmp.Diff([]int{0, warmup, warmup + block + 1}, r.bench.renewals); diff != "" {
			t.Errorf("renewed before the calls (-want +got):\n%s", diff)
		}
		r.bench = fakeBench{}
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		// One execution of the second block is done, and measured again after the other one of its case.
		if diff := cmp.Diff([]int{0, warmup, warmup + block}, r.bench.renewals); diff != "" {
			t.Errorf("renewed after the resume before the calls (-want +got):\n%s", diff)
		}
		for i, at := range r.bench.renewals {
			if r.bench.first[i].Key() != r.bench.calls[at].Key() {
				t.Errorf("renewal %d is for %s, and %s follows", i, r.bench.first[i], r.bench.calls[at])
			}
		}
		for i, x := range r.bench.calls {
			if i == warmup {
				continue // what is measured again is not announced
			}
			want := []Execution{x}
			for _, y := range r.bench.calls[i+1 : min(i+1+lookahead, len(r.bench.calls))] {
				if y.Block == x.Block {
					want = append(want, y)
				}
			}
			if diff := cmp.Diff(keys(want), keys(r.bench.announced[i])); diff != "" {
				t.Errorf("execution %d and what was announced with it (-want +got):\n%s", i, diff)
			}
		}
	})
}

// An execution whose Renew fails is retried and given up like any other, without being
// started. A fatal error stops the run.
func TestRenewalFails(t *testing.T) {
	refused := errors.New("port 5001 is taken")
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.bench.renew = func(renewal int) error {
			if renewal == 2 || renewal == 3 {
				return refused
			}
			return nil
		}
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{0, 6, 6, 6}, r.bench.renewals); diff != "" || len(r.bench.calls) != 12 {
			t.Errorf("%d calls; renewed before (-want +got):\n%s", len(r.bench.calls), diff)
		}
		for _, e := range r.progress.events {
			if e.Kind == Retried && (!errors.Is(e.Err, refused) || e.Execution.Block != 1) {
				t.Errorf("%+v", e)
			}
		}
		r.wantExecutions(Schedule(r.spec, 42))
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.bench.renew = func(int) error { return refused }
		if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), refused.Error()) || len(r.bench.calls) != 0 {
			t.Errorf("%d calls, error %v", len(r.bench.calls), err)
		}
		r.wantState(result.Failed, "6 executions in a row failed")
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.bench.renew = func(int) error { return fmt.Errorf("guest node1 died: %w", ErrFatal) }
		if err := r.run(t.Context()); !errors.Is(err, ErrFatal) || len(r.bench.renewals) != 1 {
			t.Errorf("%d renewals, error %v", len(r.bench.renewals), err)
		}
	})
}

// The time of Renew does not count for an execution or its time limit, but for the
// remaining time of the run.
func TestRenewalTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		const took = time.Minute // more than an execution may
		r.bench.renew = func(int) error {
			time.Sleep(took)
			return nil
		}
		start := time.Now()
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := time.Since(start), 12*time.Second+2*took; got != want {
			t.Errorf("took %v, want %v", got, want)
		}
		_, samples := r.load()
		for _, s := range samples {
			if s.Duration != 1 {
				t.Fatalf("an execution took %v s, want 1", s.Duration)
			}
		}
		var left []time.Duration
		for _, e := range r.progress.events {
			if e.Kind == Done {
				left = append(left, e.Left)
			}
		}
		// After the first block each group has been observed.
		if want := took + 6*time.Second; left[5] != want || left[6] != 5*time.Second || left[11] != 0 {
			t.Errorf("left after each execution: %v; want %v after the first block", left, want)
		}
	})
}

// For a bench without Renew no time is estimated.
func TestNothingToRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		dir, err := rundir.Open(r.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(Run(t.Context(), r.spec, dir, struct{ Bench }{&r.bench}, &r.progress), dir.Close()); err != nil {
			t.Fatal(err)
		}
		if got, want := r.progress.events[0].Left, r.spec.Estimate()-2*r.spec.Renewal(); got != want || r.spec.Renewal() <= 0 || len(r.bench.renewals) > 0 {
			t.Errorf("%v are left at first, want %v; %d renewals", got, want, len(r.bench.renewals))
		}
	})
}

func TestWarmupIsThrownAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Spec) { s.Warmup = 1 })
		r.bench.script = func(_ context.Context, call int, x Execution) (Outcome, error) {
			if call == 2 {
				return Outcome{}, errors.New("cold")
			}
			return good(x), nil
		}
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		schedule := Schedule(r.spec, 42)
		r.wantExecutions(schedule)
		r.wantState(result.Complete, "")
		if diff := cmp.Diff(append(r.spec.Warmups(), schedule...), r.bench.calls); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"warm up with 4 executions"}, r.progress.phases); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFailedAttemptsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.bench.script = func(_ context.Context, call int, x Execution) (Outcome, error) {
			if call <= 2 {
				return Outcome{}, errors.New("connection refused")
			}
			return good(x), nil
		}
		start := time.Now()
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v, want pauses of 1s and 2s", took)
		}
		r.wantState(result.Complete, "")
		r.wantExecutions(Schedule(r.spec, 42))
		_, samples := r.load()
		if samples[0].Tags["attempt"] != "3" || samples[0].Tags["tool"] == "" {
			t.Errorf("first execution has tags %v", samples[0].Tags)
		}
		if last := samples[len(samples)-1]; last.Tags["attempt"] != "" {
			t.Errorf("last execution has tags %v", last.Tags)
		}
		if got, want := r.progress.kinds(), "BSRSRSD"+strings.Repeat("SD", 11)+"E"; got != want {
			t.Errorf("events %s, want %s", got, want)
		}
	})
}

func TestGivenUpExecutionsAreTriedAgainByAResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		bad := func(x Execution) bool { return x.Configuration.Name == "fused" && x.Case.Group == "tcp_stream" }
		r.bench.script = func(_ context.Context, _ int, x Execution) (Outcome, error) {
			if bad(x) {
				return Outcome{}, errors.New("connection refused")
			}
			return good(x), nil
		}
		err := r.run(t.Context())
		if !errors.Is(err, ErrIncomplete) {
			t.Errorf("error %v, want ErrIncomplete", err)
		}
		r.wantState(result.Failed, "2 of 12 executions have no samples")
		schedule := Schedule(r.spec, 42)
		r.wantExecutions(slices.DeleteFunc(slices.Clone(schedule), bad))
		run, _ := r.load()
		failure := result.Failure{Configuration: "fused", Case: "tcp_stream/1280", Attempts: 3, Error: "connection refused"}
		again := failure
		again.Block, again.Attempts = 1, 1 // no retries for what failed the last time
		if diff := cmp.Diff([]result.Failure{failure, again}, run.Failures); diff != "" {
			t.Errorf("failures (-want +got):\n%s", diff)
		}
		if last := r.progress.events[len(r.progress.events)-1]; last.Failures != 2 || last.Done != 12 {
			t.Errorf("ended with %+v", last)
		}

		r.bench = fakeBench{}
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.wantState(result.Complete, "")
		// The other configuration of the case is measured again in both blocks.
		if run, samples := r.load(); len(run.Failures) != 0 || len(r.bench.calls) != 4 || len(samples) == 0 {
			t.Errorf("%d failures and %d executions after the resume", len(run.Failures), len(r.bench.calls))
		}
	})
}

func TestTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		hangs := func(x Execution) bool { return x.Case.Name == "udp_rr/64" && x.Block == 0 }
		r.bench.script = func(ctx context.Context, _ int, x Execution) (Outcome, error) {
			if hangs(x) {
				<-ctx.Done()
				return Outcome{}, ctx.Err()
			}
			return good(x), nil
		}
		start := time.Now()
		if err := r.run(t.Context()); !errors.Is(err, ErrIncomplete) {
			t.Errorf("error %v", err)
		}
		if took, want := time.Since(start), 2*(3*20+3)*time.Second; took != want {
			t.Errorf("took %v, want %v", took, want)
		}
		run, _ := r.load()
		for _, f := range run.Failures {
			if want := "no result within the time limit of 20s: context deadline exceeded"; f.Error != want {
				t.Errorf("failure %q, want %q", f.Error, want)
			}
		}
		if len(run.Failures) != 2 {
			t.Errorf("failures %v", run.Failures)
		}
	})
}

func TestFatalErrorStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.bench.script = func(_ context.Context, call int, x Execution) (Outcome, error) {
			if call == 6 {
				return Outcome{}, fmt.Errorf("guest node1 died: %w", ErrFatal)
			}
			return good(x), nil
		}
		if err := r.run(t.Context()); !errors.Is(err, ErrFatal) {
			t.Errorf("error %v, want ErrFatal", err)
		}
		schedule := Schedule(r.spec, 42)
		r.wantState(result.Failed, "guest node1 died")
		r.wantExecutions(schedule[:5])

		r.bench = fakeBench{}
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.wantState(result.Complete, "")
		r.wantExecutions(resumed(schedule, 5))
	})
}

// resumed returns a schedule in the order of the results if the run was interrupted after n executions: if one of the two of a
// case was done, the other one follows, and then it again.
func resumed(schedule []Execution, n int) []Execution {
	order := slices.Clone(schedule)
	if n%2 == 1 {
		order[n-1], order[n] = order[n], order[n-1]
	}
	return order
}

// restartingBench is a bench that can restart its machines.
type restartingBench struct {
	fakeBench
	restarts []int // after which call each was
	restart  func(revival int) error
}

func (b *restartingBench) Restart(context.Context) error {
	b.restarts = append(b.restarts, len(b.calls))
	return b.restart(len(b.restarts))
}

// runRestarting runs the rig's experiment on a bench that can restart.
func (r *rig) runRestarting(b *restartingBench) error {
	r.t.Helper()
	dir, err := rundir.Open(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	return errors.Join(Run(r.t.Context(), r.spec, dir, b, &r.progress), dir.Close())
}

func TestDeadMachineIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Spec) { s.Retries = 1 })
		b := &restartingBench{restart: func(int) error { return nil }}
		b.script = func(_ context.Context, call int, x Execution) (Outcome, error) {
			if call == 6 {
				return Outcome{}, fmt.Errorf("%w: guest node1 died", ErrFatal)
			}
			return good(x), nil
		}
		if err := r.runRestarting(b); err != nil {
			t.Fatal(err)
		}
		schedule := Schedule(r.spec, 42)
		r.wantState(result.Complete, "")
		r.wantExecutions(schedule)
		x := schedule[5]
		want := fmt.Sprintf("The machine of %s was restarted in case %s: the machine is gone: guest node1 died.", x.Configuration.Name, x.Case.Name)
		if run, _ := r.load(); !slices.Equal(b.restarts, []int{6}) || !slices.Equal(run.Notes, []string{want}) {
			t.Errorf("restarted after calls %v, the run notes %q, want %q", b.restarts, run.Notes, want)
		}
	})
}

// A case that kills its machine each time is given up like one that fails each time.
func TestCaseThatKillsItsMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Spec) { s.Retries = 1 })
		schedule := Schedule(r.spec, 42)
		killer := pair(schedule[0])
		b := &restartingBench{restart: func(int) error { return nil }}
		b.script = func(_ context.Context, _ int, x Execution) (Outcome, error) {
			if pair(x) == killer {
				return Outcome{}, fmt.Errorf("%w: guest node1 died", ErrFatal)
			}
			return good(x), nil
		}
		if err := r.runRestarting(b); !errors.Is(err, ErrIncomplete) {
			t.Errorf("error %v, want ErrIncomplete", err)
		}
		r.wantExecutions(slices.DeleteFunc(slices.Clone(schedule), func(x Execution) bool { return pair(x) == killer }))
		if len(b.restarts) != 3 { // twice in the first block, then once
			t.Errorf("restarted after calls %v", b.restarts)
		}
	})
}

func TestRestartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		b := &restartingBench{restart: func(int) error { return errors.New("no memory is left") }}
		b.script = func(context.Context, int, Execution) (Outcome, error) { return Outcome{}, ErrFatal }
		if err := r.runRestarting(b); !errors.Is(err, ErrFatal) || len(b.calls) != 1 {
			t.Errorf("error %v after %d executions", err, len(b.calls))
		}
		r.wantState(result.Failed, "the machine is gone; restart it: no memory is left")
	})
}

func TestFatalErrorInWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Spec) { s.Warmup = 1 })
		r.bench.script = func(context.Context, int, Execution) (Outcome, error) { return Outcome{}, ErrFatal }
		if err := r.run(t.Context()); !errors.Is(err, ErrFatal) || len(r.bench.calls) != 1 {
			t.Errorf("error %v after %d executions", err, len(r.bench.calls))
		}
		r.wantState(result.Failed, ErrFatal.Error())
	})
}

// A server that ends at once in every attempt stops the run, in the warm-up and in the first block. The
// error says in which configuration, and the run can be resumed.
func TestServerThatDiesAlways(t *testing.T) {
	for warmup, want := range map[int]int{0: 3, 1: 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(s *Spec) { s.Warmup = warmup })
			dead := 0
			r.bench.script = func(_ context.Context, _ int, x Execution) (Outcome, error) {
				if x.Configuration.Name != "fused" {
					return good(x), nil
				}
				dead++
				return Outcome{}, fmt.Errorf("start server web on guest node1: %w: stack smashing detected; exit code 134", ErrDied)
			}
			if err := r.run(t.Context()); !errors.Is(err, ErrDied) || dead != want {
				t.Errorf("error %v after %d attempts", err, dead)
			}
			r.wantState(result.Failed, "configuration fused, case ")
			r.wantState(result.Failed, "all 3 attempts: start server web on guest node1: it ended at once: stack smashing detected; exit code 134")

			r.bench = fakeBench{}
			if err := r.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.wantState(result.Complete, "")
		})
	}
}

// A server that ends at once and then works does not stop the run, nor does one that had worked before.
func TestServerThatDiesSometimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Spec) { s.Warmup = 1 })
		tries := map[string]int{}
		r.bench.script = func(_ context.Context, _ int, x Execution) (Outcome, error) {
			key := fmt.Sprint(x.Warmup, x.Key())
			tries[key]++
			if x.Block == 0 && tries[key] <= 2 || x.Block == 1 && x.Configuration.Name == "fused" && x.Case.Name == "udp_rr/64" {
				return Outcome{}, ErrDied
			}
			return good(x), nil
		}
		if err := r.run(t.Context()); !errors.Is(err, ErrIncomplete) {
			t.Errorf("error %v", err)
		}
		if run, _ := r.load(); len(run.Failures) != 1 || run.Failures[0].Attempts != 3 || run.Failures[0].Block != 1 {
			t.Errorf("failures %v", run.Failures)
		}
	})
}

func TestRunStopsWhenNothingSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.bench.script = func(context.Context, int, Execution) (Outcome, error) {
			return Outcome{}, errors.New("no route to host")
		}
		err := r.run(t.Context())
		if err == nil || errors.Is(err, ErrIncomplete) {
			t.Errorf("error %v", err)
		}
		r.wantState(result.Failed, "6 executions in a row failed")
		if run, _ := r.load(); len(run.Failures) != 6 {
			t.Errorf("%d failures, want 6", len(run.Failures))
		}
		if len(r.bench.calls) != 6*3 {
			t.Errorf("%d attempts, want 18", len(r.bench.calls))
		}
	})
}

// An unsupported execution is tried once, its reason is recorded, and the run is complete
// without it. A resumed run tries it again.
func TestUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Spec) { s.Repetitions = 5 })
		unsupported := func(x Execution) bool { return x.Configuration.Name == "fused" && x.Case.Group == "udp_rr" }
		r.bench.script = func(_ context.Context, _ int, x Execution) (Outcome, error) {
			if unsupported(x) {
				return Outcome{}, fmt.Errorf("%w: sockperf is not installed", ErrUnsupported)
			}
			return good(x), nil
		}
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		schedule := Schedule(r.spec, 42)
		r.wantState(result.Complete, "")
		r.wantExecutions(slices.DeleteFunc(slices.Clone(schedule), unsupported))
		tried := 0
		for _, x := range r.bench.calls {
			if unsupported(x) {
				tried++
			}
		}
		run, _ := r.load()
		if tried != 2 || len(run.Failures) != 10 { // two sizes
			t.Errorf("tried %d times, failures %v", tried, run.Failures)
		}
		for _, f := range run.Failures {
			if f.Configuration != "fused" || f.Attempts != 1 || !strings.HasSuffix(f.Error, "sockperf is not installed") {
				t.Errorf("failure %+v", f)
			}
		}

		r.bench = fakeBench{}
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if run, _ := r.load(); len(run.Failures) != 0 || len(r.bench.calls) != 20 { // 10 are measured again
			t.Errorf("%d failures and %d executions after the resume", len(run.Failures), len(r.bench.calls))
		}
	})
}

// A resumed run does not measure anything again for an execution that fails once more.
func TestResumeThatFillsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.bench.script = func(_ context.Context, _ int, x Execution) (Outcome, error) {
			if x.Configuration.Name == "fused" && x.Case.Group == "udp_rr" {
				return Outcome{}, ErrUnsupported
			}
			return good(x), nil
		}
		if err := errors.Join(r.run(t.Context()), r.run(t.Context())); err != nil {
			t.Fatal(err)
		}
		_, journal, err := rundir.Read(r.path)
		if calls := len(r.bench.calls); err != nil || calls != 12 || len(journal.Void) != 0 { // two of either are unsupported
			t.Errorf("%d calls, %d samples that do not count, error %v", calls, len(journal.Void), err)
		}
	})
}

// Cases that never worked do not stop the run while others work: all executions but those
// of one case in one configuration fail, six or more in a row.
func TestOneCaseThatWorksKeepsTheRunGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Spec) { s.Repetitions = 5 })
		works := func(x Execution) bool { return x.Configuration.Name == "NoCont" && x.Case.Name == "udp_rr/64" }
		row, longest := 0, 0
		r.bench.script = func(_ context.Context, _ int, x Execution) (Outcome, error) {
			if works(x) {
				row = 0
				return good(x), nil
			}
			row++
			longest = max(longest, row)
			return Outcome{}, errors.New("no such tool")
		}
		if err := r.run(t.Context()); !errors.Is(err, ErrIncomplete) {
			t.Errorf("error %v, want ErrIncomplete", err)
		}
		r.wantState(result.Failed, "25 of 30 executions have no samples")
		if run, samples := r.load(); len(run.Failures) != 25 || len(samples) == 0 || longest < 6 {
			t.Errorf("%d failures, %d samples, %d attempts failed in a row", len(run.Failures), len(samples), longest)
		}
	})
}

// If pairs that worked before fail, the run stops after three executions for each
// configuration, even if other pairs never worked.
func TestRunStopsWhenWhatWorkedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Spec) { s.Repetitions = 9 })
		r.bench.script = func(_ context.Context, call int, x Execution) (Outcome, error) {
			if x.Block >= 2 {
				return Outcome{}, errors.New("no route to host")
			}
			return good(x), nil
		}
		err := r.run(t.Context())
		if err == nil || errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "6 executions in a row failed") {
			t.Errorf("error %v", err)
		}
		r.wantExecutions(Schedule(r.spec, 42)[:12])
	})
}

// Wherever the run is interrupted, the resumed run has all executions. No case in a block has values of before and
// after the interruption.
func TestInterruptAndResume(t *testing.T) {
	for stop := 1; stop <= 12; stop++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("interrupted by a signal")
			r.bench.script = func(ctx context.Context, call int, x Execution) (Outcome, error) {
				if call == stop {
					cancel(cause)
					return Outcome{}, ctx.Err()
				}
				return good(x), nil
			}
			if err := r.run(ctx); !errors.Is(err, cause) {
				t.Errorf("error %v, want %v", err, cause)
			}
			schedule := Schedule(r.spec, 42)
			r.wantState(result.Interrupted, fmt.Sprintf("interrupted by a signal after %d of 12 executions", stop-1))
			r.wantExecutions(schedule[:stop-1])

			r.bench = fakeBench{}
			if err := r.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.wantState(result.Complete, "")
			r.wantExecutions(resumed(schedule, stop-1))
			again := (stop - 1) % 2
			if len(r.bench.calls) != 13-stop+again {
				t.Errorf("%d executions after the resume, want %d", len(r.bench.calls), 13-stop+again)
			}
			run, journal, err := rundir.Read(r.path)
			if err != nil || run.Resumptions != min(1, stop-1) || (len(journal.Void) > 0) != (again > 0) {
				t.Errorf("%d resumptions, %d samples that do not count, error %v", run.Resumptions, len(journal.Void), err)
			}
			sides := map[result.Execution]int{}
			for _, s := range journal.Samples {
				cell := result.Execution{Case: s.Case, Block: s.Block}
				if side, seen := sides[cell]; seen && side != s.Resumption {
					t.Errorf("interrupted at %d: %s has values of before and after", stop, s.Execution())
				}
				sides[cell] = s.Resumption
			}
		})
	}
}

func TestInterruptKeepsTheExecutionThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		r.bench.script = func(_ context.Context, call int, x Execution) (Outcome, error) {
			if call == 3 {
				cancel()
			}
			return good(x), nil
		}
		if err := r.run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		r.wantExecutions(Schedule(r.spec, 42)[:3])
		r.wantState(result.Interrupted, "after 3 of 12 executions")
	})
}

func TestInterruptDuringThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		r.bench.script = func(context.Context, int, Execution) (Outcome, error) { return Outcome{}, errors.New("busy") }
		if err := r.run(ctx); !errors.Is(err, context.DeadlineExceeded) || len(r.bench.calls) != 1 {
			t.Errorf("error %v after %d attempts", err, len(r.bench.calls))
		}
		r.wantState(result.Interrupted, "after 0 of 12 executions")
	})
}

func TestResumeOfACompleteRunDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Spec) { s.Warmup = 1 })
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.bench = fakeBench{}
		if err := r.run(t.Context()); err != nil || len(r.bench.calls) != 0 {
			t.Errorf("error %v after %d executions", err, len(r.bench.calls))
		}
		r.wantState(result.Complete, "")
	})
}

func TestOutcomesThatAreNone(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Outcome)
		want   string
	}{
		"nothing":   {func(o *Outcome) { o.Values = nil }, "execution gave no "},
		"unknown":   {func(o *Outcome) { o.Values = append(o.Values, workload.Value{Metric: "mood", Value: 1}) }, "gave mood, which is not a metric"},
		"twice":     {func(o *Outcome) { o.Values = append(o.Values, o.Values[0]) }, "gave latency_mean twice"},
		"infinite":  {func(o *Outcome) { o.Values[0].Value = math.Inf(1) }, "value is not finite"},
		"secondary": {func(o *Outcome) { o.Values = o.Values[1:] }, "execution gave no "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.bench.script = func(_ context.Context, call int, x Execution) (Outcome, error) {
					o := good(x)
					if x.Block == 0 && x.Case.Name == "udp_rr/64" {
						test.change(&o)
					}
					return o, nil
				}
				if err := r.run(t.Context()); !errors.Is(err, ErrIncomplete) {
					t.Errorf("error %v", err)
				}
				run, _ := r.load()
				if len(run.Failures) != 2 || !strings.Contains(run.Failures[0].Error, test.want) {
					t.Errorf("failures %v, want %q", run.Failures, test.want)
				}
			})
		})
	}
}

func TestMetricsOfTheBench(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cpu := result.Metric{Name: "guest_cpu_per_op", Unit: "us/op", Order: result.LIB}
		r := newRig(t, func(s *Spec) { s.AddMetrics(cpu) })
		if err := r.run(t.Context()); err != nil { // reads the spec from the run directory
			t.Fatal(err)
		}
		_, samples := r.load()
		n := 0
		for _, s := range samples {
			if s.Metric == cpu.Name && s.Unit == cpu.Unit {
				n++
			}
		}
		if n != 12 {
			t.Errorf("%d samples of %s, want 12", n, cpu.Name)
		}
	})
}

func TestRunStopsWhenTheJournalCannotBeWritten(t *testing.T) {
	r := newRig(t, nil)
	dir, err := rundir.Open(r.path)
	if err != nil {
		t.Fatal(err)
	}
	r.bench.script = func(_ context.Context, call int, x Execution) (Outcome, error) {
		if call == 3 {
			return good(x), dir.Close()
		}
		return good(x), nil
	}
	err = Run(t.Context(), r.spec, dir, &r.bench, silent{})
	if !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), r.path) {
		t.Errorf("error %v does not say that %s is closed", err, r.path)
	}
	r.wantState(result.Failed, r.path)
	r.wantExecutions(Schedule(r.spec, 42)[:2])
}

func TestRunRefusesAnotherExperiment(t *testing.T) {
	r := newRig(t, nil)
	dir, err := rundir.Open(r.path)
	if err != nil {
		t.Fatal(err)
	}
	other := mustParse(t, small+"# changed\n")
	if err := Run(t.Context(), other, dir, &r.bench, silent{}); err == nil || len(r.bench.calls) != 0 {
		t.Errorf("error %v after %d executions", err, len(r.bench.calls))
	}
	if err := dir.Close(); err != nil {
		t.Error(err)
	}
}

// silent is a Progress without output.
type silent struct{}

// Phase does nothing.
func (silent) Phase(string) {}

// Report does nothing.
func (silent) Report(Event) {}
