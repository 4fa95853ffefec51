package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/collocation"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// builder is the run that a report is built from.
type builder struct {
	run     result.Run
	opts    Options
	samples []result.Sample // those that belong to the run
	cells   map[cellKey][]stats.Observation
	metrics map[string][]result.Metric // by case name: declared or found
	unknown []string                   // warnings about samples that are not of the run

	computed map[cellKey]*Estimate
	below    map[cellKey]*Comparison // with the level of virtualization below, where it is no baseline
	families []Family
}

func newBuilder(run result.Run, samples []result.Sample, o Options) *builder {
	b := &builder{run: run, opts: o, metrics: map[string][]result.Metric{}}
	b.samples, b.unknown = belonging(run, samples)
	whole := slices.DeleteFunc(slices.Clone(b.samples), collocation.OfDomain)
	b.cells = observations(whole)
	for _, c := range run.Cases {
		b.metrics[c.Name] = metricsOf(c, whole)
		if len(whole) < len(b.samples) {
			b.metrics[c.Name] = slices.DeleteFunc(b.metrics[c.Name], func(m result.Metric) bool { return !measures(whole, c.Name, m.Name) })
		}
	}
	return b
}

// compute estimates every metric in every case and configuration, compares it with every
// baseline and with the level of virtualization below, and judges the comparisons.
func (b *builder) compute() {
	b.computed, b.below = map[cellKey]*Estimate{}, map[cellKey]*Comparison{}
	var all []judged
	for _, c := range b.run.Cases {
		for _, m := range b.metrics[c.Name] {
			for _, conf := range b.run.Configurations {
				e := b.describe(c, conf, m)
				b.computed[cellKey{c.Suite, c.Name, conf.Name, m.Name}] = &e
			}
			all = append(all, b.comparisons(c, m)...)
			all = append(all, b.steps(c, m)...)
		}
	}
	b.families = judge(all, b.opts)
	for _, c := range b.run.Cases {
		for _, m := range b.metrics[c.Name] {
			b.mirror(c, m)
		}
	}
}

// comparisons compares one metric of a case with the baselines, each pair of
// configurations once. The family of a comparison with another baseline than the main one
// is its own.
func (b *builder) comparisons(c result.Case, m result.Metric) (all []judged) {
	for _, conf := range b.run.Configurations {
		e := b.at(c, conf.Name, m)
		self := slices.Index(b.baselines(), conf.Name)
		e.Comparisons = make([]Comparison, 0, len(b.baselines())) // the judged ones stay where they are
		for i, name := range b.baselines() {
			if i == self {
				continue
			}
			e.Comparisons = append(e.Comparisons, Comparison{Baseline: name, first: self < 0 || self > i})
			if comparison := &e.Comparisons[len(e.Comparisons)-1]; comparison.first {
				*comparison = b.compare(c, conf.Name, name, m)
				all = append(all, judged{e, comparison, familyOf(*e, name)})
			}
		}
	}
	return all
}

// mirror fills in the comparisons of pairs that were judged the other way round.
func (b *builder) mirror(c result.Case, m result.Metric) {
	for _, conf := range b.run.Configurations {
		e := b.at(c, conf.Name, m)
		for i, comparison := range e.Comparisons {
			if !comparison.first {
				e.Comparisons[i] = b.at(c, comparison.Baseline, m).against(conf.Name).mirror(*e, comparison.Baseline)
			}
		}
	}
}

// compare compares one metric of a case in a configuration with a baseline.
func (b *builder) compare(c result.Case, configuration, baseline string, m result.Metric) Comparison {
	return compare(b.side(c, configuration, m), b.side(c, baseline, m), b.run.Interleaved)
}

// at returns the estimate of one cell.
func (b *builder) at(c result.Case, configuration string, m result.Metric) *Estimate {
	return b.computed[cellKey{c.Suite, c.Name, configuration, m.Name}]
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
		case !hasConfiguration(run, s.Configuration):
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
		warnings = append(warnings, fmt.Sprintf("Left out: %s of %s.", plural(n, "sample"), what))
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

// groups splits the cases by table: the same suite, group and primary metric.
func (b *builder) groups() [][]result.Case {
	var order []string
	byKey := map[string][]result.Case{}
	for _, c := range b.run.Cases {
		key := strings.Join([]string{c.Suite, groupKey(c), c.Primary}, "\x00")
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

// group makes the i-th section of the report and the estimates of its cases.
func (b *builder) group(i int, cases []result.Case) (Group, []Estimate) {
	g := Group{ID: anchor(fmt.Sprint("g", i+1), groupKey(cases[0])), Title: groupTitle(cases[0])}
	families := map[string][]Estimate{}
	names := b.metricNames(cases)
	var all []Estimate
	for _, name := range names {
		families[name] = b.family(cases, name)
		all = append(all, families[name]...)
	}
	main := families[cases[0].Primary]
	if len(main) > 0 {
		g.add(b.mainTable(g, main))
	}
	g.add(b.publishedRatioTable(g, cases, families))
	tables, charts := b.distributions(g, cases, names)
	g.add(tables...)
	g.Charts = charts
	if measured(main) {
		if len(charts) == 0 { // a distribution shows its median too
			g.Charts = append(g.Charts, b.valueChart(g, main))
		}
		g.Charts = append(g.Charts, b.ratioCharts(g, main)...)
	}
	tables, charts = b.intervals(g, cases)
	g.add(tables...)
	g.Charts = append(g.Charts, charts...)
	g.add(b.minorTables(g, names, families)...)
	g.add(b.publishedUsageTable(g, cases, families))
	tables, charts = cpuTime(g, families)
	g.add(tables...)
	g.Charts = append(g.Charts, charts...)
	return g, all
}

// metricNames returns the metrics of cases, each once.
func (b *builder) metricNames(cases []result.Case) []string {
	var names []string
	for _, c := range cases {
		for _, m := range b.metrics[c.Name] {
			if !slices.Contains(names, m.Name) {
				names = append(names, m.Name)
			}
		}
	}
	return names
}

// family returns the estimates of one metric in every case and configuration.
func (b *builder) family(cases []result.Case, metric string) []Estimate {
	return b.estimates(cases, func(result.Case) string { return metric })
}

// estimates is family for the metric that metric chooses in each case. A case without
// the metric is left out.
func (b *builder) estimates(cases []result.Case, metric func(result.Case) string) []Estimate {
	var estimates []Estimate
	for _, c := range cases {
		m := metricNamed(b.metrics[c.Name], metric(c))
		if m == nil {
			continue
		}
		for _, conf := range b.run.Configurations {
			estimates = append(estimates, *b.at(c, conf.Name, *m))
		}
	}
	return estimates
}

// describe is the estimate of one cell, without comparisons.
func (b *builder) describe(c result.Case, conf result.Configuration, m result.Metric) Estimate {
	e := Estimate{
		Run: b.run.ID, Suite: c.Suite, Case: c.Name, Group: groupKey(c), Size: c.Size, Label: caseLabel(c), Tool: c.Tool,
		Configuration: conf.Name, Stack: conf.Stack, Accelerator: b.run.Accelerator, Metric: m.Name, Unit: m.Unit, Order: m.Order, Primary: m.Name == c.Primary,
	}
	e.describe(b.side(c, conf.Name, m).obs, b.opts.Confidence)
	e.doubtRate(b.side(c, conf.Name, result.Metric{Name: reached}).obs)
	if e.N == 0 && e.Missing == "" {
		e.Missing = b.whyMissing(c.Name, conf.Name)
	}
	return e
}

// side returns one cell as a side of a comparison.
func (b *builder) side(c result.Case, configuration string, m result.Metric) side {
	return side{b.cells[cellKey{c.Suite, c.Name, configuration, m.Name}], configuration}
}

// baselines returns the baselines that the run has as configurations.
func (b *builder) baselines() []string {
	var names []string
	for _, name := range b.run.Baselines {
		if hasConfiguration(b.run, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func hasConfiguration(run result.Run, name string) bool {
	return slices.ContainsFunc(run.Configurations, func(c result.Configuration) bool { return c.Name == name })
}

// whyMissing says why a case has no sample in a configuration.
func (b *builder) whyMissing(name, configuration string) string {
	for _, f := range b.run.Failures {
		if f.Case == name && f.Configuration == configuration {
			return fmt.Sprintf("missing: failed %d times: %s", f.Attempts, f.Error)
		}
	}
	if b.run.State != result.Complete {
		return "missing: not measured yet"
	}
	return "missing"
}
