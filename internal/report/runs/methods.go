package runs

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/levels"
	"unnest.io/unnest/internal/report/scores"
)

// methods explain the numbers of a report of a run.
func methods(run result.Run, claim estimate.Claim) []document.Method {
	ms := estimate.Methods(run.Interleaved, run.Fresh)
	if text := startsOf(run.Guests); text != "" {
		ms = append(ms, document.Method{Term: "guests", Text: text})
	}
	if distributed(run) {
		ms = append(ms, document.Method{Term: "distribution", Text: "A line shows the share of executions that took at most the time below it; it rises at every measured value. A line further left is faster; a line that reaches the top late has slow outliers. p25, p75, p90 and p99 are percentiles, interpolated between the values."})
	}
	ms = append(ms, levels.Methods(run)...)
	if len(scores.Suites(run)) > 0 {
		ms = append(ms, scores.Methods()...)
	}
	if margin := document.Percent(claim.Margin); claim.Configuration != "" {
		ms = append(ms, document.Method{Term: "within " + margin, Text: fmt.Sprintf("Shown when the whole interval of the ratio lies within %s of 1. The default margin is from Bacou et al. 2019, §5.2.1, who report BrFusion within 3.5 %% of NoCont.", margin)})
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
