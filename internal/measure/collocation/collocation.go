// Package collocation says what guest domains cost each other that run side by side: how much
// an idle or an active neighbour takes from the throughput of a server, how fairly two domains
// share the machine, what each pair answers in all against what its domains answer alone, and
// at which load that is most.
//
// It follows the study of Apache servers in HVMs, PVMs and containers on Xen 4.4. It is pure:
// the samples are those of package result. Starting domains and loading them belongs to package
// bench, words and figures to package domains.
package collocation

import (
	"strconv"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

// The metrics of a case in a configuration with domains. Aggregate is the primary one: the sum
// over the active domains. The others are of one domain each, which the tags of the sample name.
const (
	Aggregate   = "aggregate_throughput" // answers/s
	Server      = "server_throughput"    // answers/s
	Network     = "network_throughput"   // bytes/s of requests and answers, without headers of TCP
	Utilisation = "cpu_utilisation"      // CPU time of the domain, in percent of one processor
	Intensity   = "intensity"            // offered load, in percent of the full load of the domain
	Offered     = "offered"              // requests/s
	Latency     = "latency"              // mean, from when a request was due
	LatencyP99  = "latency_p99"
	Failed      = "failed"        // requests that were refused, reset, or had no right answer in time, in percent
	Unsent      = "unsent"        // requests that were not sent, because their clients waited for answers to the end, in percent
	Generator   = "generator_cpu" // CPU time of the load generators, in percent of their processors
	Late        = "late_p99"      // by which the generators sent 1 % of the requests too late
	Conntrack   = "conntrack_drops"
)

// The metrics of a domain that the scheduler's counters give, if the kernel allows to count.
const (
	Executions   = "executions"        // how often a thread of it was given a processor
	PerExecution = "cpu_per_execution" // mean CPU time until it gave the processor back
	Waiting      = "waiting"           // its threads: runnable, but not running, in percent of the time
	Softirq      = "softirq"           // in software interrupts that came while it ran, in percent of the time
	Voluntary    = "voluntary_switches"
	Involuntary  = "involuntary_switches"
)

// The metrics of everything on the host that belongs to no domain: Dom0 of Xen.
const (
	HostCPU          = "host_cpu" // in percent of one processor
	HostExecutions   = "host_executions"
	HostPerExecution = "host_cpu_per_execution"
	Steal            = "steal" // that other machines had of the host's processors, in percent of one
)

// The tags of a sample of one domain.
const (
	DomainTag = "domain" // its name, such as hvm1
	ActiveTag = "active" // "true": it serves clients
	SizeTag   = "size"   // bytes of the document that it serves
)

// Tags of samples of all domains, which say what bounded the load or went wrong.
const (
	LimitTag    = "generator_limit"
	FailuresTag = "failures"
)

// Metrics lists the metrics that every case has.
func Metrics() []result.Metric {
	return []result.Metric{
		{Name: Aggregate, Unit: "responses/s", Order: result.HIB},
		{Name: Generator, Unit: "%", Order: result.LIB},
		{Name: Late, Unit: "us", Order: result.LIB},
		{Name: Conntrack, Unit: "packets", Order: result.LIB},
		{Name: Server, Unit: "responses/s", Order: result.HIB},
		{Name: Network, Unit: "B/s", Order: result.HIB},
		{Name: Utilisation, Unit: "%", Order: result.LIB},
		{Name: Intensity, Unit: "%", Order: result.HIB},
		{Name: Offered, Unit: "requests/s", Order: result.HIB},
		{Name: Latency, Unit: "us", Order: result.LIB},
		{Name: LatencyP99, Unit: "us", Order: result.LIB},
		{Name: Failed, Unit: "%", Order: result.LIB},
		{Name: Unsent, Unit: "%", Order: result.LIB},
		{Name: Executions, Unit: "executions/s", Order: result.LIB},
		{Name: PerExecution, Unit: "us", Order: result.HIB},
		{Name: Waiting, Unit: "%", Order: result.LIB},
		{Name: Softirq, Unit: "%", Order: result.LIB},
		{Name: Voluntary, Unit: "switches/s", Order: result.LIB},
		{Name: Involuntary, Unit: "switches/s", Order: result.LIB},
		{Name: HostCPU, Unit: "%", Order: result.LIB},
		{Name: HostExecutions, Unit: "executions/s", Order: result.LIB},
		{Name: HostPerExecution, Unit: "us", Order: result.HIB},
		{Name: Steal, Unit: "%", Order: result.LIB},
	}
}

// OfDomain reports whether a sample is of one domain.
func OfDomain(s result.Sample) bool { return s.Tags[DomainTag] != "" }

// peaks finds the intensity of each configuration and size at which it answers most.
func (t *table) peaks() (all []Peak) {
	for _, conf := range t.run.Configurations {
		for _, size := range t.sizes() {
			var cells []*cell
			for _, c := range t.run.Cases {
				if one := t.cell(conf.Name, c); one != nil && c.Size == size {
					cells = append(cells, one)
				}
			}
			if len(cells) > 0 {
				all = append(all, peakOf(conf.Name, size, cells))
			}
		}
	}
	return all
}

// sizes are those of the cases, each once, in their order.
func (t *table) sizes() (all []int) {
	seen := map[int]bool{}
	for _, c := range t.run.Cases {
		if !seen[c.Size] {
			seen[c.Size] = true
			all = append(all, c.Size)
		}
	}
	return all
}

// peakOf compares the cells of a configuration, one for each intensity. A block that lacks an
// intensity does not count.
func peakOf(configuration string, size int, cells []*cell) Peak {
	p := Peak{Configuration: configuration, Size: size}
	best, blocks := map[int]*cell{}, map[int]int{}
	for _, c := range cells {
		if m := spread(stats.Values(stats.ByBlock(c.aggregate))); m.Mean > p.Throughput.Mean {
			p.Intensity, p.Throughput, p.Values = c.intensity, m, c.aggregate
		}
		if c.intensity == 0 { // a search for the largest load
			continue
		}
		p.Compared++
		for _, o := range stats.ByBlock(c.aggregate) {
			blocks[o.Block]++
			if best[o.Block] == nil || o.Value > best[o.Block].at(o.Block) {
				best[o.Block] = c
			}
		}
	}
	var intensities []float64
	for block, c := range best {
		if blocks[block] == p.Compared {
			intensities = append(intensities, float64(c.intensity))
		}
	}
	p.Blocks = spread(intensities)
	return p
}

// sizeOf is the size of the document that the domain of a sample serves.
func sizeOf(s result.Sample, otherwise int) int {
	if n, err := strconv.Atoi(s.Tags[SizeTag]); err == nil {
		return n
	}
	return otherwise
}
