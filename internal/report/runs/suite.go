package runs

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/scores"
)

// sections splits the cases by section of the report: one per group, or one per suite.
func (b *builder) sections() [][]result.Case {
	var all [][]result.Case
	of := map[string]int{}
	for _, g := range b.Groups() {
		i, known := of[g[0].Suite]
		switch {
		case !scores.OfSuites(b.Run) || len(g) > 1 || g[0].Size > 0:
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

// suiteGroup makes the section on the cases of a suite: a table of their primary
// metrics, whose p-values are corrected for each other, and one of the other metrics.
func (b *builder) suiteGroup(i int, cases []result.Case) (document.Group, []estimate.Estimate) {
	g := document.Group{ID: document.Anchor(fmt.Sprint("g", i+1), cases[0].Suite), Title: fmt.Sprintf("Suite %s: case by case", cases[0].Suite)}
	main := b.Estimates(cases, func(c result.Case) string { return c.Primary })
	var others []estimate.Estimate
	for _, name := range b.MetricNames(cases) {
		others = append(others, b.Estimates(cases, func(c result.Case) string {
			if c.Primary == name {
				return ""
			}
			return name
		})...)
	}
	if len(main) > 0 {
		g.Tables = append(g.Tables, b.suiteTable(g.ID+"-main", g.Title, main))
	}
	if estimate.Measured(main) {
		g.Charts = b.suiteCharts(g, main)
	}
	if estimate.Measured(others) {
		t := b.suiteTable(g.ID+"-minor", fmt.Sprintf("Suite %s: other metrics", cases[0].Suite), others)
		t.Minor = true
		g.Tables = append(g.Tables, t)
	}
	return g, slices.Concat(main, others)
}

// suiteTable lists estimates of different metrics, with their units.
func (b *builder) suiteTable(id, title string, estimates []estimate.Estimate) document.Table {
	minor := !estimates[0].Primary
	t := document.Table{ID: id, Title: title, Rows: make([][]document.Cell, len(estimates)), Notes: b.sparseNotes(estimates)}
	header := func(name string, text func(estimate.Estimate) string) {
		t.Column(document.Column{Name: name, Header: true}, func(i int) document.Cell {
			e := estimates[i]
			return document.Cell{Text: text(e), Repeat: i > 0 && estimates[i-1].Case == e.Case && estimates[i-1].Metric == e.Metric}
		})
	}
	header("case", func(e estimate.Estimate) string { return e.Case })
	for i, e := range estimates {
		if e.Label != e.Case {
			t.Rows[i][0].Remark = e.Label
		}
	}
	if minor {
		header("metric", func(e estimate.Estimate) string { return e.Metric })
	}
	t.Column(document.Column{Name: "unit, order"}, func(i int) document.Cell {
		e := estimates[i]
		return document.Cell{Text: naming.UnitAndOrder(e.Unit, e.Order), Repeat: t.Rows[i][0].Repeat}
	})
	estimate.ConfigurationColumn(&t, estimates)
	estimate.CountColumn(&t, "n", estimates, b.Run.Repetitions)
	estimate.CenterColumn(&t, "value", estimates)
	estimate.IntervalColumn(&t, estimates)
	for j, name := range b.Baselines() {
		estimate.RatioColumn(&t, "vs "+name, estimates, name)
		t.Column(document.Column{Name: "verdict", Console: true}, func(i int) document.Cell { return differenceCell(estimates[i], name, j == 0) })
	}
	estimate.DoubtColumn(&t, estimates)
	return t
}

// differenceCell is the verdict on e against a baseline in one word, with the doubts about e
// if asked for. Notes below the table report too few samples.
func differenceCell(e estimate.Estimate, baseline string, doubts bool) document.Cell {
	if e.N == 0 {
		return document.Cell{Text: "missing", Missing: true}
	}
	var parts []string
	if c := e.Against(baseline); c != nil && c.First && c.Verdict != stats.TooFew {
		parts = append(parts, c.Badge)
	}
	if doubts {
		parts = append(parts, estimate.DoubtsOf(e)...)
	}
	return document.Cell{Text: strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "; ")}
}

// sparseNotes are estimate.TooFewNotes, and count the comparisons with too few samples where
// others have enough.
func (b *builder) sparseNotes(estimates []estimate.Estimate) []string {
	all := estimate.TooFewAgainst(b.Baselines(), estimates)
	notes := estimate.TooFewNotes(all)
	for _, name := range document.Without(b.Baselines(), all) {
		few, judged := estimate.Verdicts(estimates, name)
		if few > 0 {
			notes = append(notes, fmt.Sprintf("No verdict against %s in %d of %d comparisons: it takes %d blocks that vary.", name, few, judged, stats.MinRepetitions))
		}
	}
	return notes
}

// suiteCharts draw every case relative to each baseline, inverted where lower is better.
func (b *builder) suiteCharts(g document.Group, estimates []estimate.Estimate) []document.Chart {
	var charts []document.Chart
	for i, baseline := range b.Baselines() {
		c := document.Chart{ID: fmt.Sprintf("%s-ratio-%d", g.ID, i+1), Kind: document.Ratios,
			Title:      fmt.Sprintf("%s, relative to %s%s", g.Title, baseline, estimate.WithLevel(estimates, baseline)),
			Axis:       fmt.Sprintf("ratio to %s, inverted where lower is better (above 1 is better)", baseline),
			Categories: estimate.EachCase(estimates, func(e estimate.Estimate) string { return e.Case })}
		if estimate.AddRatios(&c, b.Run, estimates, baseline, estimate.Benefit) {
			charts = append(charts, c)
		}
	}
	return charts
}
