package document

import (
	"math"
	"slices"
	"strings"

	"unnest/internal/measure/suite"
	"unnest/internal/report"
	"unnest/internal/report/papers"
)

// Build makes the report of a run that Load has read, beside what papers have
// printed of the same.
func Build(input report.Input, notes []string) report.Document {
	return report.Build(input.Run, input.Samples, report.Options{
		Dir: input.Dir, Notes: notes,
		Published: levels(), PublishedScores: scores(), PublishedTotals: totals(), PublishedRatios: ratios(),
	})
}

// levels are FitzGerald's means, 0 where he has none.
func levels() []report.PublishedLevel {
	var all []report.PublishedLevel
	for _, r := range papers.Sysbench() {
		all = append(all, report.PublishedLevel{
			Architecture: r.Architecture, Level: r.Level, Overcommitted: r.Overcommitted, Test: r.Test,
			Throughput: orZero(r.Throughput.Mean), ThroughputSE: orZero(r.Throughput.StdErr),
			Response: orZero(r.Response.Mean), ResponseSE: orZero(r.Response.StdErr),
		})
	}
	return all
}

func orZero(n papers.Number) float64 {
	if x := n.Float(); !math.IsNaN(x) {
		return x
	}
	return 0
}

// networkCases are those of the study multilevel-network, by the paper's names.
var networkCases = map[string]string{"netperf tcp": "tcp_stream/16384", "netperf udp": "udp_stream/1280"}

// scores are those of Lubomski et al. whose case one of ours stands for, under
// the name of ours.
func scores() []report.PublishedScore {
	names := map[[2]string]string{}
	for _, c := range suite.All() {
		if c.Paper != "" {
			names[[2]string{c.Suite, c.Paper}] = c.Name
		}
	}
	for paper, name := range networkCases {
		names[[2]string{"network", paper}] = name
	}
	var all []report.PublishedScore
	for _, s := range slices.Concat(papers.DiskScores(), papers.NetworkScores()) {
		if name, ok := names[[2]string{ours(s.Suite), s.Case}]; ok {
			all = append(all, report.PublishedScore{
				Table: s.Table, Suite: ours(s.Suite), Case: name, Configuration: s.Configuration,
				Value: string(s.Value), Unit: s.Unit, Score: string(s.Score),
			})
		}
	}
	return all
}

// casesOf are the cases of the suites of Lubomski et al. of which only totals are
// printed (§3.3), those of network by §3.4.
var casesOf = map[string]int{"cpu": 27, "multicore": 19, "memory": 9, "java": 6, "network": 2, "application": 1}

// totals are the total scores of Lubomski et al.
func totals() []report.PublishedTotal {
	disk := map[string]bool{}
	for _, s := range papers.DiskScores() {
		disk[s.Case] = true
	}
	var all []report.PublishedTotal
	for _, t := range papers.Totals() {
		cases, known := casesOf[ours(t.Suite)]
		if !known {
			cases = len(disk)
		}
		all = append(all, report.PublishedTotal{
			Table: t.Table, Suite: ours(t.Suite), Configuration: t.Configuration, Total: string(t.Total), Cases: cases,
		})
	}
	return all
}

// ours is our name of a suite of the paper's, "cpu" for CPU.
func ours(name string) string { return strings.ToLower(name) }

// metricOf is our metric for one of Bacou et al., and that which a deviation is a
// share of.
var metricOf = map[string][2]string{
	"latency": {"latency_mean"}, "throughput": {"throughput"}, "deviation": {"latency_stddev", "latency_mean"},
}

// ratios are those that Bacou et al. print of Netperf's benchmarks, whose names our
// groups of cases have.
func ratios() []report.PublishedRatio {
	var all []report.PublishedRatio
	for _, r := range papers.Ratios() {
		if r.Benchmark != "UDP_RR" && r.Benchmark != "TCP_STREAM" {
			continue
		}
		p := report.PublishedRatio{
			Section: r.Section, Group: strings.ToLower(r.Benchmark), Metric: metricOf[r.Metric][0], Of: metricOf[r.Metric][1], Size: r.Size,
			Configuration: r.Configuration, Baseline: r.Baseline, Printed: r.String(), Factor: r.Factor(),
		}
		if r.Extent != "about" {
			p.Extent = report.Extent(r.Extent)
		}
		all = append(all, p)
	}
	return all
}
