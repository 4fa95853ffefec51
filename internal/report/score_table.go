package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/score"
)

// group is the section of a report on the scores of s.
func (s *scored) group() Group {
	g := Group{ID: s.id, Title: fmt.Sprintf("Suite %s: scores", s.sum.Name), Tables: []Table{s.table()}, Charts: s.charts()}
	g.add(s.publishedTable())
	return g
}

// table lists a suite as in Lubomski et al., Tables 5 and 6: for each case the scores
// with the results in brackets, below them the totals.
func (s *scored) table() Table {
	t := Table{
		ID:      s.id + "-table",
		Title:   fmt.Sprintf("Suite %s: score of each case, in brackets the mean", s.sum.Name),
		Columns: []Column{{Name: "case", Header: true}, {Name: "unit, order", Header: true}},
	}
	for _, conf := range s.configurations {
		t.Columns = append(t.Columns, Column{Name: conf.Name, Numeric: true})
	}
	for _, c := range s.cases {
		row := textRow(c.name, c.unitAndOrder)
		for _, conf := range s.configurations {
			row = append(row, s.scoreCell(c.name, conf.Name))
		}
		t.Rows = append(t.Rows, row)
	}
	above := len(t.Rows)
	if s.said.Cases > 0 {
		t.Rows = append(t.Rows,
			s.totalRow("total", totalCell),
			s.totalRow("total of rounded scores", func(o Total) Cell { return numeric(o.Rounded, decimal(o.Rounded, 2)) }),
			s.totalRow("geometric mean", geoMeanCell))
	}
	t.Sums = len(t.Rows) - above
	t.Notes = s.notes()
	return t
}

func (s *scored) scoreCell(name, configuration string) Cell {
	cell, _, has := s.cell(name, configuration)
	if !has {
		return noValue
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

// totalCell says which totals are partial.
func totalCell(t Total) Cell {
	cell := numeric(t.Total, decimal(t.Total, 3))
	if t.partial > 0 {
		cell.Remark = fmt.Sprintf("partial, of %s", plural(t.partial, "case"))
		cell.Short = fmt.Sprintf("%s (%s)", cell.Text, cell.Remark)
	}
	return cell
}

// geoMeanCell is a geometric mean with its interval as a remark.
func geoMeanCell(t Total) Cell {
	cell := numeric(t.GeoMean, decimal(t.GeoMean, 3))
	if t.Interval.Low.Defined() {
		cell.Remark = bracket(t.Interval, 3)
		cell.Short = cell.Text + " " + cell.Remark
	}
	return cell
}

// notes say what a table of scores lacks, and what its totals hide.
func (s *scored) notes() []string {
	var notes []string
	if s.said.Cases > 0 && s.sum.Baseline != "" {
		note := fmt.Sprintf("The geometric mean is over the ratios to %s in %s, inverted where lower is better: above 1 is better.", s.sum.Baseline, plural(s.said.Cases, "case"))
		if s.hasIntervals() {
			note += fmt.Sprintf(" In brackets is its %s interval over cases: how much the ratio differs from case to case.", percent(score.Confidence))
		}
		notes = append(notes, note)
	}
	notes = append(notes, s.missingNotes()...)
	for _, w := range s.sum.Warnings {
		notes = append(notes, "Warning: "+w.Text+".")
	}
	return notes
}

// missingNotes name every cell without a score, and say why it has none.
func (s *scored) missingNotes() []string {
	var notes, empty []string
	for _, conf := range s.configurations {
		if !slices.Contains(s.sum.Configurations, conf.Name) {
			empty = append(empty, conf.Name)
		}
	}
	if len(empty) > 0 {
		notes = append(notes, fmt.Sprintf("%s: no results in any case. The scores are relative to the other configurations.", list(empty)))
	}
	for _, c := range s.cases {
		var reasons []string
		for _, m := range s.said.Missing {
			if m.Case == c.name && !slices.Contains(empty, m.Configuration) {
				reasons = append(reasons, fmt.Sprintf("%s (%s)", m.Configuration, s.whyMissing(m)))
			}
		}
		effect := "it counts in no total"
		if i := slices.IndexFunc(s.sum.Cases, func(o score.Case) bool { return o.Name == c.name }); i >= 0 && s.sum.Cases[i].Counted {
			effect = "the totals of these are partial"
		}
		if len(reasons) > 0 {
			notes = append(notes, fmt.Sprintf("%s has no score in %s: %s.", c.name, list(reasons), effect))
		}
	}
	return notes
}

// whyMissing says why a case has no score in a configuration.
func (s *scored) whyMissing(m score.Missing) string {
	e := s.cells[[2]string{m.Case, m.Configuration}]
	switch {
	case len(s.cells) == 0:
		return "no result"
	case e == nil:
		return "no primary metric"
	case e.N > 0:
		return fmt.Sprintf("its mean %s %s is not positive", number(e.Mean), e.Unit)
	}
	return e.Missing
}

// hasIntervals reports whether a geometric mean has an interval.
func (s *scored) hasIntervals() bool {
	return slices.ContainsFunc(s.said.Totals, func(t Total) bool { return t.Interval.Low.Defined() })
}

// headlines are the findings of a suite in plain words.
func (s *scored) headlines() []string {
	if s.said.Cases == 0 {
		return []string{fmt.Sprintf("Suite %s has no totals: no case has results in every configuration.", s.sum.Name)}
	}
	subject := fmt.Sprintf("Suite %s, %s", s.sum.Name, plural(s.said.Cases, "case"))
	var ratios []string
	remark := "too few cases for intervals"
	if s.hasIntervals() {
		remark = "intervals over cases"
	}
	ranked := slices.DeleteFunc(slices.Clone(s.said.Totals), func(t Total) bool { return !t.Total.Defined() })
	for _, t := range ranked {
		if t.Configuration != s.sum.Baseline && t.GeoMean.Defined() {
			ratios = append(ratios, fmt.Sprintf("%s with %s", timesWithInterval(t.GeoMean, t.Interval), t.Configuration))
		}
	}
	var lines []string
	if len(ratios) > 0 {
		lines = append(lines, fmt.Sprintf("%s: the geometric mean of the ratios to %s (above 1 is better; %s) is %s.", subject, s.sum.Baseline, remark, list(ratios)))
	}
	slices.SortStableFunc(ranked, func(a, b Total) int { return cmp.Compare(b.Total, a.Total) })
	var totals []string
	for _, t := range ranked {
		totals = append(totals, fmt.Sprintf("%s %s", t.Configuration, decimal(t.Total, 2)))
	}
	return append(lines, fmt.Sprintf("%s, by total score: %s.", subject, strings.Join(totals, ", ")))
}

// figures are the geometric means of a suite, with the verdicts on its cases. A mean of cases
// of which most are not known is no figure to remember.
func (s *scored) figures(tallies []tally) []KeyFigure {
	var figures []KeyFigure
	for _, t := range s.said.Totals {
		if t.Configuration != s.sum.Baseline && t.GeoMean.Defined() {
			badge, open := "", false
			if i := slices.IndexFunc(tallies, func(o tally) bool { return o.name == t.Configuration }); i >= 0 {
				badge, open = tallies[i].String(), !tallies[i].decided()
			}
			figures = append(figures, KeyFigure{
				Badge: badge, Open: open,
				Value:  ratio(t.GeoMean) + "×",
				Label:  t.Configuration + " / " + s.sum.Baseline,
				Detail: fmt.Sprintf("suite %s, geometric mean of %s, above 1 is better%s", s.sum.Name, plural(s.said.Cases, "case"), overCases(t.Interval)),
				Series: t.Configuration,
			})
		}
	}
	return figures
}

// overCases prints the interval of a geometric mean after a comma, if there is one.
func overCases(i Interval) string {
	if !i.Low.Defined() {
		return ""
	}
	return fmt.Sprintf(", %s to %s over cases", ratio(i.Low), ratio(i.High))
}
