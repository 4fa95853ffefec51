package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// methods explain the numbers of a report.
func methods(o Options, run result.Run) []Method {
	ratio := "the geometric mean of the ratios within the blocks, the passes over all configurations, so that what disturbs a whole block cancels out. Its interval is Student's t on the logarithms of these ratios"
	if !run.Interleaved {
		ratio = "the quotient of the geometric means of two sides that share no block. Its interval is Welch's t on the logarithms"
	}
	ms := []Method{
		{"n, block", "The number of blocks. Several values of one block count once, by their geometric mean."},
		{"value", fmt.Sprintf("The geometric mean over the blocks; the mean where a value is not positive. Its %s interval is Student's t on the logarithms, from %d blocks on.", percent(o.Confidence), stats.MinRepetitions)},
		{"ratio", fmt.Sprintf("The value over that of the baseline: %s. There is none below %d blocks.", ratio, stats.MinRepetitions)},
		{"verdict", fmt.Sprintf("The interval of the ratio is the verdict. It excludes 1: faster or slower (better or worse). It is wholly within %s of 1: equal, within the distance that is said. Otherwise the difference is not known, and the verdict says after about how many further blocks it would be, if ratio and scatter stay as they are.", percent(stats.DefaultMargin))},
		{"level of the intervals", fmt.Sprintf("Among the differences that a report finds, at most %s are expected to be false (Benjamini and Hochberg). The family is the primary metric of every case against the main baseline; every other baseline and metric is a family of its own. The head of the table names the level that follows (Benjamini and Yekutieli): 1 − %v · found / tested.", percent(o.Alpha), o.Alpha)},
		{"detects", fmt.Sprintf("The difference that a run with as many blocks and as much scatter finds with a probability of %s, at the level of its family (noncentral t).", percent(stats.DefaultPower))},
		doubtsMethod,
	}
	if text := startsOf(run.Guests); text != "" {
		ms = append(ms, Method{"guests", text})
	}
	if distributed(run) {
		ms = append(ms, Method{"distribution", "A line shows the share of executions that took at most the time below it; it rises at every measured value. A line further left is faster; a line that reaches the top late has slow outliers. p25, p75, p90 and p99 are percentiles, interpolated between the values."})
	}
	if len(nestings(run)) > 0 {
		ms = append(ms, Method{"level, ΔL", "The level is the number of hypervisors under the operating system, as in FitzGerald 2014. ΔL is the change of the mean against the level below, among configurations with the same container engine and the same options, apart from the size of the guest. Where a level has several such configurations, the first is compared with the first of the level below, the second with the second, or with the last one."})
	}
	if len(scoredSuites(run)) > 0 {
		ms = append(ms, scoreMethods()...)
	}
	if margin := percent(o.Equivalence.Margin); o.Equivalence.Configuration != "" {
		ms = append(ms, Method{"within " + margin, fmt.Sprintf("Shown when the whole interval of the ratio lies within %s of 1. The default margin is from Bacou et al. 2019, §5.2.1, who report BrFusion within 3.5 %% of NoCont.", margin)})
	}
	return ms
}

// startsOf says which guests were booted and which were restored, as far as that is known.
func startsOf(guests []result.Machine) string {
	names := map[string][]string{}
	for _, g := range guests {
		names[g.Start] = append(names[g.Start], g.Name)
	}
	var text []string
	if booted := names[result.Booted]; booted != nil {
		text = append(text, "Booted for this run: "+strings.Join(booted, ", ")+".")
	}
	if restored := names[result.Restored]; restored != nil {
		text = append(text, "Restored from a snapshot of a booted guest: "+strings.Join(restored, ", ")+". Their memory is in small pages, and their page cache and container engine are warm.")
	}
	return strings.Join(text, " ")
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
