// Package estimate says what the samples of a run show: an Estimate of every metric in every
// case and configuration, compared with others, and the verdict in words. It also makes the
// columns and charts that several reports have of estimates.
//
// Statistics belong to package stats.
package estimate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/naming"
)

// Set holds the estimates of a run: of every metric in every case and configuration.
type Set struct {
	Run      result.Run
	Samples  []result.Sample            // those that belong to the run
	Metrics  map[string][]result.Metric // by case name: declared or found
	Unknown  []string                   // warnings about samples that are not of the run
	Families []Family

	cells              map[cellKey][]stats.Observation
	executions, having map[cellKey]int // of a case in a configuration (without metric), and with a metric
	computed           map[cellKey]*Estimate
	below              map[cellKey]*Comparison // with the level of virtualization below, where it is no baseline
}

// Pair is a configuration with the one that it is compared with, besides the baselines.
type Pair struct{ Configuration, Below string }

// New estimates the samples of a run. Each metric is compared with every baseline, and
// along pairs; comparisons are judged together, see Family. A claim of nobody is the zero
// Claim.
func New(run result.Run, samples []result.Sample, claim Claim, pairs []Pair) *Set {
	s := newCells(run, samples)
	s.computed, s.below = map[cellKey]*Estimate{}, map[cellKey]*Comparison{}
	var all []judged
	for _, c := range s.Run.Cases {
		for _, m := range s.Metrics[c.Name] {
			for _, conf := range s.Run.Configurations {
				e := s.Describe(c, conf, m)
				s.computed[keyOf(c, conf.Name, m.Name)] = &e
			}
			all = append(all, s.comparisons(c, m)...)
			all = append(all, s.steps(c, m, pairs)...)
		}
	}
	s.Families = judge(all, claim, false)
	for _, c := range s.Run.Cases {
		for _, m := range s.Metrics[c.Name] {
			s.mirror(c, m)
		}
	}
	return s
}

// comparisons compares one metric of a case with the baselines, each pair of
// configurations once. The family of a comparison with another baseline than the main one
// is its own.
func (s *Set) comparisons(c result.Case, m result.Metric) (all []judged) {
	for _, conf := range s.Run.Configurations {
		e := s.at(c, conf.Name, m)
		self := slices.Index(s.Baselines(), conf.Name)
		e.Comparisons = make([]Comparison, 0, len(s.Baselines())) // the judged ones stay where they are
		for i, name := range s.Baselines() {
			if i == self {
				continue
			}
			e.Comparisons = append(e.Comparisons, Comparison{Baseline: name, First: self < 0 || self > i})
			if comparison := &e.Comparisons[len(e.Comparisons)-1]; comparison.First {
				*comparison = s.compare(c, conf.Name, name, m)
				all = append(all, judged{e, comparison, familyOf(*e, name)})
			}
		}
	}
	return all
}

// steps compares one metric of a case along pairs, where no comparison with a baseline does.
func (s *Set) steps(c result.Case, m result.Metric, pairs []Pair) (all []judged) {
	for _, p := range pairs {
		e := s.at(c, p.Configuration, m)
		if e.Against(p.Below) != nil {
			continue
		}
		comparison := s.compare(c, p.Configuration, p.Below, m)
		s.below[keyOf(c, p.Configuration, m.Name)] = &comparison
		all = append(all, judged{e, &comparison, familyOf(*e, "the level below")})
	}
	return all
}

// Step returns the comparison of a configuration along a pair.
func (s *Set) Step(c result.Case, m result.Metric, p Pair) *Comparison {
	if comparison := s.at(c, p.Configuration, m).Against(p.Below); comparison != nil {
		return comparison
	}
	return s.below[keyOf(c, p.Configuration, m.Name)]
}

// mirror fills in the comparisons of pairs that were judged the other way round.
func (s *Set) mirror(c result.Case, m result.Metric) {
	for _, conf := range s.Run.Configurations {
		e := s.at(c, conf.Name, m)
		for i, comparison := range e.Comparisons {
			if !comparison.First {
				e.Comparisons[i] = s.at(c, comparison.Baseline, m).Against(conf.Name).mirror(*e, comparison.Baseline)
			}
		}
	}
}

func (s *Set) compare(c result.Case, configuration, baseline string, m result.Metric) Comparison {
	for _, side := range []string{configuration, baseline} {
		if part := s.selected(c, side, m.Name); part != "" {
			return notCompared(baseline, part)
		}
	}
	return compare(s.Observations(c, configuration, m.Name), s.Observations(c, baseline, m.Name), baseline, s.Run.Interleaved)
}

// Effect is the ratio of a metric in a configuration to that in a baseline. It fails where there is no verdict either: the
// sides share no block, or only a part of the executions of one has the metric.
func (s *Set) Effect(c result.Case, configuration, baseline, metric string) (stats.Effect, error) {
	for _, side := range []string{configuration, baseline} {
		if part := s.selected(c, side, metric); part != "" {
			return stats.Effect{}, errors.New(part)
		}
	}
	e, err := stats.Compare(s.Observations(c, configuration, metric), s.Observations(c, baseline, metric), s.Run.Interleaved)
	if err == nil && !e.Paired {
		return stats.Effect{}, errors.New(NoVerdict)
	}
	return e, err
}

func (s *Set) at(c result.Case, configuration string, m result.Metric) *Estimate {
	return s.computed[keyOf(c, configuration, m.Name)]
}

// Observations are the values of one cell.
func (s *Set) Observations(c result.Case, configuration, metric string) []stats.Observation {
	return s.cells[keyOf(c, configuration, metric)]
}

// MetricNames returns the metrics of cases, each once.
func (s *Set) MetricNames(cases []result.Case) []string {
	var names []string
	for _, c := range cases {
		for _, m := range s.Metrics[c.Name] {
			if !slices.Contains(names, m.Name) {
				names = append(names, m.Name)
			}
		}
	}
	return names
}

// Estimates returns the estimates, in every configuration, of the metric that metric chooses
// in each case. A case without the metric is left out.
func (s *Set) Estimates(cases []result.Case, metric func(result.Case) string) []Estimate {
	var estimates []Estimate
	for _, c := range cases {
		m := MetricNamed(s.Metrics[c.Name], metric(c))
		if m == nil {
			continue
		}
		for _, conf := range s.Run.Configurations {
			estimates = append(estimates, *s.at(c, conf.Name, *m))
		}
	}
	return estimates
}

// Describe is the estimate of one cell, without comparisons.
func (s *Set) Describe(c result.Case, conf result.Configuration, m result.Metric) Estimate {
	e := Estimate{
		Run: s.Run.ID, Suite: c.Suite, Case: c.Name, Group: naming.GroupKey(c), Size: c.Size, Label: naming.Label(c), Tool: c.Tool,
		Configuration: conf.Name, Stack: conf.Stack, Accelerator: s.Run.Accelerator, Metric: m.Name, Unit: m.Unit, Order: m.Order, Primary: m.Name == c.Primary,
	}
	e.describe(s.Observations(c, conf.Name, m.Name))
	e.doubtRate(s.Observations(c, conf.Name, naming.Reached))
	if e.N == 0 && e.Missing == "" {
		e.Missing = s.whyMissing(c.Name, conf.Name)
	}
	return e
}

// Baselines returns the baselines that the run has as configurations.
func (s *Set) Baselines() []string {
	var names []string
	for _, name := range s.Run.Baselines {
		if s.Run.Has(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// whyMissing says why a case has no sample in a configuration.
func (s *Set) whyMissing(name, configuration string) string {
	for _, f := range s.Run.Failures {
		if f.Case == name && f.Configuration == configuration {
			return fmt.Sprintf("missing: failed %d times: %s", f.Attempts, f.Error)
		}
	}
	if s.Run.State != result.Complete {
		return "missing: not measured yet"
	}
	return "missing"
}

// Groups splits the cases by table: the same suite, group and primary metric.
func (s *Set) Groups() [][]result.Case {
	var order []string
	byKey := map[string][]result.Case{}
	for _, c := range s.Run.Cases {
		key := strings.Join([]string{c.Suite, naming.GroupKey(c), c.Primary}, "\x00")
		if byKey[key] == nil {
			order = append(order, key)
		}
		byKey[key] = append(byKey[key], c)
	}
	groups := make([][]result.Case, len(order))
	for i, key := range order {
		groups[i] = byKey[key]
	}
	return groups
}
