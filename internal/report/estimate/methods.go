package estimate

import (
	"fmt"

	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
)

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
