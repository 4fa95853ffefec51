package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// sections splits the cases by section of the report: one per group, or one per suite.
func (b *builder) sections() [][]result.Case {
	var all [][]result.Case
	of := map[string]int{}
	for _, g := range b.groups() {
		i, known := of[g[0].Suite]
		switch {
		case !ofSuites(b.run) || len(g) > 1 || g[0].Size > 0:
			all = append(all, g)
		case known:
			all[i] = append(all[i], g...)
		default:
			of[g[0].Suite] = len(all)
			all = append(all, g)
		}
	}
	return all
}

// section makes the i-th section of the report, and its estimates.
func (b *builder) section(i int, cases []result.Case) (Group, []Estimate) {
	if b.tabled(cases) {
		return b.suiteGroup(i, cases)
	}
	return b.group(i, cases)
}

// tabled reports whether cases are different cases of a suite, which share a table.
func (b *builder) tabled(cases []result.Case) bool {
	return ofSuites(b.run) && len(cases) > 1 && !swept(cases)
}

// suiteGroup makes the section on the cases of a suite: a table of their primary
// metrics, whose p-values are corrected for each other, and one of the other metrics.
func (b *builder) suiteGroup(i int, cases []result.Case) (Group, []Estimate) {
	g := Group{ID: anchor(fmt.Sprint("g", i+1), cases[0].Suite), Title: fmt.Sprintf("Suite %s: case by case", cases[0].Suite)}
	main := b.estimates(cases, func(c result.Case) string { return c.Primary })
	var others []Estimate
	for _, name := range b.metricNames(cases) {
		others = append(others, b.estimates(cases, func(c result.Case) string {
			if c.Primary == name {
				return ""
			}
			return name
		})...)
	}
	if len(main) > 0 {
		g.Tables = append(g.Tables, b.suiteTable(g.ID+"-main", g.Title, main))
	}
	if measured(main) {
		g.Charts = b.suiteCharts(g, main)
	}
	if measured(others) {
		t := b.suiteTable(g.ID+"-minor", fmt.Sprintf("Suite %s: other metrics", cases[0].Suite), others)
		t.Minor = true
		g.Tables = append(g.Tables, t)
	}
	return g, slices.Concat(main, others)
}

// suiteTable lists estimates of different metrics, with their units.
func (b *builder) suiteTable(id, title string, estimates []Estimate) Table {
	minor := !estimates[0].Primary
	t := Table{ID: id, Title: title, Rows: make([][]Cell, len(estimates)), Notes: b.sparseNotes(estimates)}
	header := func(name string, text func(Estimate) string) {
		t.column(Column{Name: name, Header: true}, func(i int) Cell {
			e := estimates[i]
			return Cell{Text: text(e), Repeat: i > 0 && estimates[i-1].Case == e.Case && estimates[i-1].Metric == e.Metric}
		})
	}
	header("case", func(e Estimate) string { return e.Case })
	for i, e := range estimates {
		if e.Label != e.Case {
			t.Rows[i][0].Remark = e.Label
		}
	}
	if minor {
		header("metric", func(e Estimate) string { return e.Metric })
	}
	t.column(Column{Name: "unit, order"}, func(i int) Cell {
		e := estimates[i]
		return Cell{Text: unitAndOrder(e.Unit, e.Order), Repeat: t.Rows[i][0].Repeat}
	})
	t.configurations(estimates)
	t.counts("n", estimates, b.run.Repetitions)
	t.centers("value", estimates)
	t.intervals(estimates, b.opts.Confidence)
	for j, name := range b.baselines() {
		t.ratios("vs "+name, estimates, name)
		t.column(Column{Name: "verdict", Console: true}, func(i int) Cell { return differenceCell(estimates[i], name, j == 0) })
	}
	t.doubts(estimates)
	return t
}

// unitAndOrder is a unit, unless it is 1, and an order.
func unitAndOrder(unit string, order result.Order) string {
	if unit == "" || unit == "1" {
		return string(order)
	}
	return shown(unit) + ", " + string(order)
}

// differenceCell is the verdict on e against a baseline in one word, with the doubts about e
// if asked for. Notes below the table report too few samples.
func differenceCell(e Estimate, baseline string, doubts bool) Cell {
	if e.N == 0 {
		return Cell{Text: "missing", Missing: true}
	}
	var parts []string
	if c := e.against(baseline); c != nil && c.first && c.Verdict != stats.TooFew {
		parts = append(parts, c.Badge)
	}
	if doubts {
		parts = append(parts, doubtsOf(e)...)
	}
	return Cell{Text: strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "; ")}
}

// badgeCell is the verdict of c in a word or two.
func badgeCell(c *Comparison) Cell {
	if c == nil || c.Badge == "" {
		return noValue
	}
	return Cell{Badge: c.Badge, Short: c.Badge}
}

// sparseNotes are tooFewNotes, and count the comparisons with too few samples where
// others have enough.
func (b *builder) sparseNotes(estimates []Estimate) []string {
	all := tooFewAgainst(b.baselines(), estimates)
	notes := tooFewNotes(all)
	for _, name := range without(b.baselines(), all) {
		few, judged := verdicts(estimates, name)
		if few > 0 {
			notes = append(notes, fmt.Sprintf("No verdict against %s in %d of %d comparisons: it takes %d blocks that vary.", name, few, judged, stats.MinRepetitions))
		}
	}
	return notes
}

// suiteCharts draw every case relative to each baseline, inverted where lower is better.
func (b *builder) suiteCharts(g Group, estimates []Estimate) []Chart {
	var charts []Chart
	for i, baseline := range b.baselines() {
		c := Chart{ID: fmt.Sprintf("%s-ratio-%d", g.ID, i+1), Kind: Ratios,
			Title:      fmt.Sprintf("%s, relative to %s%s", g.Title, baseline, withLevel(estimates, baseline)),
			Axis:       fmt.Sprintf("ratio to %s, inverted where lower is better (above 1 is better)", baseline),
			Categories: eachCase(estimates, func(e Estimate) string { return e.Case })}
		if b.addRatios(&c, estimates, baseline, benefit) {
			charts = append(charts, c)
		}
	}
	return charts
}

// benefit is the ratio of e to a baseline, inverted where lower is better.
func benefit(e Estimate, c Comparison) (Number, Interval) {
	if e.Order == result.HIB {
		return c.Ratio, c.Interval
	}
	return inverse(c.Ratio), Interval{inverse(c.Interval.High), inverse(c.Interval.Low), c.Interval.Confidence}
}

// inverse returns 1/n, missing where there is none.
func inverse(n Number) Number {
	if n == 0 {
		return missing
	}
	return 1 / n
}
