package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// ErrFatal is wrapped by a Bench's error after which no execution can succeed,
// such as a dead guest: unless the bench is a Restarter, the run stops at once and can
// be resumed.
var ErrFatal = errors.New("the machine is gone")

// ErrUnsupported is wrapped by a Bench's error that says that the case cannot run in the
// configuration, now or later: its tool is missing, its machine is too small. The
// execution is not tried again, nor are those of later blocks, and the run goes on.
var ErrUnsupported = errors.New("the case cannot run in this configuration")

// ErrIncomplete is wrapped by the error of a run that came to its end but gave
// up executions on the way.
var ErrIncomplete = errors.New("executions have no samples")

// Bench is what the engine drives: it has the configurations running and
// executes one case in one of them at a time. It must refuse options of a
// configuration that it does not honour.
type Bench interface {
	// Execute runs the case once and returns its values. When ctx ends, it
	// stops what it started and returns soon. An error that wraps ErrFatal stops
	// the run unless the bench is a Restarter, one that wraps ErrUnsupported leaves the case out
	// of the configuration, any other is tried again.
	Execute(ctx context.Context, e Execution) (Outcome, error)
}

// Lookahead is implemented by a Bench that makes use of knowing what follows.
type Lookahead interface {
	// Next says which execution of the same block follows the one that comes now. It
	// is a hint: another may follow, or none.
	Next(e Execution)
}

// Renewer is implemented by a Bench with parts that live on from one execution to the
// next, such as servers. What one of them has over its like, and keeps, would be a
// difference between configurations that no interval shows; so they live no longer
// than a block.
type Renewer interface {
	// Renew makes them anew. It comes before the first execution of each block, of the
	// warm-up, and of what is left of a block when a run is resumed. Its error is that
	// of the execution, and Renew comes again before the next.
	Renew(ctx context.Context) error
}

// Restarter is implemented by a Bench that can bring up anew what has died.
type Restarter interface {
	// Restart does so after an error that wraps ErrFatal. The execution that ended with it
	// is one that failed: it is tried again as others are, and given up as they are, so
	// that a case that kills its machine each time does not end the run. An error of
	// Restart does.
	Restart(ctx context.Context) error
}

// Outcome is what one execution yields.
type Outcome struct {
	Values []workload.Value  // metrics of the case, its primary one among them
	Boot   string            // kernel boot id of the guest measured
	Tags   map[string]string // anything else worth grouping by
}

// retryPause comes before the second attempt, twice of it before the third.
const retryPause = time.Second

// Run executes what of the plan has no samples in dir yet, so that an
// interrupted run is resumed by running it again. Each execution goes to the
// journal as soon as it is done. With spec.Until, further blocks follow the planned
// ones. The run's final state is in dir:
//   - complete, and Run returns nil: each execution has its samples, or is a hole
//     (ErrUnsupported), whose reason is among the run's failures;
//   - interrupted, because ctx ended: the error wraps its cause;
//   - failed, because of an error of the disk, one that wraps ErrFatal where nothing
//     can be revived, or because nothing succeeds any more, see giveUp;
//   - failed with ErrIncomplete, when all were tried and some given up.
//
// spec must be the experiment that dir holds; see FromRun.
func Run(ctx context.Context, spec *Spec, dir *result.Dir, bench Bench, progress Progress) error {
	run := dir.Run()
	if run.File != spec.Text {
		return fmt.Errorf("run experiment %s: directory %s holds a run of another experiment file", spec.Name, dir.Path())
	}
	e := &engine{
		spec: spec, dir: dir, bench: bench, progress: progress, block: spec.Repetitions, renewed: noBlock,
		known: map[result.Execution]bool{}, failed: map[result.Execution]bool{}, since: map[result.Execution]bool{}, worked: map[result.Execution]bool{}, holes: map[result.Execution]error{},
	}
	if _, ok := bench.(Renewer); ok {
		e.estimate.renewal = spec.Renewal()
	}
	e.add(Schedule(spec, run.Seed))
	e.addBegun()
	if err := dir.Update(func(r *result.Run) {
		r.State, r.Error, r.Ended, r.Planned = result.Running, "", time.Time{}, e.planned
		r.Failures = nil // they are to do again
	}); err != nil {
		return err
	}
	return e.finish(ctx, e.executions(ctx))
}

type engine struct {
	spec     *Spec
	dir      *result.Dir
	bench    Bench
	progress Progress

	planned  int
	known    map[result.Execution]bool // executions planned
	block    int                       // that may be added next
	renewed  int                       // block that the bench's parts were made for, see blockOf
	todo     []Execution               // in order; the first is the next
	estimate estimator
	givenUp  int                        // executions, holes among them
	holed    int                        // executions that are holes
	inRow    int                        // executions given up since the last that succeeded, without holes
	broken   int                        // of those, how many had worked before
	failed   map[result.Execution]bool  // pairs of case and configuration given up the last time
	since    map[result.Execution]bool  // pairs given up since the last execution that succeeded, without holes
	worked   map[result.Execution]bool  // pairs that have samples
	holes    map[result.Execution]error // pairs that cannot work, and why
}

// add takes those of plan that are not known yet into the run: what has no samples
// is to do, from the others it learns.
func (e *engine) add(plan []Execution) {
	took := map[result.Execution]time.Duration{}
	for _, s := range e.dir.Samples() {
		took[s.Execution()] = time.Duration(s.Duration * float64(time.Second))
	}
	for _, x := range plan {
		if e.known[x.Key()] {
			continue
		}
		e.known[x.Key()] = true
		e.planned++
		if d, done := took[x.Key()]; done {
			e.estimate.observe(x, d)
			e.worked[pair(x)] = true
		} else {
			e.todo = append(e.todo, x)
		}
	}
}

// addBegun adds the blocks beyond the plan of which there are samples already.
func (e *engine) addBegun() {
	samples := e.dir.Samples()
	last := -1
	for _, s := range samples {
		last = max(last, s.Block)
	}
	for block := e.spec.Repetitions; block <= last; block++ {
		e.add(extension(e.spec, e.dir.Run().Seed, samples, block))
	}
}

// more reports whether there is an execution to do. When the plan is through, it
// adds the blocks that are needed beyond it: also to those of a resumed run, whose
// plan may have yielded more than before.
func (e *engine) more() (bool, error) {
	for len(e.todo) == 0 {
		if e.spec.Until == 0 || e.block >= e.spec.Limit {
			return false, nil
		}
		plan := extension(e.spec, e.dir.Run().Seed, e.dir.Samples(), e.block)
		if len(plan) == 0 {
			return false, nil
		}
		e.block++
		e.add(plan)
		if len(e.todo) == 0 {
			continue // it is known
		}
		if err := e.dir.Update(func(r *result.Run) { r.Planned = e.planned }); err != nil {
			return false, err
		}
		e.report(Event{Kind: Extended, Cases: casesOf(e.todo)})
	}
	return true, nil
}

// casesOf names the cases of plan, each once.
func casesOf(plan []Execution) []string {
	var names []string
	for _, x := range plan {
		if !slices.Contains(names, x.Case.Name) {
			names = append(names, x.Case.Name)
		}
	}
	return names
}

// executions runs what is to do; its error stops the run.
func (e *engine) executions(ctx context.Context) error {
	if more, err := e.more(); err != nil || !more {
		return err
	}
	if err := e.warmUp(ctx); err != nil {
		return err
	}
	e.report(Event{Kind: Begun})
	for {
		if more, err := e.more(); err != nil || !more {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := e.execution(ctx, e.todo[0]); err != nil {
			return err
		}
	}
}

// warmUp runs the warm-up executions. One that fails stops the run only when it is
// fatal and nothing can be revived: its case is tried again in the blocks.
func (e *engine) warmUp(ctx context.Context) error {
	plan := warmups(e.spec)
	if len(plan) > 0 {
		e.progress.Phase(fmt.Sprintf("warm up with %d executions", len(plan)))
	}
	for _, x := range plan {
		_, err := e.attempt(ctx, x)
		if err := e.stops(ctx, x, err); err != nil {
			return err
		}
		if err != nil {
			e.report(Event{Kind: Retried, Execution: x, Attempt: 1, Err: err})
		}
	}
	return nil
}

// execution tries x until it has its samples or is given up.
func (e *engine) execution(ctx context.Context, x Execution) error {
	if cause := e.holes[pair(x)]; cause != nil {
		return e.giveUp(x, 1, cause)
	}
	attempts := 1 + e.spec.Retries
	if e.failed[pair(x)] {
		attempts = 1
	}
	// What comes after the servers are new cannot begin before.
	if bench, ok := e.bench.(Lookahead); ok && len(e.todo) > 1 && e.todo[1].Block == x.Block {
		bench.Next(e.todo[1])
	}
	for n := 1; ; n++ {
		e.report(Event{Kind: Started, Execution: x, Attempt: n})
		samples, err := e.attempt(ctx, x)
		if err == nil {
			return e.done(x, n, samples)
		}
		if err := e.stops(ctx, x, err); err != nil {
			return err
		}
		if n == attempts || errors.Is(err, ErrUnsupported) {
			return e.giveUp(x, n, err)
		}
		e.report(Event{Kind: Retried, Execution: x, Attempt: n, Err: err})
		if err := sleep(ctx, time.Duration(n)*retryPause); err != nil {
			return err
		}
	}
}

// finish writes the final state. The error of the run wins over one of writing
// it down.
func (e *engine) finish(ctx context.Context, err error) error {
	state := result.Failed
	switch {
	case err == nil && e.givenUp == e.holed:
		state = result.Complete
	case err == nil:
		err = fmt.Errorf("%d of %d %w: resume the run to try them again", e.givenUp, e.planned, ErrIncomplete)
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		state = result.Interrupted
		err = fmt.Errorf("interrupted with %d of %d executions to do: %w", len(e.todo), e.planned, context.Cause(ctx))
	}
	updateErr := e.dir.Update(func(r *result.Run) {
		r.State, r.Ended = state, time.Now().UTC()
		if err != nil {
			r.Error = err.Error()
		}
	})
	if err == nil {
		err = updateErr
	}
	e.report(Event{Kind: Ended, Err: err})
	return err
}

// report adds to the event how far the run is.
func (e *engine) report(event Event) {
	event.Done = e.planned - len(e.todo)
	event.Planned = e.planned
	event.Failures = e.givenUp
	event.Left = e.estimate.left(e.todo, e.renewed)
	e.progress.Report(event)
}

// stops returns why err, that x ended with, stops the run, nil when it does not. What
// has died is alive again then, and the run notes why.
func (e *engine) stops(ctx context.Context, x Execution, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !errors.Is(err, ErrFatal) {
		return nil
	}
	bench, ok := e.bench.(Restarter)
	if !ok {
		return err
	}
	e.progress.Phase("bring up anew what " + x.Configuration.Name + " runs on")
	again := bench.Restart(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case again != nil:
		return fmt.Errorf("%w; it could not be brought up anew: %w", err, again)
	}
	note := fmt.Sprintf("What %s runs on was brought up anew in case %s: %v.", x.Configuration.Name, x.Case.Name, err)
	return e.dir.Update(func(r *result.Run) { r.Notes = append(r.Notes, note) })
}

// sleep waits for d, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
