package domains

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/load/pacing"
	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/study/client"
	"unnest.io/unnest/internal/measure/workload"
)

// Execute loads the active domains of a configuration once, see experiment.Bench: with a share of
// their full loads, or more and more until their throughput falls.
func (s *Study) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	run := s.offer
	if e.Case.Intensity == 0 {
		run = s.raise
	}
	step, err := s.whileAlive(ctx, e, run)
	if err != nil {
		return experiment.Outcome{}, err
	}
	return step.outcome(e), nil
}

// whileAlive calls run with a context that ends when a machine of the configuration ends.
func (s *Study) whileAlive(ctx context.Context, e experiment.Execution, run func(context.Context, experiment.Execution) (loadStep, error)) (loadStep, error) {
	var all machine.List
	for _, name := range e.Configuration.DomainNames() {
		all = append(all, s.domains[name].machine)
	}
	ctx, done := machine.WhileAlive(ctx, all...)
	defer done()
	step, err := run(ctx, e)
	return step, all.Explain(err)
}

// offer loads the active domains with a share of their full loads.
func (s *Study) offer(ctx context.Context, e experiment.Execution) (loadStep, error) {
	here, err := s.present(ctx, e.Configuration)
	if err != nil {
		return loadStep{}, err
	}
	rates := map[string]int{}
	for _, i := range e.Configuration.Active() {
		d := e.Configuration.Domains[i]
		full := s.full[fullOf{d.Type, sizeOf(d, e.Case)}]
		rates[here[i].name] = max(1, int(math.Round(full*float64(e.Case.Intensity)/100)))
	}
	step, err := s.step(ctx, e, here, rates)
	return step, errors.Join(err, step.unanswered)
}

// raise raises the load of each active domain until their throughput falls, and returns the step
// with the highest one.
func (s *Study) raise(ctx context.Context, e experiment.Execution) (loadStep, error) {
	var here []*guestDomain // nil: before the first step, and after one that a server did not survive
	return climb(e.Case.Params.Step, func(rate int) (step loadStep, err error) {
		if here == nil {
			if here, err = s.present(ctx, e.Configuration); ctx.Err() != nil || errors.Is(err, experiment.ErrFatal) {
				return loadStep{}, cmp.Or(context.Cause(ctx), err)
			} else if err != nil { // present starts those again that are stale
				return loadStep{unanswered: err, exhausted: true, limit: fmt.Sprintf("it ended at %d requests/s, because servers did not start again (%v)", rate, err)}, nil
			}
		}
		rates := map[string]int{}
		for _, i := range e.Configuration.Active() {
			rates[here[i].name] = rate
		}
		if step, err = s.step(ctx, e, here, rates); step.unanswered != nil {
			here = nil // read has seen which servers have to be started again
		}
		return step, err
	})
}

// climb loads domains more and more until their throughput falls, and returns the step with the highest one. The
// throughput is 0 under a load at which a domain answers nothing. It ends early where the load generators are at
// their limit. The limit of the step says so, and also if the ramp ended before the throughput fell.
func climb(by int, load func(rate int) (loadStep, error)) (loadStep, error) {
	ramp, limit := pacing.Ramp{Step: by}, ""
	var steps []loadStep
	for rate, ok := ramp.Next(); ok; rate, ok = ramp.Next() {
		step, err := load(rate)
		switch {
		case err != nil:
			return loadStep{}, fmt.Errorf("step %d, at %d requests/s: %w", len(steps)+1, rate, err)
		case step.unanswered == nil:
			ramp.Add(rate, step.throughput()/float64(len(step.loads)))
		case len(steps) > 0:
			ramp.Add(rate, 0)
		case by > 0 || rate < 4 || step.exhausted:
			return loadStep{}, step.unanswered
		default:
			ramp.First = rate / 4 // a domain on a busy machine may be as slow
			continue
		}
		steps, limit = append(steps, step), step.limit
		if step.exhausted {
			break
		}
	}
	if limit == "" && !ramp.Fallen() {
		limit = fmt.Sprintf("it ended after %d steps, before the throughput fell", len(steps))
	}
	peak := steps[ramp.Peak()]
	peak.limit = limit
	return peak, nil
}

// step loads the active domains at the same time, each at its rate.
func (s *Study) step(ctx context.Context, e experiment.Execution, here []*guestDomain, rates map[string]int) (loadStep, error) {
	step := loadStep{boot: cmp.Or(here[0].machine.Boot, s.onHost.Boot), here: here}
	clients, kill := s.startClients(ctx, e, here, rates)
	defer kill()
	groups := map[string]*cgroup.Group{}
	for _, d := range here {
		if d.group != nil {
			groups[d.name] = d.group
		}
	}
	before, err := s.dropped(ctx, here)
	if err != nil {
		return step, err
	}
	count, err := startCounting(s.counters, groups)
	if err != nil {
		return step, err
	}
	if step.values, err = countDuring(e.Case.Params.Warmup+e.Case.Params.Duration, clients, count); err != nil {
		return step, err
	}
	if ctx.Err() != nil {
		return step, context.Cause(ctx)
	}
	after, err := s.dropped(ctx, here)
	if err != nil {
		return step, err
	}
	step.dropped = max(0, after-before)
	step.unanswered = s.read(&step, e, clients, rates)
	return step, nil
}

// countDuring has clients load the domains for a time, and waits for them. It stops counting at the end of that time, as the
// throughput does: the last answers may come long after.
func countDuring(load time.Duration, clients []*client.Client, count stopCounting) (map[string][]workload.Value, error) {
	stop := sync.OnceValues(count)
	for _, c := range clients {
		c.Begin()
	}
	defer time.AfterFunc(load, func() { _, _ = stop() }).Stop()
	for _, c := range clients {
		<-c.Done
	}
	return stop()
}

// startClients starts a load generator for each domain that has a rate, and waits until all wait
// to be told to begin.
func (s *Study) startClients(ctx context.Context, e experiment.Execution, here []*guestDomain, rates map[string]int) (clients []*client.Client, kill func()) {
	for i, d := range here {
		if rates[d.name] == 0 {
			continue
		}
		p := e.Case.Params
		p.Size = sizeOf(e.Configuration.Domains[i], e.Case)
		clients = append(clients, client.New(ctx, e, s.clientPlace(), s.clientCommand(p, d, rates[d.name]), 0, client.Claimed))
	}
	for _, c := range clients {
		c.AwaitPrepared()
	}
	return clients, func() {
		for _, c := range clients {
			c.Kill()
		}
	}
}

// read reads the reports of the load generators. A domain that answered nothing is an error, and
// its server is started again.
func (s *Study) read(step *loadStep, e experiment.Execution, clients []*client.Client, rates map[string]int) error {
	var reports []workload.LoadReport
	var errs []error
	for i, d := range step.here {
		if rates[d.name] == 0 {
			continue
		}
		c := clients[len(step.loads)]
		report, err := workload.ParseDomainLoad(c.Printed)
		if err != nil {
			if len(c.Printed) == 0 && c.Err != nil {
				err = c.Err
			}
			d.stale = true
			errs = append(errs, fmt.Errorf("domain %s at %d requests/s: %w", d.name, rates[d.name], err))
		}
		of := e.Configuration.Domains[i]
		size := sizeOf(of, e.Case)
		step.loads = append(step.loads, domainLoad{d, size, rates[d.name], s.full[fullOf{of.Type, size}], report})
		reports = append(reports, report)
		step.late = max(step.late, report.LateP99)
		step.busy += report.Busy()
	}
	step.limit, step.exhausted = workload.Limit(reports...), workload.Exhausted(reports...) != ""
	return errors.Join(errs...)
}

// loadStep is what was measured under one load.
type loadStep struct {
	boot    string
	here    []*guestDomain
	loads   []domainLoad // of the active domains
	values  map[string][]workload.Value
	dropped float64 // packets that the tracking of connections dropped
	limit   string  // of the load generators; empty: none
	late    float64
	busy    float64

	exhausted  bool  // the generators cannot load the domains more
	unanswered error // which domains answered nothing, and why; nil: none
}

type domainLoad struct {
	*guestDomain
	size   int
	rate   int
	full   float64 // 0: not known
	report workload.LoadReport
}

// throughput is the rate of answers, by when they came: counted by when their requests were due,
// a server whose queue grows would answer more than it can.
func (l domainLoad) throughput() float64 { return l.report.Served / l.report.Seconds }

func (l loadStep) throughput() (sum float64) {
	for _, one := range l.loads {
		sum += one.throughput()
	}
	return sum
}

// outcome turns the step into values: of all domains together, and of each one.
func (l loadStep) outcome(e experiment.Execution) experiment.Outcome {
	o := experiment.Outcome{Boot: l.boot, Tags: map[string]string{}, Values: []workload.Value{
		{Metric: collocation.Aggregate, Value: l.throughput()},
		{Metric: collocation.Generator, Value: 100 * l.busy},
		{Metric: collocation.Late, Value: l.late},
		{Metric: collocation.Conntrack, Value: l.dropped},
	}}
	o.Values = append(o.Values, l.values[ofHost]...)
	var failures []string
	for i, d := range l.here {
		part := experiment.Part{
			Tags:   map[string]string{collocation.DomainTag: d.name, collocation.ActiveTag: strconv.FormatBool(!e.Configuration.Domains[i].Idle)},
			Values: l.values[d.name],
		}
		for _, one := range l.loads {
			if one.guestDomain == d {
				part.Tags[collocation.SizeTag] = strconv.Itoa(one.size)
				part.Values = append(part.Values, one.values()...)
				if failed := one.report.FailedRequests(); failed != "" {
					failures = append(failures, d.name+": "+failed)
				}
			}
		}
		o.Parts = append(o.Parts, part)
	}
	if l.limit != "" {
		o.Tags[collocation.LimitTag] = l.limit
	}
	if len(failures) > 0 {
		o.Tags[collocation.FailuresTag] = strings.Join(failures, "; ")
	}
	return o
}

// values are those of an active domain.
func (l domainLoad) values() []workload.Value {
	r, all, failed := l.report, l.report.Latencies[workload.AllRequests], 0.0
	for _, n := range r.Failures {
		failed += n
	}
	values := []workload.Value{
		{Metric: collocation.Server, Value: l.throughput()},
		{Metric: collocation.Network, Value: r.Bytes / r.Seconds},
		{Metric: collocation.Offered, Value: float64(l.rate)},
		{Metric: collocation.Latency, Value: all.Mean},
		{Metric: collocation.LatencyP99, Value: all.P99},
		{Metric: collocation.Failed, Value: 100 * failed / r.Planned},
		{Metric: collocation.Unsent, Value: 100 * max(0, r.Planned-all.Count-failed) / r.Planned},
	}
	if l.full > 0 {
		values = append(values, workload.Value{Metric: collocation.Intensity, Value: 100 * float64(l.rate) / l.full})
	}
	return values
}
