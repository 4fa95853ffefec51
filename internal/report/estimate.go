package report

import (
	"fmt"
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// Interval is a confidence interval; its bounds are missing when there is none.
type Interval struct {
	Low        Number `json:"low"`
	High       Number `json:"high"`
	Confidence Number `json:"confidence"`
}

// Estimate describes the samples of one metric of one case in one configuration. Each
// block counts once: see stats.ByBlock.
type Estimate struct {
	Run           string       `json:"run"`
	Suite         string       `json:"suite"`
	Case          string       `json:"case"`
	Group         string       `json:"group"`
	Size          int          `json:"size,omitempty"`
	Label         string       `json:"label"` // of the case within its group: "1280 B"
	Tool          string       `json:"tool"`
	Configuration string       `json:"configuration"`
	Stack         string       `json:"stack"`
	Accelerator   string       `json:"accelerator"`
	Metric        string       `json:"metric"`
	Unit          string       `json:"unit"`
	Order         result.Order `json:"order"`
	Primary       bool         `json:"primary"`
	N             int          `json:"n"`                 // blocks with a value
	Missing       string       `json:"missing,omitempty"` // why N is 0
	Center        Number       `json:"center"`            // geometric mean, or the mean if a value is not positive
	Median        Number       `json:"median"`
	Mean          Number       `json:"mean"`
	StdDev        Number       `json:"stddev"`
	StdErr        Number       `json:"stderr"`
	Min           Number       `json:"min"`
	P25           Number       `json:"p25"` // percentiles
	P75           Number       `json:"p75"`
	P90           Number       `json:"p90"`
	P99           Number       `json:"p99"`
	Max           Number       `json:"max"`
	Interval      Interval     `json:"interval"` // of the center
	Comparisons   []Comparison `json:"comparisons,omitempty"`
	Step          *Step        `json:"step,omitempty"`  // in a run at several levels
	Score         *Score       `json:"score,omitempty"` // of a primary metric in a suite that is summed up
	Warnings      []string     `json:"doubts,omitempty"`
	doubts        []string     // Warnings in a few words
}

// against returns the comparison of e with a baseline, nil if there is none.
func (e Estimate) against(baseline string) *Comparison {
	i := slices.IndexFunc(e.Comparisons, func(c Comparison) bool { return c.Baseline == baseline })
	if i < 0 {
		return nil
	}
	return &e.Comparisons[i]
}

// cellKey names the samples of one estimate.
type cellKey struct{ suite, name, configuration, metric string }

// observations sorts samples into cells.
func observations(samples []result.Sample) map[cellKey][]stats.Observation {
	cells := map[cellKey][]stats.Observation{}
	for _, s := range samples {
		k := cellKey{s.Suite, s.Case, s.Configuration, s.Metric}
		cells[k] = append(cells[k], stats.Observation{Block: s.Block, Value: s.Value})
	}
	return cells
}

// describe fills in the statistics of obs.
func (e *Estimate) describe(obs []stats.Observation, confidence float64) {
	for _, n := range []*Number{&e.Center, &e.Median, &e.Mean, &e.StdDev, &e.StdErr, &e.Min, &e.Max, &e.P25, &e.P75, &e.P90, &e.P99} {
		*n = missing
	}
	e.Interval = interval(stats.Interval{})
	if len(obs) == 0 {
		return
	}
	for _, d := range stats.Warnings(obs) {
		e.Warnings = append(e.Warnings, warningText(d))
		if words := doubtWords(d); words != "" {
			e.doubts = append(e.doubts, words)
		}
	}
	values := stats.Values(stats.ByBlock(obs))
	s, err := stats.Summarize(values)
	if err != nil { // not finite: the warnings say so
		e.Missing = err.Error()
		return
	}
	e.N, e.Min, e.Max = s.N, Number(s.Min), Number(s.Max)
	e.Center, e.Median, e.Mean = Number(s.Center), Number(s.Median), Number(s.Mean)
	if q, err := stats.Quantiles(values, 0.25, 0.75, 0.9, 0.99); err == nil {
		e.P25, e.P75, e.P90, e.P99 = Number(q[0]), Number(q[1]), Number(q[2]), Number(q[3])
	}
	if s.N < 2 { // one value has no spread
		return
	}
	e.StdDev, e.StdErr = Number(s.StdDev), Number(s.StdErr)
	if i, err := stats.CenterInterval(values, confidence); err == nil {
		e.Interval = interval(i)
	}
}

// reached is the metric of a load at a constant rate: how much of the rate was answered, in
// percent. fullRate is the least value of a load whose latencies are those at its rate.
const (
	reached  = "reached"
	fullRate = 99
)

// doubtRate doubts an estimate of a load that did not reach its rate in some blocks: obs are
// its values of reached.
func (e *Estimate) doubtRate(obs []stats.Observation) {
	values := stats.Values(stats.ByBlock(obs))
	slow := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v >= fullRate })
	if len(slow) == 0 || e.Metric == reached {
		return
	}
	least := percent(slices.Min(slow) / 100)
	e.Warnings = append(e.Warnings, fmt.Sprintf(
		"the load did not reach its rate in %d of %s, in one only %s of it: requests waited for connections, so latencies grow with the duration", len(slow), plural(len(values), "block"), least))
	e.doubts = append(e.doubts, "down to "+least+" of its rate")
}

// interval copies an interval; one that is not defined has missing bounds.
func interval(i stats.Interval) Interval {
	if !i.Defined() {
		return Interval{missing, missing, missing}
	}
	return Interval{Number(i.Low), Number(i.High), Number(i.Confidence)}
}

// sum adds numbers up. It is missing if one of them is.
func sum(ns []Number) Number {
	total := 0.0
	for _, n := range ns {
		total += float64(n)
	}
	if len(ns) == 0 {
		return missing
	}
	return Number(total)
}
