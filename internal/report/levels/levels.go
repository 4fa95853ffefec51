// Package levels builds the sections of a report on levels of virtualization, as FitzGerald
// 2014.
package levels

import (
	"fmt"
	"slices"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/papers"
)

// Metrics of the thesis: "transactional throughput and application response
// time" (FitzGerald 2014, §3.0).
const (
	throughput = "throughput"
	response   = "latency_mean"
)

// levelMetrics are the metrics of the thesis that a case has, else its first metric.
func (b *section) levelMetrics(c result.Case) []result.Metric {
	var metrics []result.Metric
	for _, name := range []string{throughput, response} {
		if m := estimate.MetricNamed(b.Metrics[c.Name], name); m != nil {
			metrics = append(metrics, *m)
		}
	}
	if len(metrics) == 0 && len(b.Metrics[c.Name]) > 0 {
		metrics = b.Metrics[c.Name][:1]
	}
	return metrics
}

// leveledCase is one case by level: for each metric one estimate per row.
type leveledCase struct {
	id      string
	of      result.Case
	metrics []result.Metric
	rows    []levelRow
	cells   [][]*estimate.Estimate
}

// section is a run at several levels, with what papers print of such runs.
type section struct {
	*estimate.Set
	printed []papers.SysbenchRow
}

// Pairs are the configurations of a run, each with the one at the level of virtualization
// below.
func Pairs(run result.Run) (pairs []estimate.Pair) {
	for _, r := range levelRows(nestings(run)) {
		if r.below != "" {
			pairs = append(pairs, estimate.Pair{Configuration: r.name, Below: r.below})
		}
	}
	return pairs
}

// Sections makes one section per case by level of virtualization, or with together one for
// all cases, when the run has configurations at several levels. estimates are those of the
// cases; each one in a section gets its Step. The identifiers of the sections begin with id.
func Sections(set *estimate.Set, printed []papers.SysbenchRow, id string, cases []result.Case, estimates []estimate.Estimate, together bool) []document.Group {
	b := section{set, printed}
	nestings := nestings(b.Run)
	if len(nestings) == 0 {
		return nil
	}
	var groups []document.Group
	var all []leveledCase
	for j, c := range cases {
		l := leveledCase{id: fmt.Sprintf("%s-%d", id, j+1), of: c, metrics: b.levelMetrics(c), rows: levelRows(nestings)}
		if !b.fill(&l, estimates) {
			continue
		}
		l.addPublished(b.printed)
		if together {
			all = append(all, l)
		} else {
			groups = append(groups, b.caseGroup(l, nestings))
		}
	}
	if len(all) > 0 {
		groups = append(groups, b.suiteLevels(id, all))
	}
	return groups
}

func (b *section) caseGroup(l leveledCase, nestings []nesting) document.Group {
	g := document.Group{ID: l.id, Title: naming.Case(l.of) + ": levels of virtualization"}
	for m, family := range l.cells {
		g.Tables = append(g.Tables, b.levelTable(l, m))
		if slices.ContainsFunc(family, func(e *estimate.Estimate) bool { return e.N > 0 }) {
			g.Charts = append(g.Charts, l.chart(m, nestings))
		}
	}
	g.Add(b.stepTable(l), l.publishedTable())
	return g
}

// fill finds the estimates of l and makes their steps. It reports whether any estimate has
// samples.
func (b *section) fill(l *leveledCase, estimates []estimate.Estimate) bool {
	some := false
	for _, m := range l.metrics {
		family := make([]*estimate.Estimate, len(l.rows))
		for i, r := range l.rows {
			at := slices.IndexFunc(estimates, func(e estimate.Estimate) bool {
				return e.Suite == l.of.Suite && e.Case == l.of.Name && e.Configuration == r.name && e.Metric == m.Name
			})
			e := &estimates[at]
			some = some || e.N > 0
			e.Step = newStep(*e, r)
			family[i] = e
		}
		for i, r := range l.rows {
			if below := l.below(family, i); below != nil {
				compareStep(family[i].Step, *family[i], *below, r.belowVCPUs)
				family[i].Step.Comparison = b.Step(l.of, m, estimate.Pair{Configuration: r.name, Below: r.below})
			}
		}
		l.cells = append(l.cells, family)
	}
	return some
}

// below returns the estimate of the level below row i, nil at the lowest level.
func (l *leveledCase) below(family []*estimate.Estimate, i int) *estimate.Estimate {
	j := slices.IndexFunc(l.rows, func(r levelRow) bool { return r.name == l.rows[i].below })
	if j < 0 {
		return nil
	}
	return family[j]
}

// newStep is the step of e before it is compared.
func newStep(e estimate.Estimate, r levelRow) *estimate.Step {
	s := &estimate.Step{Level: r.level, Below: r.below, VCPUs: r.vcpus, RelStdErr: document.Number(moments(e).RelStdErr()),
		Change: document.Missing, PerVCPU: document.Missing, ChangePerVCPU: document.Missing, T: document.Missing, DF: document.Missing, P: document.Missing}
	if r.vcpus > 0 && e.Metric == throughput {
		s.PerVCPU = e.Mean / document.Number(r.vcpus)
	}
	return s
}

// moments are what Welch's test needs of e.
func moments(e estimate.Estimate) stats.Moments {
	return stats.Moments{N: e.N, Mean: float64(e.Mean), StdErr: float64(e.StdErr)}
}

// compareStep compares e with the level below, which has vcpus vCPUs.
func compareStep(s *estimate.Step, e, below estimate.Estimate, vcpus int) {
	s.Change = document.Number(moments(e).RelativeChange(moments(below)))
	if s.PerVCPU.Defined() {
		base := below.Mean / document.Number(vcpus)
		s.ChangePerVCPU = (s.PerVCPU - base) / base
	}
	welch, err := stats.Welch(moments(e), moments(below))
	if err != nil { // too few values, or none that vary: there is no test
		return
	}
	s.T, s.DF, s.P = document.Number(welch.Statistic), document.Number(welch.DF), document.Number(welch.P)
}

// steps calls f for every pair of adjacent levels, metric by metric.
func (l *leveledCase) steps(f func(e, below *estimate.Estimate)) {
	for _, family := range l.cells {
		for i, e := range family {
			if below := l.below(family, i); below != nil {
				f(e, below)
			}
		}
	}
}

// sized reports whether the levels differ in their number of vCPUs.
func (l *leveledCase) sized() bool {
	return slices.ContainsFunc(l.rows, func(r levelRow) bool { return r.vcpus > 0 })
}

func values(estimates []*estimate.Estimate) []estimate.Estimate {
	var all []estimate.Estimate
	for _, e := range estimates {
		all = append(all, *e)
	}
	return all
}

// estimate returns the estimate of the m-th metric in a configuration.
func (l *leveledCase) estimate(m int, configuration string) *estimate.Estimate {
	return l.cells[m][slices.IndexFunc(l.rows, func(r levelRow) bool { return r.name == configuration })]
}

// Methods explain the sections of a run at several levels; of other runs there are none.
func Methods(run result.Run) []document.Method {
	if len(nestings(run)) == 0 {
		return nil
	}
	return []document.Method{{Term: "level, ΔL", Text: "The level is the number of hypervisors under the operating system, as in FitzGerald 2014. ΔL is the change of the mean against the level below, among configurations with the same container engine and the same options, apart from the size of the guest. Where a level has several such configurations, the first is compared with the first of the level below, the second with the second, or with the last one."}}
}
