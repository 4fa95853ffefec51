package report

import (
	"fmt"
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// methods explain the numbers of a report.
func methods(o Options, run result.Run) []Method {
	confidence := percent(o.Confidence)
	resampled := "blocks, the passes over all configurations, so that a disturbance of a whole block cancels out"
	if !run.Interleaved {
		resampled = "each side on its own"
	}
	ms := []Method{
		{"n", "The number of repetitions. Several values of one repetition count once, by their median."},
		{"median, interval", fmt.Sprintf("The median is the middle value. Its %s interval lies between two of the measured values and assumes no distribution. Where there are too few values for %s, the report prints the coverage that they reach.", confidence, confidence)},
		{"ratio", fmt.Sprintf("The median divided by the median of the baseline: 1 is no difference. Its %s interval is a percentile bootstrap of %d resamples of %s. An interval from 0.98 to 1.05 is compatible with both 2 %% less and 5 %% more.", confidence, stats.Resamples, resampled)},
		{"p", fmt.Sprintf("Welch's t test: %s. It is not the probability that the means are equal, and a large p does not show that they are.", stats.PMeaning)},
		{"adjusted p", fmt.Sprintf("Corrected by Holm for the number of comparisons in the table. Calling a difference where adjusted p is at most %v limits the probability of any false call in the table to that level.", o.Alpha)},
		{"inconclusive", "The interval of the ratio excludes 1, but the test detects no difference after the correction for the other comparisons in the table. More repetitions are needed."},
		{"no difference detected", "The configurations are neither shown to differ nor shown to be equal. The verdict names the smallest difference that a run of this size and noise detects four times out of five."},
	}
	if distributed(run) {
		ms = append(ms, Method{"distribution", "A line shows the share of executions that took at most the time below it; it rises at every measured value. A line further left is faster; a line that reaches the top late has slow outliers. p25, p75, p90 and p99 are percentiles, interpolated between the values."})
	}
	if len(nestings(run)) > 0 {
		ms = append(ms, Method{"level, ΔL", "The level is the number of hypervisors under the operating system, as in FitzGerald 2014. ΔL is the change of the mean against the level below, among configurations with the same container engine and the same options, apart from the size of the guest. Where a level has several such configurations, the first is compared with the first of the level below, the second with the second, or with the last one."})
	}
	if ofSuites(run) {
		ms = append(ms, Method{"difference", "The result of the test in one word: better, worse, inconclusive or none detected, as in the verdicts above; empty where there are too few samples."})
	}
	if len(scoredSuites(run)) > 0 {
		ms = append(ms, scoreMethods()...)
	}
	if margin := percent(o.Equivalence.Margin); o.Equivalence.Configuration != "" {
		ms = append(ms, Method{"within " + margin, fmt.Sprintf("Shown when the whole %s interval of the ratio lies within %s of 1. The default margin is from Bacou et al. 2019, §5.2.1, who report BrFusion within 3.5 %% of NoCont.", confidence, margin)})
	}
	return ms
}

// distributed reports whether a run has a metric with a distribution.
func distributed(run result.Run) bool {
	return slices.ContainsFunc(run.Cases, func(c result.Case) bool {
		return slices.ContainsFunc(c.Metrics, func(m result.Metric) bool { return m.Distribution })
	})
}

// scoreMethods explain scores and geometric means.
func scoreMethods() []Method {
	return []Method{
		{"score, total", "After Lubomski et al., Multi-level virtualization and its impact on system performance in cloud computing, §3.6. A score is the mean over the highest mean of all configurations in its case, so 1 is the best where higher is better (HIB) and the worst where lower is better (LIB). A total is the sum of the scores less those of LIB cases: higher is better. Totals depend on which configurations and cases are in the table: adding one of either can reverse the order of two others, and a warning says where it does. The paper sums scores rounded to two decimals. A case without results in some configuration counts in no total."},
		{"geometric mean", "The geometric mean, over cases, of the ratio of the mean to that of a baseline. It does not depend on the other configurations, nor on the order of the case. Its interval treats the cases as a sample of all possible cases; variants of one benchmark make it too narrow."},
	}
}
