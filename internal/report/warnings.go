package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/stats"
)

// runWarnings are the reasons to trust a whole run less.
func runWarnings(run result.Run, samples []result.Sample) []string {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if text := observe(run, samples).warning(); text != "" {
		warn("%s", text)
	}
	done := map[result.Execution]bool{}
	for _, s := range samples {
		done[s.Execution()] = true
	}
	if run.State != result.Complete {
		why := ""
		if run.Error != "" {
			why = " (" + run.Error + ")"
		}
		warn("The run is %s, not complete%s: %d of %s have samples.", run.State, why, len(done), plural(run.Planned, "planned execution"))
	}
	if !run.Interleaved {
		warn("The configurations were not interleaved: a change of the machine between their measurements looks like a difference between them.")
	}
	if run.Repetitions < stats.MinRepetitions {
		warn("Only %s planned: a verdict takes at least %d.", plural(run.Repetitions, "repetition"), stats.MinRepetitions)
	}
	if len(run.Failures) > 0 {
		warn("%s failed after retries: see the failures.", plural(len(run.Failures), "execution"))
	}
	if run.Accelerator == "tcg" && slices.ContainsFunc(run.Configurations, inGuest) {
		warn("Guests ran under TCG, which emulates the processor: times and ratios differ under KVM.")
	}
	if all := overcommitted(run); len(all) > 0 {
		warn("The host has %d processors, fewer than the vCPUs of a configuration: %s. The vCPUs share them, so figures per vCPU are too low.",
			run.Host.VCPUs, strings.Join(all, ", "))
	}
	warnings = append(warnings, rateWarnings(run, samples)...)
	for _, b := range run.Baselines {
		if !hasConfiguration(run, b) {
			warn("The baseline %s is not a configuration of this run: nothing is compared with it.", b)
		}
	}
	return warnings
}

// rateWarnings name the configurations in which a load did not reach its rate in some execution,
// one warning for each case.
func rateWarnings(run result.Run, samples []result.Sample) (all []string) {
	least := map[cellKey]float64{}
	for _, s := range samples {
		key := cellKey{s.Suite, s.Case, s.Configuration, reached}
		if had, ok := least[key]; s.Metric == reached && s.Value < fullRate && (!ok || s.Value < had) {
			least[key] = s.Value
		}
	}
	for _, c := range run.Cases {
		var slow []string
		for _, conf := range run.Configurations {
			if v, ok := least[cellKey{c.Suite, c.Name, conf.Name, reached}]; ok {
				slow = append(slow, percent(v/100)+" with "+conf.Name)
			}
		}
		if len(slow) > 0 {
			all = append(all, fmt.Sprintf("%s: the load did not always reach its rate, so latencies grow with its duration. The lowest values are %s.", c.Title, list(slow)))
		}
	}
	return all
}

// overcommitted names the configurations that have more vCPUs than the host of the run
// has processors.
func overcommitted(run result.Run) (all []string) {
	for _, c := range run.Configurations {
		if _, _, ours := levelOf(c.Stack); ours && run.Host.VCPUs > 0 && vcpus(c) > run.Host.VCPUs {
			all = append(all, fmt.Sprintf("%s has %d", c.Name, vcpus(c)))
		}
	}
	return all
}

// maxConcerned is the number of cells that a warning names.
const maxConcerned = 6

// warningTable lists the warnings on the estimates of the primary metrics, each warning
// once with the cells that it concerns.
func warningTable(estimates []Estimate) Table {
	several := slices.ContainsFunc(estimates, func(e Estimate) bool { return e.Run != estimates[0].Run })
	var order []string
	concerned := map[string][]string{}
	add := func(warning, cell string) {
		if concerned[warning] == nil {
			order = append(order, warning)
		}
		concerned[warning] = append(concerned[warning], cell)
	}
	for _, e := range primaries(estimates) {
		cell := e.Case + " in " + e.Configuration
		if several {
			cell = e.Run + ": " + cell
		}
		for _, d := range e.Warnings {
			add(d, cell)
		}
		for _, c := range e.Comparisons {
			for _, d := range c.Warnings {
				add(d, cell+" against "+c.Baseline)
			}
		}
	}
	t := Table{ID: "doubts", Title: "Warnings on single results", Columns: []Column{{Name: "warning", Header: true}, {Name: "concerns"}}}
	for _, warning := range order {
		cells := concerned[warning]
		text := strings.Join(cells[:min(len(cells), maxConcerned)], "; ")
		if rest := len(cells) - maxConcerned; rest > 0 {
			text += fmt.Sprintf("; and %d more", rest)
		}
		t.Rows = append(t.Rows, []Cell{{Text: warning}, {Text: text}})
	}
	return t
}

// warningText words a warning as one sentence without a period.
func warningText(w stats.Warning) string {
	switch w.Kind {
	case stats.FewRepetitions:
		return fmt.Sprintf("fewer than %d blocks (%d): no interval and no verdict", stats.MinRepetitions, w.N)
	case stats.Repeated:
		return fmt.Sprintf("several values of one block count as one, because they are not independent (values: %d, blocks: %d)", w.N, w.Of)
	case stats.NoVariance:
		return fmt.Sprintf("all %d values are %v: the resolution of the tool may be too coarse", w.N, w.Value)
	case stats.Noisy:
		return fmt.Sprintf("noisy: the standard deviation is %.0f %% of the mean", 100*w.Value)
	case stats.Outliers:
		return fmt.Sprintf("%d of %d values lie more than %v scaled median absolute deviations from the median", w.N, w.Of, stats.OutlierMADs)
	case stats.Drift:
		return fmt.Sprintf("the values drift over the %d blocks (Mann-Kendall, p = %.2g)", w.N, w.Value)
	case stats.NoRatio:
		return fmt.Sprintf("no ratio: %v", w.Err)
	}
	return w.Err.Error() // Unusable
}

// inGuest tells whether a configuration has a virtual machine.
func inGuest(c result.Configuration) bool { return !strings.HasPrefix(c.Stack, string(stack.Metal)) }
