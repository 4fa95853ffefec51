package estimate

import (
	"fmt"
	"slices"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/score"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/papers"
)

// Estimate describes the samples of one metric of one case in one configuration. Each
// block counts once: see stats.ByBlock.
type Estimate struct {
	Run           string            `json:"run"`
	Suite         string            `json:"suite"`
	Case          string            `json:"case"`
	Group         string            `json:"group"`
	Size          int               `json:"size,omitempty"`
	Label         string            `json:"label"` // of the case within its group: "1280 B"
	Tool          string            `json:"tool"`
	Configuration string            `json:"configuration"`
	Stack         string            `json:"stack"`
	Accelerator   string            `json:"accelerator"`
	Metric        string            `json:"metric"`
	Unit          string            `json:"unit"`
	Order         result.Order      `json:"order"`
	Primary       bool              `json:"primary"`
	N             int               `json:"n"`                 // blocks with a value
	Missing       string            `json:"missing,omitempty"` // why N is 0
	Center        document.Number   `json:"center"`            // geometric mean, or the mean if a value is not positive
	Median        document.Number   `json:"median"`
	Mean          document.Number   `json:"mean"`
	StdDev        document.Number   `json:"stddev"`
	StdErr        document.Number   `json:"stderr"`
	Min           document.Number   `json:"min"`
	P25           document.Number   `json:"p25"` // percentiles
	P75           document.Number   `json:"p75"`
	P90           document.Number   `json:"p90"`
	P99           document.Number   `json:"p99"`
	Max           document.Number   `json:"max"`
	Interval      document.Interval `json:"interval"` // of the center
	Comparisons   []Comparison      `json:"comparisons,omitempty"`
	Step          *Step             `json:"step,omitempty"`  // in a run at several levels
	Score         *Score            `json:"score,omitempty"` // of a primary metric in a suite that is summed up
	Warnings      []string          `json:"doubts,omitempty"`
	doubts        []string          // Warnings in a few words
}

// Against returns the comparison of e with a baseline, nil if there is none.
func (e Estimate) Against(baseline string) *Comparison {
	i := slices.IndexFunc(e.Comparisons, func(c Comparison) bool { return c.Baseline == baseline })
	if i < 0 {
		return nil
	}
	return &e.Comparisons[i]
}

// Describe returns the statistics of obs, which belong to no cell.
func Describe(obs []stats.Observation) Estimate {
	var e Estimate
	e.describe(obs)
	return e
}

// describe fills in the statistics of obs.
func (e *Estimate) describe(obs []stats.Observation) {
	for _, n := range []*document.Number{&e.Center, &e.Median, &e.Mean, &e.StdDev, &e.StdErr, &e.Min, &e.Max, &e.P25, &e.P75, &e.P90, &e.P99} {
		*n = document.Missing
	}
	e.Interval = document.NoInterval
	if len(obs) == 0 {
		return
	}
	for _, d := range stats.Warnings(obs) {
		long, short := warningWords(d)
		if e.Warnings = append(e.Warnings, long); short != "" {
			e.doubts = append(e.doubts, short)
		}
	}
	values := stats.Values(stats.ByBlock(obs))
	s, err := stats.Summarize(values)
	if err != nil { // not finite: the warnings say so
		e.Missing = err.Error()
		return
	}
	e.N, e.Min, e.Max = s.N, document.Number(s.Min), document.Number(s.Max)
	e.Center, e.Median, e.Mean = document.Number(s.Center), document.Number(s.Median), document.Number(s.Mean)
	if q, err := stats.Quantiles(values, 0.25, 0.75, 0.9, 0.99); err == nil {
		e.P25, e.P75, e.P90, e.P99 = document.Number(q[0]), document.Number(q[1]), document.Number(q[2]), document.Number(q[3])
	}
	if s.N < 2 { // one value has no spread
		return
	}
	e.StdDev, e.StdErr = document.Number(s.StdDev), document.Number(s.StdErr)
	if i, err := stats.CenterInterval(values, stats.DefaultConfidence); err == nil {
		e.Interval = ConfidenceInterval(i)
	}
}

// doubtRate doubts an estimate of a load that did not reach its rate in some blocks: obs are
// its values of reached.
func (e *Estimate) doubtRate(obs []stats.Observation) {
	values := stats.Values(stats.ByBlock(obs))
	slow := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v >= naming.FullRate })
	if len(slow) == 0 || e.Metric == naming.Reached {
		return
	}
	least := document.Percent(slices.Min(slow) / 100)
	e.Warnings = append(e.Warnings, fmt.Sprintf(
		"the load did not reach its rate in %d of %s, in one only %s of it: requests waited for connections, so latencies grow with the duration", len(slow), document.Plural(len(values), "block"), least))
	e.doubts = append(e.doubts, "down to "+least+" of its rate")
}

// ConfidenceInterval copies an interval; one that is not defined has missing bounds.
func ConfidenceInterval(i stats.Interval) document.Interval {
	if !i.Defined() {
		return document.NoInterval
	}
	return document.Interval{Low: document.Number(i.Low), High: document.Number(i.High), Confidence: document.Number(i.Confidence)}
}

// Step compares an Estimate with the level of virtualization below, as FitzGerald 2014,
// Tables 5-14. Relative numbers are fractions.
type Step struct {
	Level         int             `json:"level"`           // hypervisors under the operating system
	Below         string          `json:"below,omitempty"` // the configuration one level below, none at the lowest
	RelStdErr     document.Number `json:"relative_stderr"` // standard error over the mean
	Change        document.Number `json:"change"`          // of the mean against that of Below: the thesis' ΔL
	VCPUs         int             `json:"vcpus,omitempty"` // set when the levels have different numbers
	PerVCPU       document.Number `json:"per_vcpu"`        // mean over VCPUs, of throughput only
	ChangePerVCPU document.Number `json:"change_per_vcpu"`
	T             document.Number `json:"t"` // the thesis' test, Welch's of the means, with the sign of Change
	DF            document.Number `json:"df"`
	P             document.Number `json:"p"`
	Comparison    *Comparison     `json:"comparison,omitempty"` // with Below
	Published     []Published     `json:"published,omitempty"`
}

// Published is a published mean in our unit.
type Published struct {
	Architecture string          `json:"architecture"`
	Mean         document.Number `json:"mean"`
	StdErr       document.Number `json:"stderr"`
	Change       document.Number `json:"change"` // against its own level below, of the printed means
}

// Score is an Estimate of a primary metric in the suite of its case, as in Lubomski et
// al., Tables 5 and 6.
type Score struct {
	Score     document.Number `json:"score"`   // the mean over the highest of all configurations, formula (1)
	Counted   bool            `json:"counted"` // in the totals: every configuration with results has the case
	Published *papers.Score   `json:"published,omitempty"`
}

// SuiteScore is the sum of a suite, see package score.
type SuiteScore struct {
	Suite    string          `json:"suite"`
	Cases    int             `json:"cases"`    // counted
	Baseline string          `json:"baseline"` // of the geometric means
	Totals   []Total         `json:"totals"`   // one per configuration of the run
	Missing  []score.Missing `json:"missing,omitempty"`
	Warnings []score.Warning `json:"warnings,omitempty"`
}

// Total is the sum of a suite in one configuration.
type Total struct {
	Configuration string            `json:"configuration"`
	Total         document.Number   `json:"total"`            // formula (2)
	Rounded       document.Number   `json:"total_rounded"`    // the same over scores rounded to two decimals, as the paper's
	GeoMean       document.Number   `json:"geomean"`          // of the ratios to the baseline, above 1 is better
	Interval      document.Interval `json:"geomean_interval"` // over cases
	Published     *papers.Total     `json:"published,omitempty"`
	Partial       int               `json:"-"` // 0, or the number of counted cases that the configuration has when it lacks some
}

// AddRatios adds to c a series for each configuration of the run that is compared with the baseline:
// the value of its comparisons. It reports whether c has a series.
func AddRatios(c *document.Chart, run result.Run, estimates []Estimate, baseline string, value func(Estimate, Comparison) (document.Number, document.Interval)) bool {
	for _, s := range naming.Series(run) {
		series := document.ChartSeries{Name: s.Name, Slot: s.Slot}
		for _, e := range estimates {
			if cmp := e.Against(baseline); e.Configuration == s.Name && cmp != nil {
				series.Add(value(e, *cmp))
			}
		}
		if len(series.Values) > 0 {
			c.Series = append(c.Series, series)
		}
	}
	c.Complete()
	return len(c.Series) > 0
}

// PlainRatio is the ratio of a comparison.
func PlainRatio(_ Estimate, c Comparison) (document.Number, document.Interval) {
	return c.Ratio, c.Interval
}

// Benefit is the ratio of e to a baseline, inverted where lower is better.
func Benefit(e Estimate, c Comparison) (document.Number, document.Interval) {
	if e.Order == result.HIB {
		return c.Ratio, c.Interval
	}
	return c.Ratio.Inverse(), c.Interval.Inverse()
}
