package estimate

import (
	"cmp"
	"errors"
	"slices"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
)

// Comparison is an Estimate against that of a baseline, judged with its Family.
type Comparison struct {
	Baseline   string            `json:"baseline"`
	Family     string            `json:"family"`
	N          int               `json:"n"`      // blocks: those of both sides if Paired, else of the side that has fewer
	Paired     bool              `json:"paired"` // by blocks
	Ratio      document.Number   `json:"ratio"`  // geometric mean of the ratios of the blocks
	Interval   document.Interval `json:"interval"`
	P          document.Number   `json:"p"`
	Detectable document.Number   `json:"detectable"`      // relative difference that such a run detects with a probability of 80 %
	Needs      int               `json:"needs,omitempty"` // further blocks, where the verdict is not known
	Verdict    stats.Verdict     `json:"verdict,omitempty"`
	Equivalent stats.Answer      `json:"equivalent,omitempty"` // within the margin of the claim, if there is one for this pair
	Badge      string            `json:"badge,omitempty"`      // the verdict in a word or two
	Words      string            `json:"words"`                // the verdict in plain words
	Short      string            `json:"short"`
	Warnings   []string          `json:"doubts,omitempty"`
	doubts     []string          // Warnings in a few words
	effect     stats.Effect
	margin     float64 // of the claim about this pair, else within which the sides count as equal
	First      bool    `json:"-"` // the comparison of the pair the other way round comes later, or never
}

// Family is a set of comparisons that are judged together.
type Family struct {
	Name       string          `json:"name"`
	Tests      int             `json:"tests"`
	Found      int             `json:"found"`      // tests that show a difference
	Level      document.Number `json:"level"`      // of each test
	Confidence document.Number `json:"confidence"` // of each interval
}

// Claim is a claim of equivalence: Configuration is within Margin, a fraction, of
// Baseline.
type Claim struct {
	Configuration, Baseline string
	Margin                  float64
}

// notCompared is a comparison with a baseline of a metric that a part of the executions of a side lack.
func notCompared(baseline, part string) Comparison {
	c := compare(nil, nil, baseline, false)
	c.Warnings = []string{"no ratio: " + part + ", which are not a random choice"}
	c.doubts = []string{"no ratio: " + part}
	return c
}

// compare estimates the ratio of a to b, which name names; judge adds the rest. Either side may
// be empty.
func compare(a, b []stats.Observation, name string, interleaved bool) Comparison {
	c := Comparison{Baseline: name, Ratio: document.Missing, Interval: document.NoInterval, P: document.Missing, Detectable: document.Missing, First: true}
	if len(a) == 0 || len(b) == 0 {
		return c
	}
	e, err := stats.Compare(a, b, interleaved)
	switch {
	case errors.Is(err, stats.ErrNotPositive):
		long, short := warningWords(stats.Warning{Kind: stats.NoRatio, Err: err})
		c.Warnings, c.doubts = []string{long}, []string{short}
		return c
	case err != nil:
		c.Warnings = []string{err.Error()}
		c.doubts = c.Warnings
		return c
	}
	c.effect, c.N, c.Paired = e, e.N, e.Paired
	c.Ratio, c.P = document.Number(e.Ratio()), document.Number(e.P())
	return c
}

// judged is a comparison of an estimate in the family that judges it.
type judged struct {
	of     *Estimate
	c      *Comparison
	family string
}

// judge gives every comparison its interval and its verdict, together with the others of
// its family, and returns the families in the order of first appearance. Sides that share no block have a verdict
// only if separate is set: the machine changes between them, and of equal sides 16 to 43 % looked different. Where others
// share blocks, they are no tests of their family.
func judge(all []judged, claim Claim, separate bool) []Family {
	var order []string
	ps := map[string][]float64{}
	counts := func(j judged) bool { return separate || j.c.Paired }
	some := slices.ContainsFunc(all, counts)
	for _, j := range all {
		if ps[j.family] == nil {
			order = append(order, j.family)
		}
		p := j.c.P
		if some && !counts(j) {
			p = document.Missing
		}
		ps[j.family] = append(ps[j.family], float64(p))
	}
	families := make([]Family, len(order))
	of := map[string]stats.Family{}
	for i, name := range order {
		f := stats.Judge(ps[name], stats.DefaultAlpha)
		of[name] = f
		families[i] = Family{Name: name, Tests: f.Tests, Found: f.Found, Level: document.Number(f.Level), Confidence: document.Number(f.Confidence())}
	}
	for _, j := range all {
		if j.c.judge(of[j.family], *j.of, claim); !separate && !j.c.Paired && j.c.Verdict != "" && j.c.Verdict != stats.TooFew {
			j.c.withoutVerdict()
		}
		j.c.Family = j.family
	}
	return families
}

// maxNeeds limits the number of blocks that is worth computing, unless a run can have more.
const maxNeeds = 1000

func (c *Comparison) judge(f stats.Family, e Estimate, claim Claim) {
	if c.N == 0 {
		return
	}
	claimed := e.Primary && claim.Configuration == e.Configuration && claim.Baseline == c.Baseline
	c.margin = stats.DefaultMargin
	if claimed {
		c.margin = claim.Margin
	}
	var i stats.Interval
	i, c.Verdict = c.effect.Judge(f, stats.DefaultMargin, e.Order == result.HIB) // one rule for all, also where there is a claim
	c.Interval = ConfidenceInterval(i)
	c.Detectable = document.Number(c.effect.Detectable(f.Level, stats.DefaultPower))
	if claimed && i.Defined() {
		c.Equivalent = stats.Within(i, claim.Margin)
	}
	switch {
	case c.Verdict == stats.Unknown:
		limit := max(maxNeeds, (1+attainable)*c.N+1) // which is not attainable
		c.Needs = max(1, c.effect.BlocksToDecide(f.Level, stats.DefaultMargin, limit)-c.N)
	case c.Verdict == stats.TooFew:
		c.Needs = max(0, stats.MinRepetitions-c.N)
	}
	c.Badge = badge(e, *c)
	c.Words, c.Short = verdictWords(e, *c)
}

// NoVerdict says why sides that share no block have none.
const NoVerdict = "no verdict: separate blocks"

func (c *Comparison) withoutVerdict() {
	c.Verdict, c.Equivalent, c.Needs = "", "", 0
	c.Badge, c.Words, c.Short = NoVerdict, NoVerdict, NoVerdict
}

// mirror returns c the other way round: the baseline against the configuration, whose
// estimate is e.
func (c Comparison) mirror(e Estimate, baseline string) Comparison {
	m := c
	m.Baseline, m.First, m.Equivalent = baseline, false, ""
	m.effect.Log = -c.effect.Log
	m.Ratio, m.Interval = c.Ratio.Inverse(), c.Interval.Inverse()
	switch c.Verdict {
	case stats.Better:
		m.Verdict = stats.Worse
	case stats.Worse:
		m.Verdict = stats.Better
	}
	if m.Verdict != "" {
		m.Badge = badge(e, m)
		m.Words, m.Short = verdictWords(e, m)
	}
	return m
}

// familyOf names the family of a comparison with a baseline: the primary metrics of all
// cases against the main baseline are one family, and the other metrics and baselines are
// families of their own.
func familyOf(e Estimate, against string) string {
	metric := e.Metric
	if e.Primary {
		metric = "primary"
	}
	return metric + " against " + cmp.Or(against, "nothing")
}

// Known reports whether c has a verdict other than "not known".
func (c Comparison) Known() bool {
	return c.Verdict == stats.Better || c.Verdict == stats.Worse || c.Verdict == stats.Equal
}
