package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/score"
)

// scoreGroup is the section of a report on a suite's scores.
func (b *builder) scoreGroup(s scored) Group {
	g := Group{ID: s.id, Title: fmt.Sprintf("Suite %s: scores", s.sum.Name), Tables: []Table{b.scoreTable(s)}}
	if t, ok := b.publishedScoreTable(s); ok {
		g.Tables = append(g.Tables, t)
	}
	g.Charts = b.scoreCharts(s)
	return g
}

// scoreTable sets a suite out as Lubomski et al., Tables 5 and 6: for each case
// the scores with the results in brackets, beneath them the totals.
func (b *builder) scoreTable(s scored) Table {
	t := Table{
		ID: s.id + "-table", Setting: setting(b.run),
		Title:   fmt.Sprintf("Suite %s: score of each case, in brackets the mean", s.sum.Name),
		Columns: []Column{{Name: "case", Header: true}, {Name: "unit, order", Header: true}},
	}
	for _, conf := range b.run.Configurations {
		t.Columns = append(t.Columns, Column{Name: conf.Name, Numeric: true})
	}
	for _, c := range s.cases {
		row := []Cell{{Text: c.Name}, {Text: b.unitAndOrder(c)}}
		for _, conf := range b.run.Configurations {
			row = append(row, s.scoreCell(c.Name, conf.Name))
		}
		t.Rows = append(t.Rows, row)
	}
	above := len(t.Rows)
	if s.said.Cases > 0 {
		t.Rows = append(t.Rows,
			s.totalRow("total", func(o Total) Cell { return numeric(o.Total, decimal(o.Total, 3)) }),
			s.totalRow("total of rounded scores", func(o Total) Cell { return numeric(o.Rounded, decimal(o.Rounded, 2)) }),
			s.totalRow("geometric mean", geoMeanCell))
	}
	t.Sums = len(t.Rows) - above
	t.Notes = b.scoreNotes(s)
	return t
}

// unitAndOrder says how to read the results of c.
func (b *builder) unitAndOrder(c result.Case) string {
	m := metricNamed(b.metrics[c.Name], c.Primary)
	if m == nil {
		return none
	}
	return unitAndOrder(m.Unit, m.Order)
}

func (s *scored) scoreCell(name, configuration string) Cell {
	cell, has := s.cell(name, configuration)
	if !has {
		return Cell{Text: none, Missing: true}
	}
	return Cell{Text: fmt.Sprintf("%.2f (%s)", cell.Score, number(Number(cell.Mean)))}
}

// totalRow is a row of one figure for each configuration.
func (s *scored) totalRow(name string, cell func(Total) Cell) []Cell {
	row := []Cell{{Text: name}, {Text: string(result.HIB)}}
	for _, t := range s.said.Totals {
		row = append(row, cell(t))
	}
	return row
}

// geoMeanCell has the interval on a line of its own where there are lines.
func geoMeanCell(t Total) Cell {
	cell := numeric(t.GeoMean, decimal(t.GeoMean, 3))
	if t.Interval.Low.Defined() {
		cell.Remark = bracket(t.Interval, 3, score.Confidence)
		cell.Short = cell.Text + " " + cell.Remark
	}
	return cell
}

// scoreNotes say what a table of scores lacks, and what its totals hide.
func (b *builder) scoreNotes(s scored) []string {
	var notes []string
	if s.said.Cases > 0 {
		notes = append(notes, fmt.Sprintf("The geometric mean is of the ratios to %s over the %s that count, inverted where lower is better: above 1 is better. "+
			"In brackets its %s interval over cases: it says how the ratio differs from case to case.", s.sum.Baseline, plural(s.said.Cases, "case"), percent(score.Confidence)))
	}
	notes = append(notes, b.missingNotes(s)...)
	for _, w := range s.sum.Warnings {
		notes = append(notes, "Warning: "+w.Text+".")
	}
	return notes
}

// missingNotes tell of every cell without a score, and why it has none.
func (b *builder) missingNotes(s scored) []string {
	var notes, empty []string
	for _, conf := range b.run.Configurations {
		if !slices.Contains(s.sum.Configurations, conf.Name) {
			empty = append(empty, conf.Name)
		}
	}
	if len(empty) > 0 {
		notes = append(notes, fmt.Sprintf("No case has results in %s: the scores are over the others.", list(empty)))
	}
	for _, c := range s.cases {
		var reasons []string
		for _, m := range s.said.Missing {
			if m.Case == c.Name && !slices.Contains(empty, m.Configuration) {
				reasons = append(reasons, fmt.Sprintf("%s (%s)", m.Configuration, s.whyMissing(m)))
			}
		}
		if len(reasons) > 0 {
			notes = append(notes, fmt.Sprintf("%s has no score in %s: it counts in no total.", c.Name, list(reasons)))
		}
	}
	return notes
}

// whyMissing says why a case has no score in a configuration.
func (s *scored) whyMissing(m score.Missing) string {
	e := s.cells[[2]string{m.Case, m.Configuration}]
	switch {
	case e == nil:
		return "it has no primary metric"
	case e.N > 0:
		return fmt.Sprintf("its mean %s %s is no positive number", number(e.Mean), e.Unit)
	}
	return e.Missing
}

// scoreHeadlines say in plain words what a suite amounts to.
func scoreHeadlines(s scored) []string {
	if s.said.Cases == 0 {
		return []string{fmt.Sprintf("Suite %s: no case has results in all configurations, so there are no totals.", s.sum.Name)}
	}
	subject := fmt.Sprintf("Suite %s, %s", s.sum.Name, plural(s.said.Cases, "case"))
	var ratios []string
	ranked := slices.DeleteFunc(slices.Clone(s.said.Totals), func(t Total) bool { return !t.Total.Defined() })
	for _, t := range ranked {
		if t.Configuration != s.sum.Baseline && t.GeoMean.Defined() {
			ratios = append(ratios, fmt.Sprintf("%s× with %s%s", ratio(t.GeoMean), t.Configuration, span(t.Interval)))
		}
	}
	var lines []string
	if len(ratios) > 0 {
		lines = append(lines, fmt.Sprintf("%s: against %s, the geometric mean of the ratios (above 1 is better) is %s.", subject, s.sum.Baseline, list(ratios)))
	}
	slices.SortStableFunc(ranked, func(a, b Total) int { return compareBool(a.Total > b.Total, b.Total > a.Total) })
	var totals []string
	for _, t := range ranked {
		totals = append(totals, fmt.Sprintf("%s %s", t.Configuration, decimal(t.Total, 2)))
	}
	return append(lines, fmt.Sprintf("%s, by total score: %s.", subject, strings.Join(totals, ", ")))
}

// scoreFigures are the geometric means of a suite.
func scoreFigures(s scored) []KeyFigure {
	var figures []KeyFigure
	for _, t := range s.said.Totals {
		if t.Configuration != s.sum.Baseline && t.GeoMean.Defined() {
			figures = append(figures, KeyFigure{
				Value:  ratio(t.GeoMean) + "×",
				Label:  t.Configuration + " / " + s.sum.Baseline,
				Detail: fmt.Sprintf("suite %s, geometric mean of %s, above 1 is better%s", s.sum.Name, plural(s.said.Cases, "case"), span(t.Interval)),
				Series: t.Configuration,
			})
		}
	}
	return figures
}
