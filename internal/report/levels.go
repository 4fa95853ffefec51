package report

import (
	"fmt"
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// Step compares an Estimate with the level of virtualization below, as FitzGerald 2014,
// Tables 5-14. Relative numbers are fractions.
type Step struct {
	Level         int         `json:"level"`           // hypervisors under the operating system
	Below         string      `json:"below,omitempty"` // the configuration one level below, none at the lowest
	RelStdErr     Number      `json:"relative_stderr"` // standard error over the mean
	Change        Number      `json:"change"`          // of the mean against that of Below: the thesis' ΔL
	VCPUs         int         `json:"vcpus,omitempty"` // set when the levels have different numbers
	PerVCPU       Number      `json:"per_vcpu"`        // mean over VCPUs, of throughput only
	ChangePerVCPU Number      `json:"change_per_vcpu"`
	T             Number      `json:"t"` // the thesis' test, Welch's of the means, with the sign of Change
	DF            Number      `json:"df"`
	P             Number      `json:"p"`
	Comparison    *Comparison `json:"comparison,omitempty"` // with Below
	Published     []Published `json:"published,omitempty"`
}

// Metrics of the thesis: "transactional throughput and application response
// time" (FitzGerald 2014, §3.0).
const (
	throughput = "throughput"
	response   = "latency_mean"
)

// levelMetrics are the metrics of the thesis that a case has, else its first metric.
func (b *builder) levelMetrics(c result.Case) []result.Metric {
	var metrics []result.Metric
	for _, name := range []string{throughput, response} {
		if m := metricNamed(b.metrics[c.Name], name); m != nil {
			metrics = append(metrics, *m)
		}
	}
	if len(metrics) == 0 && len(b.metrics[c.Name]) > 0 {
		metrics = b.metrics[c.Name][:1]
	}
	return metrics
}

// leveled is one case by level: for each metric one estimate per row.
type leveled struct {
	id      string
	of      result.Case
	metrics []result.Metric
	rows    []levelRow
	cells   [][]*Estimate
}

// levels makes one section per case by level of virtualization, when the run has
// configurations at several levels. estimates are those of the i-th group of cases; each
// one in a section gets its Step.
func (b *builder) levels(i int, cases []result.Case, estimates []Estimate) []Group {
	nestings := nestings(b.run)
	if len(nestings) == 0 {
		return nil
	}
	var groups []Group
	var all []leveled
	for j, c := range cases {
		l := leveled{id: fmt.Sprintf("g%d-levels-%d", i+1, j+1), of: c, metrics: b.levelMetrics(c), rows: levelRows(nestings)}
		if !b.fill(&l, estimates) {
			continue
		}
		l.addPublished(b.opts.Papers.Levels)
		if b.tabled(cases) && ofTableOne(b.run) {
			all = append(all, l)
			continue
		}
		g := Group{ID: l.id, Title: caseTitle(c) + ": levels of virtualization"}
		for m, family := range l.cells {
			g.Tables = append(g.Tables, b.levelTable(l, m))
			if slices.ContainsFunc(family, func(e *Estimate) bool { return e.N > 0 }) {
				g.Charts = append(g.Charts, l.chart(m, nestings))
			}
		}
		g.add(b.stepTable(l), l.publishedTable())
		groups = append(groups, g)
	}
	if len(all) > 0 {
		groups = append(groups, b.suiteLevels(fmt.Sprintf("g%d-levels", i+1), all))
	}
	return groups
}

// fill finds the estimates of l and makes their steps. It reports whether any estimate has
// samples.
func (b *builder) fill(l *leveled, estimates []Estimate) bool {
	some := false
	for _, m := range l.metrics {
		family := make([]*Estimate, len(l.rows))
		for i, r := range l.rows {
			at := slices.IndexFunc(estimates, func(e Estimate) bool {
				return e.Suite == l.of.Suite && e.Case == l.of.Name && e.Configuration == r.name && e.Metric == m.Name
			})
			e := &estimates[at]
			some = some || e.N > 0
			e.Step = newStep(*e, r)
			family[i] = e
		}
		for i, r := range l.rows {
			if below := l.below(family, i); below != nil {
				family[i].Step.compare(*family[i], *below, r.belowVCPUs)
				family[i].Step.Comparison = b.step(l.of, m, r)
			}
		}
		l.cells = append(l.cells, family)
	}
	return some
}

// steps compares one metric of a case with the level of virtualization below, where no
// comparison with a baseline does.
func (b *builder) steps(c result.Case, m result.Metric) (all []judged) {
	for _, r := range levelRows(nestings(b.run)) {
		e := b.at(c, r.name, m)
		if r.below == "" || e.against(r.below) != nil {
			continue
		}
		comparison := b.compare(c, r.name, r.below, m)
		b.below[cellKey{c.Suite, c.Name, r.name, m.Name}] = &comparison
		all = append(all, judged{e, &comparison, familyOf(*e, "the level below")})
	}
	return all
}

// step returns the comparison of row r with the level below.
func (b *builder) step(c result.Case, m result.Metric, r levelRow) *Comparison {
	if comparison := b.at(c, r.name, m).against(r.below); comparison != nil {
		return comparison
	}
	return b.below[cellKey{c.Suite, c.Name, r.name, m.Name}]
}

// below returns the estimate of the level below row i, nil at the lowest level.
func (l *leveled) below(family []*Estimate, i int) *Estimate {
	j := slices.IndexFunc(l.rows, func(r levelRow) bool { return r.name == l.rows[i].below })
	if j < 0 {
		return nil
	}
	return family[j]
}

// newStep is the step of e before it is compared.
func newStep(e Estimate, r levelRow) *Step {
	s := &Step{Level: r.level, Below: r.below, VCPUs: r.vcpus, RelStdErr: Number(e.moments().RelStdErr()),
		Change: missing, PerVCPU: missing, ChangePerVCPU: missing, T: missing, DF: missing, P: missing}
	if r.vcpus > 0 && e.Metric == throughput {
		s.PerVCPU = e.Mean / Number(r.vcpus)
	}
	return s
}

// moments are what Welch's test needs of e.
func (e Estimate) moments() stats.Moments {
	return stats.Moments{N: e.N, Mean: float64(e.Mean), StdErr: float64(e.StdErr)}
}

// compare compares e with the level below, which has vcpus vCPUs.
func (s *Step) compare(e, below Estimate, vcpus int) {
	s.Change = Number(e.moments().RelativeChange(below.moments()))
	if s.PerVCPU.Defined() {
		base := below.Mean / Number(vcpus)
		s.ChangePerVCPU = (s.PerVCPU - base) / base
	}
	welch, err := stats.Welch(e.moments(), below.moments())
	if err != nil { // too few values, or none that vary: there is no test
		return
	}
	s.T, s.DF, s.P = Number(welch.Statistic), Number(welch.DF), Number(welch.P)
}

// steps calls f for every pair of adjacent levels, metric by metric.
func (l *leveled) steps(f func(e, below *Estimate)) {
	for _, family := range l.cells {
		for i, e := range family {
			if below := l.below(family, i); below != nil {
				f(e, below)
			}
		}
	}
}

// sized reports whether the levels differ in their number of vCPUs.
func (l *leveled) sized() bool {
	return slices.ContainsFunc(l.rows, func(r levelRow) bool { return r.vcpus > 0 })
}

// pMeaning explains p.
const pMeaning = stats.PMeaning + ". It is not the probability that the means are equal."

// values copies estimates.
func values(estimates []*Estimate) []Estimate {
	var all []Estimate
	for _, e := range estimates {
		all = append(all, *e)
	}
	return all
}

// estimate returns the estimate of the m-th metric in a configuration.
func (l *leveled) estimate(m int, configuration string) *Estimate {
	return l.cells[m][slices.IndexFunc(l.rows, func(r levelRow) bool { return r.name == configuration })]
}
