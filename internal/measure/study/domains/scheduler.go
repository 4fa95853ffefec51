package domains

import (
	"errors"
	"fmt"
	"time"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/sched"
	"unnest.io/unnest/internal/measure/workload"
)

// ofHost is the name under which a counter returns values of the whole host.
const ofHost = ""

// chooseCounters returns the counters that this host allows. A kernel that lets no program
// count at its scheduler costs the run those metrics and no more. Times start last, when the programs are loaded.
func (s *Study) chooseCounters() []counter {
	count, err := sched.Start(nil)
	if err == nil {
		_, err = count.Stop()
	}
	if err != nil {
		s.Note(fmt.Sprintf("Executions and waiting of the domains were not counted: %v.", err))
		return []counter{countTimes}
	}
	return []counter{countScheduler, countTimes}
}

// countScheduler counts what control groups have of the scheduler.
func countScheduler(groups map[string]*cgroup.Group) (stopCounting, error) {
	var domains []sched.Domain
	for name, g := range groups {
		domains = append(domains, sched.Domain{Name: name, Group: g.Counted()})
	}
	count, err := sched.Start(domains)
	if err != nil {
		return nil, err
	}
	return func() (map[string][]workload.Value, error) {
		r, err := count.Stop()
		if err == nil && r.Lost > 0 {
			err = errors.New("count executions: this host has more threads than the program can follow; end some")
		}
		return schedulerValues(r), err
	}, nil
}

// schedulerValues returns the values of each domain, and those of the host.
func schedulerValues(r sched.Reading) map[string][]workload.Value {
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / r.Window.Seconds() }
	all := executionValues(r)
	all[ofHost] = append(all[ofHost],
		workload.Value{Metric: collocation.HostCPU, Value: percent(r.Rest.CPU)},
		workload.Value{Metric: collocation.Steal, Value: percent(r.Steal)})
	for name, d := range r.Domains {
		all[name] = append(all[name], workload.Value{Metric: collocation.Softirq, Value: percent(d.Softirq)})
	}
	return all
}

// executionValues returns the values that the scheduler of any host gives: of each domain, and of the host.
func executionValues(r sched.Reading) map[string][]workload.Value {
	perSecond := func(n uint64) float64 { return float64(n) / r.Window.Seconds() }
	micros := func(d time.Duration) float64 { return d.Seconds() * 1e6 }
	all := map[string][]workload.Value{ofHost: {
		{Metric: collocation.HostExecutions, Value: perSecond(r.Rest.Executions)},
		{Metric: collocation.HostPerExecution, Value: micros(r.Rest.PerExecution())},
	}}
	for name, d := range r.Domains {
		all[name] = []workload.Value{
			{Metric: collocation.Executions, Value: perSecond(d.Executions)},
			{Metric: collocation.PerExecution, Value: micros(d.PerExecution())},
			{Metric: collocation.Waiting, Value: 100 * d.Waiting.Seconds() / r.Window.Seconds()},
			{Metric: collocation.Voluntary, Value: perSecond(d.Voluntary)},
			{Metric: collocation.Involuntary, Value: perSecond(d.Involuntary)},
		}
	}
	return all
}
