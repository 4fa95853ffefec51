package estimate

import (
	"fmt"
	"slices"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
)

// cellKey names the samples of one estimate.
type cellKey struct{ suite, name, configuration, metric string }

func keyOf(c result.Case, configuration, metric string) cellKey {
	return cellKey{c.Suite, c.Name, configuration, metric}
}

// newCells sorts the samples of a run, without estimates.
func newCells(run result.Run, samples []result.Sample) *Set {
	s := &Set{Run: run, Metrics: map[string][]result.Metric{}}
	s.Samples, s.Unknown = belonging(run, samples)
	whole := slices.DeleteFunc(slices.Clone(s.Samples), collocation.OfDomain)
	s.cells, s.executions, s.having = observations(whole), map[cellKey]int{}, map[cellKey]int{}
	for k := range executions(whole) {
		s.having[k.cellKey]++
		if k.metric == "" {
			s.executions[k.cellKey]++
		}
	}
	for _, c := range run.Cases {
		s.Metrics[c.Name] = metricsOf(c, whole)
		if len(whole) < len(s.Samples) {
			s.Metrics[c.Name] = slices.DeleteFunc(s.Metrics[c.Name], func(m result.Metric) bool { return !measures(whole, c.Name, m.Name) })
		}
	}
	return s
}

// belonging drops samples of cases, configurations or units that the run does not have,
// with a warning for each kind.
func belonging(run result.Run, samples []result.Sample) (kept []result.Sample, warnings []string) {
	units := map[string]map[string]string{} // case -> metric -> unit
	for _, c := range run.Cases {
		units[c.Name] = map[string]string{}
		for _, m := range c.Metrics {
			units[c.Name][m.Name] = m.Unit
		}
	}
	unknown := map[string]int{}
	for _, s := range samples {
		unit, declared := units[s.Case][s.Metric]
		switch {
		case !run.Has(s.Configuration):
			unknown[fmt.Sprintf("unknown configuration %q", s.Configuration)]++
		case units[s.Case] == nil:
			unknown[fmt.Sprintf("unknown case %q", s.Case)]++
		case declared && unit != s.Unit:
			unknown[fmt.Sprintf("%s of %s in %s instead of %s", s.Metric, s.Case, s.Unit, unit)]++
		default:
			kept = append(kept, s)
		}
	}
	for what, n := range unknown {
		warnings = append(warnings, fmt.Sprintf("Left out: %s of %s.", document.Plural(n, "sample"), what))
	}
	slices.Sort(warnings)
	return kept, warnings
}

// metricsOf returns the metrics that a case declares, its primary metric first, and the
// other metrics of its samples.
func metricsOf(c result.Case, samples []result.Sample) []result.Metric {
	metrics := slices.Clone(c.Metrics)
	for _, s := range samples {
		known := slices.ContainsFunc(metrics, func(m result.Metric) bool { return m.Name == s.Metric })
		if s.Case == c.Name && !known {
			metrics = append(metrics, result.Metric{Name: s.Metric, Unit: s.Unit, Order: s.Order})
		}
	}
	if i := slices.IndexFunc(metrics, func(m result.Metric) bool { return m.Name == c.Primary }); i > 0 {
		metrics = slices.Insert(slices.Delete(slices.Clone(metrics), i, i+1), 0, metrics[i])
	}
	return metrics
}

func measures(samples []result.Sample, name, metric string) bool {
	return slices.ContainsFunc(samples, func(s result.Sample) bool { return s.Case == name && s.Metric == metric })
}

func observations(samples []result.Sample) map[cellKey][]stats.Observation {
	cells := map[cellKey][]stats.Observation{}
	for _, s := range samples {
		k := cellKey{s.Suite, s.Case, s.Configuration, s.Metric}
		cells[k] = append(cells[k], stats.Observation{Block: s.Block, Value: s.Value})
	}
	return cells
}

// executed is an execution with a metric, or with any metric if that is empty.
type executed struct {
	cellKey
	result.Execution
}

func executions(samples []result.Sample) map[executed]bool {
	all := map[executed]bool{}
	for _, s := range samples {
		all[executed{cellKey{s.Suite, s.Case, s.Configuration, ""}, s.Execution()}] = true
		all[executed{cellKey{s.Suite, s.Case, s.Configuration, s.Metric}, s.Execution()}] = true
	}
	return all
}

// selected says that only a part of the executions of a cell have its metric; it is empty if all or none have it. A
// 99th percentile takes 1,000 answers, which slow executions do not have: those that have it are the fast ones.
func (s *Set) selected(c result.Case, configuration, metric string) string {
	has, of := s.having[keyOf(c, configuration, metric)], s.executions[keyOf(c, configuration, "")]
	if has == 0 || has == of {
		return ""
	}
	return fmt.Sprintf("%s has it in %d of %s", configuration, has, document.Plural(of, "execution"))
}
