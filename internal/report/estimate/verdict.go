package estimate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/naming"
)

// badge is the verdict of a comparison of e in a word or two.
func badge(e Estimate, c Comparison) string {
	switch c.Verdict {
	case stats.Better:
		return map[bool]string{true: "faster", false: "better"}[Speed(e)]
	case stats.Worse:
		return map[bool]string{true: "slower", false: "worse"}[Speed(e)]
	case stats.Equal:
		return "equal within " + document.PercentUp(spread(c.Interval))
	}
	return "not known" + needs(c)
}

// Speed reports whether e is a time or a rate, so that better is faster.
func Speed(e Estimate) bool {
	unit, _ := strings.CutSuffix(e.Unit, "/op")
	_, isTime := naming.Milliseconds[unit]
	return isTime || strings.HasSuffix(e.Unit, "/s")
}

// needs says how many further blocks would make c known, if a run can have them.
func needs(c Comparison) string {
	switch {
	case c.Needs == 0:
		return ": nothing varies"
	case !c.Attainable():
		return ": within the noise"
	}
	return ": needs " + document.Plural(c.Needs, "more block")
}

// attainable is the number of further blocks, per block of the run, that a longer run can have.
const attainable = 3

// Attainable reports whether c would be known after a number of further blocks that a run can have.
func (c Comparison) Attainable() bool { return c.Needs <= max(attainable*c.N, stats.MinRepetitions) }

// spread is the largest relative distance of an interval from 1.
func spread(i document.Interval) float64 { return math.Max(float64(i.High), 1/float64(i.Low)) - 1 }

// verdictWords says in plain words what a comparison shows, in sentences without the
// last full stop, and shortly.
func verdictWords(e Estimate, c Comparison) (long, short string) {
	long, short = difference(e, c)
	switch c.Equivalent {
	case stats.Yes:
		if c.Verdict != stats.Equal {
			short += ", but within " + document.Percent(c.margin)
		}
		long += fmt.Sprintf(". Shown to be within %s of %s", document.Percent(c.margin), c.Baseline)
	case stats.No:
		long += fmt.Sprintf(". Shown to be more than %s from %s", document.Percent(c.margin), c.Baseline)
	case stats.Undecided:
		long += fmt.Sprintf(". Not shown to be within %s of %s", document.Percent(c.margin), c.Baseline)
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
	return fmt.Sprintf("%s. Runs like this one find differences of %s in 80 %% of cases", short, document.Percent(float64(c.Detectable))), short
}

// magnitude says by how much e differs from the baseline.
func magnitude(e Estimate, c Comparison) string {
	if c.Ratio >= 2 {
		return fmt.Sprintf("%s the %s of %s", document.Change(c.Ratio), naming.Quantity(e.Metric), c.Baseline)
	}
	return fmt.Sprintf("%s %s than %s", document.Change(c.Ratio), naming.Quantity(e.Metric), c.Baseline)
}

// DoubtsOf are the doubts about an estimate and its comparisons in a few words, each once.
func DoubtsOf(e Estimate) []string {
	all := slices.Clone(e.doubts)
	for _, c := range e.Comparisons {
		if c.First {
			all = append(all, c.doubts...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// warningWords words a warning as one sentence without a period, and in a few words. Too few
// blocks have no short word, because there is no verdict to doubt.
func warningWords(w stats.Warning) (long, short string) {
	switch w.Kind {
	case stats.FewRepetitions:
		return fmt.Sprintf("fewer than %d blocks (%d): no interval and no verdict", stats.MinRepetitions, w.N), ""
	case stats.Repeated:
		return fmt.Sprintf("several values of one block count as one, because they are not independent (values: %d, blocks: %d)", w.N, w.Of), "several values per block"
	case stats.NoVariance:
		return fmt.Sprintf("all %d values are %v: the resolution of the tool may be too coarse", w.N, w.Value), "all values equal"
	case stats.Noisy:
		return fmt.Sprintf("noisy: the standard deviation is %.0f %% of the mean", 100*w.Value), "noisy: " + document.Percent(w.Value)
	case stats.Outliers:
		return fmt.Sprintf("%d of %d values lie more than %v scaled median absolute deviations from the median", w.N, w.Of, stats.OutlierMADs), document.Plural(w.N, "outlier")
	case stats.Drift:
		return fmt.Sprintf("the values drift over the %d blocks (Mann-Kendall, p = %.2g)", w.N, w.Value), "drifts"
	case stats.NoRatio:
		long = fmt.Sprintf("no ratio: %v", w.Err)
		return long, long
	}
	return w.Err.Error(), w.Err.Error() // Unusable
}

// Methods explain the estimates and comparisons of runs; interleaved says whether their sides
// share blocks, fresh whether each block had machines of its own.
func Methods(interleaved, fresh bool) []document.Method {
	covers := "this run on this machine: what the boot of its guests draws once is in all blocks. A new run differs by more; unnest report with several runs says by how much"
	if fresh {
		covers = "a new run on this machine: each block has guests of its own"
	}
	ratio := "the geometric mean of the ratios within the blocks, the passes over all configurations, so that what disturbs a whole block cancels out. Its interval is Student's t on the logarithms of these ratios, and covers " + covers
	if !interleaved {
		ratio = "the quotient of the geometric means of two sides that share no block. Its interval is Welch's t on the logarithms"
	}
	return []document.Method{
		{Term: "n, block", Text: "The number of blocks. Several values of one block count once, by their geometric mean."},
		{Term: "value", Text: fmt.Sprintf("The geometric mean over the blocks; the mean where a value is not positive. Its %s interval is Student's t on the logarithms, from %d blocks on.", document.Percent(stats.DefaultConfidence), stats.MinRepetitions)},
		{Term: "ratio", Text: fmt.Sprintf("The value over that of the baseline: %s. There is none below %d blocks.", ratio, stats.MinRepetitions)},
		{Term: "verdict", Text: fmt.Sprintf("The interval of the ratio is the verdict. It excludes 1: faster or slower (better or worse). It is wholly within %s of 1: equal, within the distance that is said. Otherwise the difference is not known, and the verdict says after about how many further blocks it would be, if ratio and scatter stay as they are (--repetitions). It is within the noise if that takes more than %d times as many: a quieter machine shows more.", document.Percent(stats.DefaultMargin), 1+attainable)},
		{Term: "level of the intervals", Text: fmt.Sprintf("Among the differences that a family finds, at most %s are expected to be false (Benjamini and Hochberg). The first family is the primary metric of every case against the main baseline; every other baseline and metric is a family of its own, so all of a report together find more false ones. The head of the table names the level that follows (Benjamini and Yekutieli): 1 − %v · found / tested.", document.Percent(stats.DefaultAlpha), stats.DefaultAlpha)},
		{Term: "detects", Text: fmt.Sprintf("The difference that a run with as many blocks and as much scatter finds with a probability of %s, at the level of its family (noncentral t).", document.Percent(stats.DefaultPower))},
		doubtsMethod,
	}
}

// doubtsMethod explains the words of the column.
var doubtsMethod = document.Method{Term: "doubts", Text: fmt.Sprintf("Reasons to trust a row less. Noisy: the standard deviation is more than %s of the mean, as said. "+
	"Outliers: values more than %v scaled median absolute deviations from the median. Drifts: the values rise or fall over the blocks (Mann-Kendall, p < %v). "+
	"All values equal: the resolution of the tool may be too coarse. Several values per block count as one, because they are not independent.",
	document.Percent(stats.NoisyCV), stats.OutlierMADs, stats.DriftAlpha)}
