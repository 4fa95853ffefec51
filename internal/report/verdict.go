package report

import (
	"fmt"
	"math"
	"strings"

	"unnest/internal/measure/stats"
)

// badge is the verdict of a comparison of e in a word or two.
func badge(e Estimate, c Comparison) string {
	switch c.Verdict {
	case stats.Better:
		return map[bool]string{true: "faster", false: "better"}[speed(e)]
	case stats.Worse:
		return map[bool]string{true: "slower", false: "worse"}[speed(e)]
	case stats.Equal:
		return "equal within " + percentUp(spread(c.Interval))
	}
	return "not known" + needs(c)
}

// speed reports whether e is a time or a rate, so that better is faster.
func speed(e Estimate) bool {
	unit, _ := strings.CutSuffix(e.Unit, "/op")
	_, isTime := milliseconds[unit]
	return isTime || strings.HasSuffix(e.Unit, "/s")
}

// needs says how many further blocks would make c known.
func needs(c Comparison) string {
	switch {
	case c.Needs == 0:
		return ": nothing varies"
	case c.Needs >= maxNeeds-c.N:
		return fmt.Sprintf(": needs over %d more", maxNeeds)
	}
	return fmt.Sprintf(": needs %d more", c.Needs)
}

// spread is the largest relative distance of an interval from 1.
func spread(i Interval) float64 { return math.Max(float64(i.High), 1/float64(i.Low)) - 1 }

// percentUp prints a positive fraction as a percentage with two digits, rounded up.
func percentUp(v float64) string {
	if v <= 0 {
		return "0 %"
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return percent(math.Ceil(v/unit-1e-9) * unit)
}

// verdictWords says in plain words what a comparison shows, in sentences without the
// last full stop, and shortly.
func verdictWords(e Estimate, c Comparison) (long, short string) {
	long, short = difference(e, c)
	switch c.Equivalent {
	case stats.Yes:
		if c.Verdict != stats.Equal {
			short += ", but within " + percent(c.margin)
		}
		long += fmt.Sprintf(". Shown to be within %s of %s", percent(c.margin), c.Baseline)
	case stats.No, stats.Undecided:
		long += fmt.Sprintf(". Not shown to be within %s of %s", percent(c.margin), c.Baseline)
	}
	return long, short
}

func difference(e Estimate, c Comparison) (long, short string) {
	switch c.Verdict {
	case stats.Better, stats.Worse:
		return c.Badge + ": " + magnitude(e, c), c.Badge + " than " + c.Baseline
	case stats.Equal:
		short = "equal to " + c.Baseline + strings.TrimPrefix(c.Badge, "equal")
		return short, short
	}
	short = "not known against " + c.Baseline + needs(c)
	if !c.Detectable.Defined() {
		return short, short
	}
	blocks := "blocks"
	if c.Needs == 1 {
		blocks = "block"
	}
	return fmt.Sprintf("%s %s. Runs like this one find differences of %s in 80 %% of cases", short, blocks, percent(float64(c.Detectable))), short
}

// magnitude says by how much e differs from the baseline.
func magnitude(e Estimate, c Comparison) string {
	if c.Ratio >= 2 {
		return fmt.Sprintf("%s the %s of %s", change(c.Ratio), quantity(e.Metric), c.Baseline)
	}
	return fmt.Sprintf("%s %s than %s", change(c.Ratio), quantity(e.Metric), c.Baseline)
}
