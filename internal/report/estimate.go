package report

import (
	"hash/fnv"
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// Interval is a confidence interval; its bounds are missing when there is none.
type Interval struct {
	Low        Number `json:"low"`
	High       Number `json:"high"`
	Confidence Number `json:"confidence"` // below the one asked for when samples are few
}

// Estimate describes the samples of one metric of one case in one configuration. Each
// block counts once, by the median of its values.
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
	Interval      Interval     `json:"interval"` // of the median
	Comparisons   []Comparison `json:"comparisons,omitempty"`
	Step          *Step        `json:"step,omitempty"`  // in a run at several levels
	Score         *Score       `json:"score,omitempty"` // of a primary metric in a suite that is summed up
	Warnings      []string     `json:"doubts,omitempty"`
}

// Comparison is an Estimate against that of a baseline.
type Comparison struct {
	Baseline     string        `json:"baseline"`
	Ratio        Number        `json:"ratio"` // of the medians
	Interval     Interval      `json:"interval"`
	Welch        Number        `json:"welch_p"`
	MannWhitney  Number        `json:"mann_whitney_p"`
	P            Number        `json:"p"`          // the one that decides
	Adjusted     Number        `json:"adjusted_p"` // by Holm over the metric's table
	Detectable   Number        `json:"detectable"` // smallest relative difference that this run could detect
	Verdict      stats.Verdict `json:"verdict,omitempty"`
	Equivalent   stats.Answer  `json:"equivalent,omitempty"` // within the margin of the claim, if there is one for this pair
	Words        string        `json:"words"`                // the verdict in plain words
	Short        string        `json:"short"`
	Warnings     []string      `json:"doubts,omitempty"`
	meansReverse bool          // the means differ in the opposite direction from the medians
	higher       bool          // the mean is above that of the baseline
	first        bool          // the comparison of the pair the other way round comes later, or never
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
	for _, n := range []*Number{&e.Median, &e.Mean, &e.StdDev, &e.StdErr, &e.Min, &e.Max, &e.P25, &e.P75, &e.P90, &e.P99} {
		*n = missing
	}
	e.Interval = interval(stats.Interval{})
	if len(obs) == 0 {
		return
	}
	for _, d := range stats.Warnings(obs) {
		e.Warnings = append(e.Warnings, warningText(d))
	}
	values := stats.Values(stats.BlockMedians(obs))
	s, err := stats.Summarize(values)
	if err != nil { // not finite: the warnings say so
		e.Missing = err.Error()
		return
	}
	e.N, e.Median, e.Mean, e.Min, e.Max = s.N, Number(s.Median), Number(s.Mean), Number(s.Min), Number(s.Max)
	if q, err := stats.Quantiles(values, 0.25, 0.75, 0.9, 0.99); err == nil {
		e.P25, e.P75, e.P90, e.P99 = Number(q[0]), Number(q[1]), Number(q[2]), Number(q[3])
	}
	if s.N < 2 { // one value has no spread, and no interval
		return
	}
	e.StdDev, e.StdErr = Number(s.StdDev), Number(s.StdErr)
	if i, err := stats.MedianInterval(values, confidence); err == nil {
		e.Interval = interval(i)
	}
}

// interval copies an interval; one that is not defined has missing bounds.
func interval(i stats.Interval) Interval {
	if !i.Defined() {
		return Interval{missing, missing, missing}
	}
	return Interval{Number(i.Low), Number(i.High), Number(i.Confidence)}
}

// stats is the reverse of interval.
func (i Interval) stats() stats.Interval {
	if !i.Low.Defined() {
		return stats.Interval{}
	}
	return stats.Interval{Low: float64(i.Low), High: float64(i.High), Confidence: float64(i.Confidence)}
}

// side is one side of a comparison.
type side struct {
	obs  []stats.Observation
	name string
}

// compare fills in a comparison, except the adjusted p and what depends on it. Either
// side may be empty.
func compare(a, b side, o stats.Options) Comparison {
	c := Comparison{Baseline: b.name, Ratio: missing, Interval: interval(stats.Interval{}), Welch: missing,
		MannWhitney: missing, P: missing, Adjusted: missing, Detectable: missing, first: true}
	if len(a.obs) == 0 || len(b.obs) == 0 {
		return c
	}
	s, err := stats.Compare(a.obs, b.obs, o)
	if err != nil {
		c.Warnings = append(c.Warnings, err.Error())
		return c
	}
	c.Ratio, c.Interval = Number(s.Ratio.Point), interval(s.Ratio.Interval)
	c.Welch, c.MannWhitney, c.P = Number(s.Welch.P), Number(s.MannWhitney.P), Number(s.P())
	c.Detectable = Number(s.Detectable)
	c.higher = s.A.Mean > s.B.Mean
	for _, d := range s.Warnings {
		// The run has this warning once.
		if d.Kind != stats.NotInterleaved {
			c.Warnings = append(c.Warnings, warningText(d))
		}
		c.meansReverse = c.meansReverse || d.Kind == stats.Disagreement
	}
	return c
}

// verdict judges c by its p adjusted for its table.
func (c *Comparison) verdict(e, base Estimate, adjusted, alpha float64) {
	c.Adjusted = Number(adjusted)
	if e.N == 0 || base.N == 0 {
		return
	}
	judged := stats.Comparison{HigherIsBetter: e.Order == result.HIB}
	judged.A.N, judged.B.N = e.N, base.N
	judged.A.Mean, judged.B.Mean = float64(e.Mean), float64(base.Mean)
	judged.Ratio.Interval = c.Interval.stats()
	c.Verdict = judged.Verdict(adjusted, alpha)
}

// claim answers whether c, a comparison of e, is within the claimed margin. The claim is
// about primary metrics.
func (c *Comparison) claim(claim Claim, e Estimate) {
	if !e.Primary || claim.Configuration != e.Configuration || claim.Baseline != c.Baseline || !c.Ratio.Defined() {
		return
	}
	c.Equivalent = stats.Within(c.Interval.stats(), claim.Margin)
}

// adjust corrects the p-values of the comparisons of one table by Holm and judges them.
// A pair that is in the table twice, once each way, is one test. lookup returns the
// estimate that a comparison is against.
func adjust(estimates []Estimate, o Options, lookup func(Estimate, Comparison) Estimate) {
	type pair struct{ suite, name, a, b string }
	index := map[pair]int{} // in family
	var family []float64
	key := func(e Estimate, c Comparison) pair {
		return pair{e.Suite, e.Case, min(e.Configuration, c.Baseline), max(e.Configuration, c.Baseline)}
	}
	for _, e := range estimates {
		for _, c := range e.Comparisons {
			if _, known := index[key(e, c)]; !known {
				index[key(e, c)] = len(family)
				family = append(family, float64(c.P))
			}
		}
	}
	adjusted := stats.Holm(family)
	for i := range estimates {
		e := &estimates[i]
		for j := range e.Comparisons {
			c := &e.Comparisons[j]
			base := lookup(*e, *c)
			c.verdict(*e, base, adjusted[index[key(*e, *c)]], o.Alpha)
			c.claim(*o.Equivalence, *e)
			c.Words, c.Short = verdictWords(*e, base, *c, *o.Equivalence)
		}
	}
}

// seed derives the seed of a bootstrap from the seed of the run and from what is
// compared, so that no two tables share random numbers.
func seed(run uint64, parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return run ^ h.Sum64()
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
