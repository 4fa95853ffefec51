package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
)

// ErrIncomplete is wrapped by the error of a run that reached its end but gave up some
// executions.
var ErrIncomplete = errors.New("executions have no samples")

// retryPause precedes the second attempt, twice of it the third.
const retryPause = time.Second

// Run executes the part of the schedule that has no samples in dir yet, so running it
// again resumes an interrupted run. It writes each execution to the journal at once.
// A resumed run measures all executions of a case in a block again once it has measured one that was missing, see result.Journal.
// With spec.Until it adds blocks to the schedule. At the end dir has the final state:
//   - complete, and Run returns nil: every execution has its samples or is unsupported,
//     with the reason among the run's failures;
//   - interrupted, because ctx ended: the error wraps its cause;
//   - failed, because of a disk error, an error that wraps ErrFatal without a restart, because
//     a server died in all attempts, see ErrDied, or because nothing succeeds any more, see
//     tally.hopeless;
//   - failed with ErrIncomplete, because some executions were given up.
//
// spec must be the experiment that dir holds; see FromRun.
func Run(ctx context.Context, spec *Spec, dir *rundir.Dir, bench Bench, progress Progress) error {
	run := dir.Run()
	if run.File != spec.Text {
		return fmt.Errorf("run experiment %s: directory %s holds a run of another experiment file", spec.Name, dir.Path())
	}
	e := &engine{
		spec: spec, dir: dir, bench: bench, progress: progress, block: spec.Repetitions, renewed: noBlock,
		known: map[result.Execution]bool{}, tally: newTally(),
	}
	if _, ok := bench.(Renewer); ok {
		e.estimate.renewal = spec.Renewal()
	}
	journal := dir.Journal()
	e.readings = noise.OfSamples(journal.All())
	e.add(Schedule(spec, run.Seed))
	e.addBegun()
	if err := dir.Update(func(r *result.Run) {
		r.State, r.Error, r.Ended, r.Planned = result.Running, "", time.Time{}, len(e.known)
		r.Failures = nil // they are tried again
		if journal.Size > 0 {
			r.Resumptions++
		}
	}); err != nil {
		return err
	}
	return e.finish(ctx, e.executions(ctx))
}

type engine struct {
	spec     *Spec
	dir      *rundir.Dir
	bench    Bench
	progress Progress

	known    map[result.Execution]bool // executions of the run, done or not
	todo     []Execution               // in order; the first is next
	block    int                       // the next block that may be added
	renewed  int                       // the block of the last Renew, see blockOf
	estimate estimator
	tally    tally
	reading  noise.Reading   // of the last attempt
	readings []noise.Reading // of all, also of those that were discarded, or made before a resumption
}

// add adds the executions that are not known yet. Those without samples are to do; the
// others improve the estimate.
func (e *engine) add(schedule []Execution) {
	took := map[result.Execution]time.Duration{}
	for _, s := range e.dir.Samples() {
		took[s.Execution()] = time.Duration(s.Duration * float64(time.Second))
	}
	for _, x := range schedule {
		if e.known[x.Key()] {
			continue
		}
		e.known[x.Key()] = true
		if d, done := took[x.Key()]; done {
			e.estimate.observe(x, d)
			e.tally.worked[pair(x)] = true
		} else {
			e.todo = append(e.todo, x)
		}
	}
}

// addBegun adds the blocks beyond the schedule that have samples already.
func (e *engine) addBegun() {
	samples := e.selected()
	last := -1
	for _, s := range samples {
		last = max(last, s.Block)
	}
	for block := e.spec.Repetitions; block <= last; block++ {
		added, _ := extension(e.spec, e.dir.Run().Seed, samples, block)
		e.add(added)
	}
}

// selected returns the samples that count in the report.
func (e *engine) selected() []result.Sample { return noise.Select(e.dir.Journal()) }

// more reports whether there is an execution to do. At the end of the schedule it adds
// the blocks that spec.Until requires. A resumed run may have to fill earlier added
// blocks, because its schedule can have more samples than before.
func (e *engine) more() (bool, error) {
	for len(e.todo) == 0 {
		if e.spec.Until == 0 || e.block >= e.spec.Limit {
			return false, nil
		}
		samples := e.selected()
		added, reasons := extension(e.spec, e.dir.Run().Seed, samples, e.block)
		if len(added) == 0 {
			return false, nil
		}
		if noisy, err := e.tooNoisy(samples); noisy || err != nil {
			return false, err
		}
		e.block++
		e.add(added)
		if len(e.todo) == 0 {
			continue
		}
		if err := e.dir.Update(func(r *result.Run) { r.Planned = len(e.known) }); err != nil {
			return false, err
		}
		e.report(Event{Kind: Extended, Precisions: reasons, Until: e.spec.Until})
	}
	return true, nil
}

// executions runs everything to do. Its error stops the run.
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

// warmUp runs the warm-up executions.
func (e *engine) warmUp(ctx context.Context) error {
	schedule := e.spec.Warmups()
	if len(schedule) > 0 {
		e.progress.Phase(fmt.Sprintf("warm up with %d executions", len(schedule)))
	}
	for i, x := range schedule {
		e.announce(schedule[i:])
		if err := e.warmUpBy(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// warmUpBy runs a warm-up execution. It retries one whose server died: if every attempt ends like
// this, so will those in the blocks. Another failure is not retried, because the case runs again
// in the blocks.
func (e *engine) warmUpBy(ctx context.Context, x Execution) error {
	for n := 1; ; n++ {
		_, err := e.attempt(ctx, x)
		if err := e.stops(ctx, x, err); err != nil {
			return err
		}
		if err == nil {
			return nil
		}
		e.report(Event{Kind: Retried, Execution: x, Attempt: n, Err: err})
		if n > e.spec.Retries || !errors.Is(err, ErrDied) {
			return nil
		}
		if err := sleep(ctx, time.Duration(n)*retryPause); err != nil {
			return err
		}
	}
}

// execution tries x until it has its samples or is given up.
func (e *engine) execution(ctx context.Context, x Execution) error {
	if cause := e.tally.unsupported[pair(x)]; cause != nil {
		return e.giveUp(x, 1, cause)
	}
	attempts := 1 + e.spec.Retries
	if e.tally.failed[pair(x)] {
		attempts = 1
	}
	for n := 1; ; {
		e.announce(e.todo)
		e.report(Event{Kind: Started, Execution: x, Attempt: n})
		samples, err := e.attempt(ctx, x)
		switch {
		case err == nil && e.again(x):
			e.report(Event{Kind: Disturbed, Execution: x, Reading: e.reading})
			if err := e.discard(x, samples); err != nil {
				return err
			}
			continue
		case err == nil:
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
		n++
	}
}

// lookahead is the number of executions that are announced.
const lookahead = 2

// announce tells the bench the executions after the first that belong to its block: nothing of the
// next block can be prepared before Renew.
func (e *engine) announce(todo []Execution) {
	bench, ok := e.bench.(Lookahead)
	if !ok {
		return
	}
	following := todo[1:min(len(todo), 1+lookahead)]
	if i := slices.IndexFunc(following, func(x Execution) bool { return x.Block != todo[0].Block }); i >= 0 {
		following = following[:i]
	}
	bench.Next(following)
}

// stops returns the reason if err, the error of x, stops the run, else nil. It restarts
// a dead machine if it can, and adds a note to the run.
func (e *engine) stops(ctx context.Context, x Execution, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if attempts := e.tally.deathsOf(pair(x), err); attempts > max(1, e.spec.Retries) && !e.tally.worked[pair(x)] {
		return fmt.Errorf("configuration %s, case %s, all %d attempts: %w", x.Configuration.Name, x.Case.Name, attempts, err)
	}
	if !errors.Is(err, ErrFatal) {
		return nil
	}
	bench, ok := e.bench.(Restarter)
	if !ok {
		return err
	}
	e.progress.Phase("restart the machine of " + x.Configuration.Name)
	again := bench.Restart(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case again != nil:
		return fmt.Errorf("%w; restart it: %w", err, again)
	}
	note := fmt.Sprintf("The machine of %s was restarted in case %s: %v.", x.Configuration.Name, x.Case.Name, err)
	return e.dir.Update(func(r *result.Run) { r.Notes = append(r.Notes, note) })
}

// finish writes the final state. The error of the run takes precedence over an error of
// writing it.
func (e *engine) finish(ctx context.Context, err error) error {
	state := result.Failed
	switch {
	case err == nil && e.tally.givenUp == 0:
		state = result.Complete
	case err == nil:
		err = fmt.Errorf("%d of %d %w: resume the run to try them again", e.tally.total, len(e.known), ErrIncomplete)
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		state = result.Interrupted
		err = fmt.Errorf("%w after %d of %d executions", context.Cause(ctx), len(e.known)-len(e.todo), len(e.known))
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

// report completes the event with the state of the run.
func (e *engine) report(event Event) {
	event.Done = len(e.known) - len(e.todo)
	event.Planned = len(e.known)
	event.Failures = e.tally.total
	event.Left = e.estimate.left(e.todo, e.renewed)
	e.progress.Report(event)
}

// sleep waits for d, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
