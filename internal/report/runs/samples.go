package runs

import (
	"strconv"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/naming"
)

// samplesOf are samples of a run for the formats of benchmarks. Those of a domain have a key
// of it, and stand apart from the others of their execution.
func samplesOf(run result.Run, samples []result.Sample) document.Samples {
	return document.Samples{Run: run.ID, All: func(yield func(document.Sample) bool) { eachSample(run, samples, yield) }, Facts: []document.Fact{
		{Name: "accelerator", Value: run.Accelerator}, {Name: "goarch", Value: run.Host.Arch}, {Name: "cpu", Value: run.Host.CPU}, {Name: "kernel", Value: run.Host.Kernel}}}
}

// eachSample yields the samples in their order.
func eachSample(run result.Run, samples []result.Sample, yield func(document.Sample) bool) {
	type part struct {
		execution result.Execution
		domain    string
	}
	cases := map[string]result.Case{}
	for _, c := range run.Cases {
		cases[c.Name] = c
	}
	executions := map[part]int{}
	for _, s := range samples {
		c, p := cases[s.Case], part{s.Execution(), s.Tags[collocation.DomainTag]}
		if _, known := executions[p]; !known {
			executions[p] = len(executions)
		}
		if !yield(document.Sample{
			Run: s.Run, Test: s.Case, Title: naming.Group(c), Keys: sampleKeys(c, s), Metric: s.Metric, Primary: s.Metric == c.Primary, Unit: s.Unit,
			Better: map[result.Order]string{result.HIB: "higher", result.LIB: "lower"}[s.Order], Value: s.Value,
			Execution: executions[p], Start: s.Start, Labels: sampleLabels(run, s),
		}) {
			return
		}
	}
}

// sampleKeys tell the samples of one group of cases apart.
func sampleKeys(c result.Case, s result.Sample) (keys []document.Fact) {
	if c.Size > 0 {
		keys = append(keys, document.Fact{Name: "size", Value: strconv.Itoa(c.Size)})
	}
	if domain := s.Tags[collocation.DomainTag]; domain != "" {
		keys = append(keys, document.Fact{Name: "domain", Value: domain})
	}
	return append(keys, document.Fact{Name: "config", Value: s.Configuration})
}

func sampleLabels(run result.Run, s result.Sample) map[string]string {
	labels := map[string]string{
		"accelerator": run.Accelerator, "block": strconv.Itoa(s.Block), "boot": s.Boot, "configuration": s.Configuration,
		"order": string(s.Order), "repetition": strconv.Itoa(s.Repetition), "suite": s.Suite,
		"duration": strconv.FormatFloat(s.Duration, 'g', -1, 64),
	}
	for k, v := range s.Tags {
		labels["tag_"+k] = v
	}
	return labels
}
