package scores

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/score"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
)

// Group is the section of a report on the scores of s.
func (s *Suite) Group() document.Group {
	g := document.Group{ID: s.id, Title: fmt.Sprintf("Suite %s: scores", s.sum.Name), Tables: []document.Table{s.table()}, Charts: s.charts()}
	g.Add(s.publishedTable())
	return g
}

// table lists a suite as in Lubomski et al., Tables 5 and 6: for each case the scores
// with the results in brackets, below them the totals.
func (s *Suite) table() document.Table {
	t := document.Table{
		ID:      s.id + "-table",
		Title:   fmt.Sprintf("Suite %s: score of each case, in brackets the mean", s.sum.Name),
		Columns: []document.Column{{Name: "case", Header: true}, {Name: "unit, order", Header: true}},
	}
	for _, conf := range s.configurations {
		t.Columns = append(t.Columns, document.Column{Name: conf.Name, Numeric: true})
	}
	for _, c := range s.cases {
		row := document.TextRow(c.name, c.unitAndOrder)
		for _, conf := range s.configurations {
			row = append(row, s.scoreCell(c.name, conf.Name))
		}
		t.Rows = append(t.Rows, row)
	}
	above := len(t.Rows)
	if s.Values.Cases > 0 {
		t.Rows = append(t.Rows,
			s.totalRow("total", totalCell),
			s.totalRow("total of rounded scores", func(o estimate.Total) document.Cell {
				return document.NumericCell(o.Rounded, document.Decimal(o.Rounded, 2))
			}),
			s.totalRow("geometric mean", geoMeanCell))
	}
	t.Sums = len(t.Rows) - above
	t.Notes = s.notes()
	return t
}

func (s *Suite) scoreCell(name, configuration string) document.Cell {
	cell, _, has := s.cell(name, configuration)
	if !has {
		return document.NoValue
	}
	return document.Cell{Text: fmt.Sprintf("%.2f (%s)", cell.Score, document.Rounded(document.Number(cell.Mean)))}
}

// totalRow is a row of one figure for each configuration.
func (s *Suite) totalRow(name string, cell func(estimate.Total) document.Cell) []document.Cell {
	row := []document.Cell{{Text: name}, {Text: string(result.HIB)}}
	for _, t := range s.Values.Totals {
		row = append(row, cell(t))
	}
	return row
}

// totalCell says which totals are partial.
func totalCell(t estimate.Total) document.Cell {
	cell := document.NumericCell(t.Total, document.Decimal(t.Total, 3))
	if t.Partial > 0 {
		cell.Remark = fmt.Sprintf("partial, of %s", document.Plural(t.Partial, "case"))
		cell.Short = fmt.Sprintf("%s (%s)", cell.Text, cell.Remark)
	}
	return cell
}

// geoMeanCell is a geometric mean with its interval as a remark.
func geoMeanCell(t estimate.Total) document.Cell {
	cell := document.NumericCell(t.GeoMean, document.Decimal(t.GeoMean, 3))
	if t.Interval.Low.Defined() {
		cell.Remark = document.Bracket(t.Interval, 3)
		cell.Short = cell.Text + " " + cell.Remark
	}
	return cell
}

// notes say what a table of scores lacks, and what its totals hide.
func (s *Suite) notes() []string {
	var notes []string
	if s.Values.Cases > 0 && s.sum.Baseline != "" {
		note := fmt.Sprintf("The geometric mean is over the ratios to %s in %s, inverted where lower is better: above 1 is better.", s.sum.Baseline, document.Plural(s.Values.Cases, "case"))
		if s.hasIntervals() {
			note += fmt.Sprintf(" In brackets is its %s interval over cases: how much the ratio differs from case to case.", document.Percent(score.Confidence))
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
func (s *Suite) missingNotes() []string {
	var notes, empty []string
	for _, conf := range s.configurations {
		if !slices.Contains(s.sum.Configurations, conf.Name) {
			empty = append(empty, conf.Name)
		}
	}
	if len(empty) > 0 {
		notes = append(notes, fmt.Sprintf("%s: no results in any case. The scores are relative to the other configurations.", document.List(empty)))
	}
	for _, c := range s.cases {
		var reasons []string
		for _, m := range s.Values.Missing {
			if m.Case == c.name && !slices.Contains(empty, m.Configuration) {
				reasons = append(reasons, fmt.Sprintf("%s (%s)", m.Configuration, s.whyMissing(m)))
			}
		}
		effect := "it counts in no total"
		if i := slices.IndexFunc(s.sum.Cases, func(o score.Case) bool { return o.Name == c.name }); i >= 0 && s.sum.Cases[i].Counted {
			effect = "the totals of these are partial"
		}
		if len(reasons) > 0 {
			notes = append(notes, fmt.Sprintf("%s has no score in %s: %s.", c.name, document.List(reasons), effect))
		}
	}
	return notes
}

// whyMissing says why a case has no score in a configuration.
func (s *Suite) whyMissing(m score.Missing) string {
	e := s.cells[[2]string{m.Case, m.Configuration}]
	switch {
	case len(s.cells) == 0:
		return "no result"
	case e == nil:
		return "no primary metric"
	case e.N > 0:
		return fmt.Sprintf("its mean %s %s is not positive", document.Rounded(e.Mean), e.Unit)
	}
	return e.Missing
}

// hasIntervals reports whether a geometric mean has an interval.
func (s *Suite) hasIntervals() bool {
	return slices.ContainsFunc(s.Values.Totals, func(t estimate.Total) bool { return t.Interval.Low.Defined() })
}

// Headlines are the findings of a suite in plain words.
func (s *Suite) Headlines() []string {
	if s.Values.Cases == 0 {
		return []string{fmt.Sprintf("Suite %s has no totals: no case has results in every configuration.", s.sum.Name)}
	}
	subject := fmt.Sprintf("Suite %s, %s", s.sum.Name, document.Plural(s.Values.Cases, "case"))
	var ratios []string
	remark := "too few cases for intervals"
	if s.hasIntervals() {
		remark = "intervals over cases"
	}
	ranked := slices.DeleteFunc(slices.Clone(s.Values.Totals), func(t estimate.Total) bool { return !t.Total.Defined() })
	for _, t := range ranked {
		if t.Configuration != s.sum.Baseline && t.GeoMean.Defined() {
			ratios = append(ratios, fmt.Sprintf("%s with %s", document.TimesWithInterval(t.GeoMean, t.Interval), t.Configuration))
		}
	}
	var lines []string
	if len(ratios) > 0 {
		lines = append(lines, fmt.Sprintf("%s: the geometric mean of the ratios to %s (above 1 is better; %s) is %s.", subject, s.sum.Baseline, remark, document.List(ratios)))
	}
	slices.SortStableFunc(ranked, func(a, b estimate.Total) int { return cmp.Compare(b.Total, a.Total) })
	var totals []string
	for _, t := range ranked {
		totals = append(totals, fmt.Sprintf("%s %s", t.Configuration, document.Decimal(t.Total, 2)))
	}
	return append(lines, fmt.Sprintf("%s, by total score: %s.", subject, strings.Join(totals, ", ")))
}

// Figures are the geometric means of a suite, with badges for the verdicts on its cases. A mean of cases
// of which most are not known is no figure to remember.
func (s *Suite) Figures(badges func(configuration string) (badge string, open bool)) []document.KeyFigure {
	var figures []document.KeyFigure
	for _, t := range s.Values.Totals {
		if t.Configuration != s.sum.Baseline && t.GeoMean.Defined() {
			badge, open := badges(t.Configuration)
			figures = append(figures, document.KeyFigure{
				Badge: badge, Open: open,
				Value:  document.Ratio(t.GeoMean) + "×",
				Label:  t.Configuration + " / " + s.sum.Baseline,
				Detail: fmt.Sprintf("suite %s, geometric mean of %s, above 1 is better%s", s.sum.Name, document.Plural(s.Values.Cases, "case"), overCases(t.Interval)),
				Series: t.Configuration,
			})
		}
	}
	return figures
}

// overCases prints the interval of a geometric mean after a comma, if there is one.
func overCases(i document.Interval) string {
	if !i.Low.Defined() {
		return ""
	}
	return fmt.Sprintf(", %s to %s over cases", document.Ratio(i.Low), document.Ratio(i.High))
}
