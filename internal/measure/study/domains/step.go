package domains

import (
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/workload"
)

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

// domainLoad is the load of one domain.
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
