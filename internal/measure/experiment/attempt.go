package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"unnest/internal/measure/result"
)

// attempt runs x once within its time limit. What the bench makes anew for each block
// is made before, and is not in that time.
func (e *engine) attempt(ctx context.Context, x Execution) ([]result.Sample, error) {
	if err := e.renew(ctx, blockOf(x)); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, x.Case.Timeout)
	defer cancel()
	start := time.Now()
	outcome, err := e.bench.Execute(limited, x)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no result within the time limit of %s: %w", x.Case.Timeout, err)
	}
	if err != nil {
		return nil, err
	}
	return e.samples(x, outcome, start, time.Since(start))
}

// renew has the bench make anew what lives as long as a block, unless that was done
// for the block.
func (e *engine) renew(ctx context.Context, block int) error {
	bench, ok := e.bench.(Renewer)
	if !ok || e.renewed == block {
		return nil
	}
	start := time.Now()
	if err := bench.Renew(ctx); err != nil {
		return fmt.Errorf("make ready for a block: %w", err)
	}
	e.estimate.observeRenewal(time.Since(start))
	e.renewed = block
	return nil
}

// samples returns one sample for each value of the outcome.
func (e *engine) samples(x Execution, o Outcome, start time.Time, took time.Duration) ([]result.Sample, error) {
	var samples []result.Sample
	seen := map[string]bool{}
	for _, v := range o.Values {
		i := slices.IndexFunc(x.Case.Metrics, func(m result.Metric) bool { return m.Name == v.Metric })
		if i < 0 || seen[v.Metric] {
			return nil, fmt.Errorf("execution gave %s, which is not one metric of its case", v.Metric)
		}
		seen[v.Metric] = true
		m := x.Case.Metrics[i]
		s := result.Sample{
			Run: e.dir.Run().ID, Configuration: x.Configuration.Name,
			Suite: x.Case.Suite, Case: x.Case.Name,
			Metric: m.Name, Unit: m.Unit, Order: m.Order, Value: v.Value,
			Block: x.Block, Repetition: x.Repetition,
			Boot: o.Boot, Start: start.UTC(), Duration: took.Seconds(), Tags: o.Tags,
		}
		if err := s.Validate(); err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	if !seen[x.Case.Primary] {
		return nil, fmt.Errorf("execution gave no %s", x.Case.Primary)
	}
	return samples, nil
}

// done writes the samples of x to the journal.
func (e *engine) done(x Execution, attempt int, samples []result.Sample) error {
	if attempt > 1 {
		tag(samples, "attempt", strconv.Itoa(attempt))
	}
	if err := e.dir.Append(samples); err != nil {
		return err
	}
	e.inRow, e.broken = 0, 0
	clear(e.since)
	delete(e.failed, pair(x))
	e.worked[pair(x)] = true
	e.todo = e.todo[1:]
	e.estimate.observe(x, time.Duration(samples[0].Duration*float64(time.Second)))
	shown := samples[slices.IndexFunc(samples, func(s result.Sample) bool { return s.Metric == x.Case.Primary })]
	e.report(Event{Kind: Done, Execution: x, Attempt: attempt, Value: shown.Value, Unit: shown.Unit})
	return nil
}

// tag adds a tag to each sample.
func tag(samples []result.Sample, key, value string) {
	for i, s := range samples {
		tags := map[string]string{key: value}
		maps.Copy(tags, s.Tags)
		samples[i].Tags = tags
	}
}

// giveUp records that x has no samples. It stops the run when nothing succeeds any
// more: when, since the last success, three executions for each configuration
// failed, and either as many of them had worked before, or every case was among them
// in every configuration. A case that has never worked in a configuration therefore
// stops nothing as long as others work, and a hole never does.
func (e *engine) giveUp(x Execution, attempts int, cause error) error {
	failure := result.Failure{
		Configuration: x.Configuration.Name, Case: x.Case.Name, Block: x.Block,
		Attempts: attempts, Error: cause.Error(),
	}
	err := e.dir.Update(func(r *result.Run) { r.Failures = append(r.Failures, failure) })
	if err != nil {
		return err
	}
	e.count(x, cause)
	e.todo = e.todo[1:]
	e.report(Event{Kind: GivenUp, Execution: x, Attempt: attempts, Err: cause})
	few := 3 * len(e.spec.Configurations)
	all := len(e.spec.Cases)*len(e.spec.Configurations) - len(e.holes)
	if len(e.todo) > 0 && e.inRow >= few && (e.broken >= few || len(e.since) >= all) {
		return fmt.Errorf("%d executions in a row failed, the last was %s: %w", e.inRow, x, cause)
	}
	return nil
}

// count adds x to the executions that were given up.
func (e *engine) count(x Execution, cause error) {
	e.givenUp++
	if errors.Is(cause, ErrUnsupported) {
		e.holed++
		e.holes[pair(x)] = cause
		delete(e.since, pair(x))
		return
	}
	e.inRow++
	e.failed[pair(x)], e.since[pair(x)] = true, true
	if e.worked[pair(x)] {
		e.broken++
	}
}

// pair identifies what x measures, in any block.
func pair(x Execution) result.Execution {
	return result.Execution{Configuration: x.Configuration.Name, Case: x.Case.Name}
}
