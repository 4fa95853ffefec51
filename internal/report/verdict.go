package report

import (
	"fmt"

	"unnest/internal/measure/stats"
)

// verdictWords says in plain words what a comparison shows, in sentences without the
// last full stop, and shortly.
func verdictWords(e, base Estimate, c Comparison, claim Claim) (long, short string) {
	long, short = difference(e, base, c)
	if c.Equivalent == "" {
		return long, short
	}
	within := fmt.Sprintf("within %s of %s", percent(claim.Margin), claim.Baseline)
	if c.Equivalent == stats.Yes {
		return long + ". Shown to be " + within, short + "; " + within
	}
	return long + ". Not shown to be " + within, short + "; not shown within " + percent(claim.Margin)
}

func difference(e, base Estimate, c Comparison) (long, short string) {
	switch {
	case e.N == 0 || base.N == 0:
		return "", ""
	case c.Verdict == stats.TooFew:
		short = "too few samples against " + c.Baseline
		return fmt.Sprintf("%s (n = %d and %d)", short, e.N, base.N), short
	case c.Verdict == stats.Unclear:
		short = fmt.Sprintf("inconclusive against %s (%s)", c.Baseline, pValue(c.Adjusted))
		return fmt.Sprintf("inconclusive against %s: %s (%s). More repetitions needed",
			c.Baseline, timesWithInterval(c.Ratio, c.Interval), pValue(c.Adjusted)), short
	case c.Verdict == stats.NoDifferenceSeen:
		short = "no difference from " + c.Baseline + " detected"
		long = fmt.Sprintf("%s (%s)", short, pValue(c.Adjusted))
		if c.Detectable.Defined() {
			long += ". This run could detect differences of " + percent(float64(c.Detectable)) + " or more"
		}
		return long, short
	}
	long, short = magnitude(e, c)
	return fmt.Sprintf("%s (%s)", long, pValue(c.Adjusted)), fmt.Sprintf("%s (%s)", short, pValue(c.Adjusted))
}

// magnitude says by how much e differs from the baseline: by the ratio of the medians,
// unless there is none or the means, which are what is tested, differ the other way.
func magnitude(e Estimate, c Comparison) (long, short string) {
	q := quantity(e.Metric)
	switch {
	case !c.Ratio.Defined() || c.meansReverse || c.Ratio == 1 || (c.Ratio > 1) != c.higher:
		direction := "lower"
		if c.higher {
			direction = "higher"
		}
		return fmt.Sprintf("%s mean %s than %s", direction, q, c.Baseline), direction + " mean than " + c.Baseline
	case c.Ratio >= 2:
		return fmt.Sprintf("%s the %s of %s", change(c.Ratio), q, c.Baseline), change(c.Ratio) + " " + c.Baseline
	}
	return fmt.Sprintf("%s %s than %s", change(c.Ratio), q, c.Baseline), change(c.Ratio) + " than " + c.Baseline
}

// verdictWord is the verdict of a table of many metrics.
func verdictWord(v stats.Verdict) string {
	switch v {
	case stats.Unclear:
		return "inconclusive"
	case stats.NoDifferenceSeen:
		return "none detected"
	}
	return string(v)
}
