package experiment

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/stats"
)

// attempt runs x once within its time limit, which does not include Renew.
func (e *engine) attempt(ctx context.Context, x Execution) ([]result.Sample, error) {
	if err := e.renew(ctx, x); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, x.Case.Timeout)
	defer cancel()
	end, err := e.observe(x)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	outcome, err := e.bench.Execute(limited, x)
	took := time.Since(start)
	if err == nil {
		e.reading, err = end()
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no result within the time limit of %s: %w", x.Case.Timeout, err)
	}
	if err != nil {
		return nil, err
	}
	return e.samples(x, outcome, start, took)
}

// observe begins to observe the machine during x, if the bench can.
func (e *engine) observe(x Execution) (func() (noise.Reading, error), error) {
	if bench, ok := e.bench.(Observer); ok {
		return bench.Observe(x)
	}
	return func() (noise.Reading, error) { return noise.Reading{}, nil }, nil
}

// maxRepeats is how often a disturbed execution is repeated.
const maxRepeats = 3

// again reports whether x has to be repeated because of what else the machine did, beyond what it usually
// does. A run repeats one execution for two planned ones at most, and does not spend all repeats at its
// start. The decision does not depend on the result. What was measured stays in the journal, see noise.Select.
func (e *engine) again(x Execution) bool {
	done, earlier := len(e.known)-len(e.todo), e.readings
	e.readings = append(e.readings, e.reading)
	return !e.spec.Noisy && e.reading.Unusual(earlier) && e.dir.Discarded(x.Key()) < maxRepeats &&
		2*e.dir.Run().Disturbed < min(len(e.known), done+2*maxRepeats)
}

// tooNoisy reports whether so many of the samples that count are of disturbed executions that the report will conclude
// nothing. It writes down what that means, once.
func (e *engine) tooNoisy(samples []result.Sample) (bool, error) {
	if e.spec.Noisy || e.block < stats.MinRepetitions || !noise.TooNoisy(noise.OfSamples(samples)) {
		return false, nil
	}
	e.report(Event{Kind: TooNoisy})
	return true, e.dir.Update(func(r *result.Run) {
		if !slices.Contains(r.Notes, noteTooNoisy) {
			r.Notes = append(r.Notes, noteTooNoisy)
		}
	})
}

const noteTooNoisy = "No blocks were added for precision, because the machine was too noisy to conclude. " +
	"Stop what disturbs it and measure anew, or add them with unnest bench --noisy --resume."

// renew calls Renew unless it was called for the block of x.
func (e *engine) renew(ctx context.Context, x Execution) error {
	block := blockOf(x)
	bench, ok := e.bench.(Renewer)
	if !ok || e.renewed == block {
		return nil
	}
	start := time.Now()
	if err := bench.Renew(ctx, x); err != nil {
		return fmt.Errorf("prepare a block: %w", err)
	}
	if !e.spec.Fresh || e.renewed != noBlock { // the first machines were there
		e.estimate.observeRenewal(time.Since(start))
	}
	e.renewed = block
	return nil
}

// samples returns one sample for each value of the outcome and of its parts.
func (e *engine) samples(x Execution, o Outcome, start time.Time, took time.Duration) ([]result.Sample, error) {
	var samples []result.Sample
	of := result.Sample{
		Run: e.dir.Run().ID, Configuration: x.Configuration.Name, Suite: x.Case.Suite, Case: x.Case.Name,
		Block: x.Block, Repetition: x.Repetition, Boot: o.Boot, Start: start.UTC(), Duration: took.Seconds(), Resumption: e.dir.Run().Resumptions,
	}
	for i, part := range append([]Part{{o.Tags, o.Values}}, o.Parts...) {
		of.Tags = part.Tags
		all, err := part.samples(x.Case, of)
		if err != nil {
			return nil, err
		}
		if i == 0 && !slices.ContainsFunc(all, func(s result.Sample) bool { return s.Metric == x.Case.Primary }) {
			return nil, fmt.Errorf("execution gave no %s", x.Case.Primary)
		}
		samples = append(samples, all...)
	}
	for i := range o.Values {
		samples[i].Intervals = o.Intervals[samples[i].Metric]
	}
	return samples, nil
}

// samples returns one sample for each value; of has the fields that all share.
func (p Part) samples(c Case, of result.Sample) (samples []result.Sample, _ error) {
	seen := map[string]bool{}
	for _, v := range p.Values {
		i := slices.IndexFunc(c.Metrics, func(m result.Metric) bool { return m.Name == v.Metric })
		if i < 0 {
			return nil, fmt.Errorf("execution gave %s, which is not a metric of its case", v.Metric)
		}
		if seen[v.Metric] {
			return nil, fmt.Errorf("execution gave %s twice", v.Metric)
		}
		seen[v.Metric] = true
		m := c.Metrics[i]
		of.Metric, of.Unit, of.Order, of.Value = m.Name, m.Unit, m.Order, v.Value
		if err := of.Validate(); err != nil {
			return nil, err
		}
		samples = append(samples, of)
	}
	return samples, nil
}

// discard writes samples of x, which will be repeated, to the journal.
func (e *engine) discard(x Execution, samples []result.Sample) error {
	n := e.dir.Discarded(x.Key()) + 1
	for i := range samples {
		samples[i].Tag(e.reading.Tags())
		samples[i].Discarded = n
	}
	if err := e.dir.Append(samples); err != nil {
		return err
	}
	return e.dir.Update(func(r *result.Run) { r.Disturbed++ })
}

// done writes the samples of x to the journal, with tags for what else the machine did
// and, if it took several attempts, their number.
func (e *engine) done(x Execution, attempt int, samples []result.Sample) error {
	tags := e.reading.Tags()
	if attempt > 1 {
		tags["attempt"] = strconv.Itoa(attempt)
	}
	for i := range samples {
		samples[i].Tag(tags)
	}
	stale := e.stale(x)
	if err := e.dir.Append(samples); err != nil {
		return err
	}
	e.tally.succeeded(pair(x))
	e.todo = slices.Concat(stale, e.todo[1:])
	e.estimate.observe(x, time.Duration(samples[0].Duration*float64(time.Second)))
	shown := samples[slices.IndexFunc(samples, func(s result.Sample) bool { return s.Metric == x.Case.Primary })]
	e.report(Event{Kind: Done, Execution: x, Attempt: attempt, Value: shown.Value, Unit: shown.Unit})
	return nil
}

// stale returns the executions of the case and block of x that were measured before the run was resumed.
func (e *engine) stale(x Execution) (again []Execution) {
	seen := map[string]bool{}
	for _, s := range e.dir.Samples() {
		if s.Case == x.Case.Name && s.Block == x.Block && s.Resumption < e.dir.Run().Resumptions && !seen[s.Configuration] {
			seen[s.Configuration] = true
			i := slices.IndexFunc(e.spec.Configurations, func(c stack.Configuration) bool { return c.Name == s.Configuration })
			x.Configuration = e.spec.Configurations[i] // a run is read only if it has those of all samples
			again = append(again, x)
		}
	}
	return again
}

// giveUp records that x has no samples. Its error stops the run.
func (e *engine) giveUp(x Execution, attempts int, cause error) error {
	failure := result.Failure{
		Configuration: x.Configuration.Name, Case: x.Case.Name, Block: x.Block,
		Attempts: attempts, Error: cause.Error(),
	}
	if err := e.dir.Update(func(r *result.Run) { r.Failures = append(r.Failures, failure) }); err != nil {
		return err
	}
	e.tally.gaveUp(pair(x), cause)
	e.todo = e.todo[1:]
	e.report(Event{Kind: GivenUp, Execution: x, Attempt: attempts, Err: cause})
	if len(e.todo) > 0 && e.tally.hopeless(e.spec) {
		return fmt.Errorf("%d executions in a row failed, the last was %s: %w", e.tally.inRow, x, cause)
	}
	return nil
}

// Progress receives the events of a run. Its methods are called one at a time.
type Progress interface {
	// Phase starts a step other than an execution, such as "boot guest".
	Phase(name string)
	// Report reports an event of the executions.
	Report(Event)
}

// Kind is the kind of an event.
type Kind int

// The kinds of events.
const (
	Begun     Kind = iota // the executions begin; Done of Planned have samples already
	Started               // an attempt at Execution has started
	Retried               // the attempt has failed with Err, another one follows
	Done                  // Execution has its samples; Value is that of its primary metric
	GivenUp               // the last attempt has failed with Err
	Ended                 // no execution follows; Err is the error of the run
	Disturbed             // Execution is repeated because of what else the machine did: Reading
	Extended              // a block was added, because the ratios of Precisions are not precise enough
	TooNoisy              // no block is added, although some ratio is not precise enough: the machine is too noisy
)

// Event is one step of a run.
type Event struct {
	Kind      Kind
	Execution Execution
	Attempt   int // from 1
	Value     float64
	Unit      string
	Err       error
	Done      int           // executions that have samples or were given up
	Planned   int           // executions of the whole run, as far as they are known
	Failures  int           // executions given up
	Left      time.Duration // estimated time to the end

	Reading    noise.Reading
	Precisions []Precision // the reasons for the added block, one for each case
	Until      float64     // the precision that the run continues to, a fraction
}
