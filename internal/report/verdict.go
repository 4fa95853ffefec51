package report

import (
	"fmt"

	"unnest/internal/measure/stats"
)

// verdictWords says in plain words what a comparison shows, at length and
// shortly.
func verdictWords(e, base Estimate, c Comparison, claim Claim) (long, short string) {
	long, short = difference(e, base, c)
	switch c.Equivalent {
	case "":
		return long, short
	case stats.Yes:
		within := fmt.Sprintf("within %s of %s", percent(claim.Margin), claim.Baseline)
		return long + "; shown to be " + within, short + "; " + within
	}
	margin := percent(claim.Margin)
	return long + "; not shown to be within " + margin + " of " + claim.Baseline, short + "; not shown within " + margin
}

func difference(e, base Estimate, c Comparison) (long, short string) {
	switch {
	case e.N == 0 || base.N == 0:
		return "", ""
	case c.Verdict == stats.TooFew:
		long = fmt.Sprintf("too few samples to tell it from %s (n = %d and %d)", c.Baseline, e.N, base.N)
		return long, "too few samples against " + c.Baseline
	case c.Verdict == stats.Unclear:
		short = "unclear against " + c.Baseline
		long = fmt.Sprintf("%s: the interval of the ratio leaves 1 out, but after the correction for the other comparisons "+
			"in the table such a difference may well appear by chance (%s); more repetitions would tell", short, pValue(c.Adjusted))
		return long, short + fmt.Sprintf(" (%s)", pValue(c.Adjusted))
	case c.Verdict == stats.NoDifferenceSeen:
		short = "no difference from " + c.Baseline + " seen"
		long = fmt.Sprintf("%s (%s)", short, pValue(c.Adjusted))
		if c.Detectable.Defined() {
			long += "; this run could have seen " + percent(float64(c.Detectable)) + " or more"
		}
		return long, short
	}
	than, shortThan := magnitude(e, c)
	chance := "hardly ever"
	if c.Adjusted >= 0.01 {
		chance = "seldom"
	}
	return fmt.Sprintf("%s; such a difference would %s appear by chance (%s)", than, chance, pValue(c.Adjusted)),
		fmt.Sprintf("%s (%s)", shortThan, pValue(c.Adjusted))
}

// magnitude says by how much e differs from the baseline: by the ratio of the
// medians, unless there is none or the means, which the test is about, differ
// the other way.
func magnitude(e Estimate, c Comparison) (long, short string) {
	q := quantity(e.Metric)
	if !c.Ratio.Defined() || c.meansReverse || c.Ratio == 1 || (c.Ratio > 1) != c.higher {
		direction := "lower"
		if c.higher {
			direction = "higher"
		}
		long = fmt.Sprintf("%s mean %s than %s", direction, q, c.Baseline)
		return long, direction + " mean than " + c.Baseline
	}
	if c.Ratio >= 2 {
		return fmt.Sprintf("%s the %s of %s", change(c.Ratio), q, c.Baseline), change(c.Ratio) + " " + c.Baseline
	}
	return fmt.Sprintf("%s %s than %s", change(c.Ratio), q, c.Baseline), change(c.Ratio) + " than " + c.Baseline
}
