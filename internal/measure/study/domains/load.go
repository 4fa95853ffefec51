package domains

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

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
	var all machine.List
	for _, name := range e.Configuration.DomainNames() {
		all = append(all, s.domains[name].machine)
	}
	ctx, done := machine.WhileAlive(ctx, all...)
	defer done()
	run := s.offer
	if e.Case.Intensity == 0 {
		run = s.raise
	}
	step, err := run(ctx, e)
	if err != nil {
		return experiment.Outcome{}, all.Explain(err)
	}
	return step.outcome(e), nil
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
	return s.step(ctx, e, here, rates)
}

// raise raises the load of each active domain until their throughput falls, and returns the step
// with the highest one. It ends early where the load generators are at their limit.
func (s *Study) raise(ctx context.Context, e experiment.Execution) (peak loadStep, err error) {
	here, err := s.present(ctx, e.Configuration)
	if err != nil {
		return loadStep{}, err
	}
	ramp := pacing.Ramp{Step: e.Case.Params.Step}
	var steps []loadStep
	for rate, ok := ramp.Next(); ok; rate, ok = ramp.Next() {
		rates := map[string]int{}
		for _, i := range e.Configuration.Active() {
			rates[here[i].name] = rate
		}
		step, err := s.step(ctx, e, here, rates)
		if err != nil && len(steps) == 0 {
			slower := rate / 4 // a domain on a busy machine may be as slow
			if ctx.Err() != nil || ramp.Step > 0 || slower == 0 {
				return loadStep{}, err
			}
			ramp.First = slower
			if here, err = s.present(ctx, e.Configuration); err != nil {
				return loadStep{}, err
			}
			continue
		}
		if err != nil { // the servers have collapsed: the load is beyond the highest throughput
			if ctx.Err() != nil {
				return loadStep{}, context.Cause(ctx)
			}
			s.renew(here)
			break
		}
		steps = append(steps, step)
		ramp.Add(rate, step.throughput()/float64(len(step.loads)))
		if step.exhausted {
			break
		}
	}
	peak = steps[ramp.Peak()]
	peak.limit = steps[len(steps)-1].limit
	return peak, nil
}

// renew has the servers of domains started again before the next execution.
func (s *Study) renew(domains []*guestDomain) {
	for _, d := range domains {
		d.stale = true
	}
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
	for _, c := range clients {
		c.Begin()
	}
	for _, c := range clients {
		<-c.Done
	}
	if step.values, err = count(); err != nil {
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
	return step, s.read(&step, e, clients, rates)
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
	// exhausted: the generators cannot load the domains more.
	exhausted bool
	late      float64
	busy      float64
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
	r, all := l.report, l.report.Latencies[workload.AllRequests]
	values := []workload.Value{
		{Metric: collocation.Server, Value: l.throughput()},
		{Metric: collocation.Network, Value: r.Bytes / r.Seconds},
		{Metric: collocation.Offered, Value: float64(l.rate)},
		{Metric: collocation.Latency, Value: all.Mean},
		{Metric: collocation.LatencyP99, Value: all.P99},
		{Metric: collocation.Failed, Value: 100 * max(0, 1-all.Count/r.Planned)},
	}
	if l.full > 0 {
		values = append(values, workload.Value{Metric: collocation.Intensity, Value: 100 * float64(l.rate) / l.full})
	}
	return values
}
