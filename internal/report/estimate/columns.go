package estimate

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/naming"
)

// LabelRows makes a row for each of estimates, and the columns that name it.
func LabelRows(t *document.Table, estimates []Estimate) {
	t.Rows = make([][]document.Cell, len(estimates))
	t.Column(document.Column{Name: LabelColumn(estimates), Header: true}, func(i int) document.Cell {
		return document.Cell{Text: estimates[i].Label, Repeat: i > 0 && estimates[i-1].Case == estimates[i].Case}
	})
	ConfigurationColumn(t, estimates)
}

// LabelColumn names the column of the labels of estimates.
func LabelColumn(estimates []Estimate) string {
	if slices.ContainsFunc(estimates, func(e Estimate) bool { return e.Size == 0 }) {
		return "case"
	}
	return "size"
}

// ConfigurationColumn appends the names of the configurations.
func ConfigurationColumn(t *document.Table, estimates []Estimate) {
	t.Column(document.Column{Name: "configuration", Header: true}, func(i int) document.Cell {
		return document.Cell{Text: estimates[i].Configuration, Series: estimates[i].Configuration}
	})
}

// CountColumn appends n, which is left out of narrow output where every estimate has the
// planned number.
func CountColumn(t *document.Table, name string, estimates []Estimate, planned int) {
	same := !slices.ContainsFunc(estimates, func(e Estimate) bool { return e.N != planned })
	t.Column(document.Column{Name: name, Numeric: true, Wide: same}, func(i int) document.Cell { return document.Cell{Text: fmt.Sprint(estimates[i].N)} })
}

// CenterColumn appends the geometric means.
func CenterColumn(t *document.Table, name string, estimates []Estimate) {
	t.Column(document.Column{Name: name, Numeric: true}, func(i int) document.Cell { return document.NumberCell(estimates[i].Center) })
}

// RatioColumn appends the ratios to a baseline with their intervals. The name of the column
// says the level of the intervals, unless the rows are of different families.
func RatioColumn(t *document.Table, name string, estimates []Estimate, baseline string) {
	levels := levelsAgainst(estimates, baseline)
	if len(levels) == 1 {
		name += ", " + levels[0]
	}
	few := len(TooFewAgainst([]string{baseline}, estimates)) > 0 // a note says so once
	t.Column(document.Column{Name: name, Numeric: true}, func(i int) document.Cell {
		cell := ratioCell(estimates[i], baseline)
		if few {
			cell.Badge = ""
		}
		if c := estimates[i].Against(baseline); len(levels) > 1 && c != nil && c.First && c.Interval.Low.Defined() {
			cell.Remark = document.Join("at "+document.Level(c.Interval.Confidence), cell.Remark)
		}
		return cell
	})
}

// levelsAgainst returns the levels of the intervals of the ratios to a baseline, each
// once.
func levelsAgainst(estimates []Estimate, baseline string) []string {
	var levels []string
	for _, e := range estimates {
		if c := e.Against(baseline); c != nil && c.First && c.Interval.Low.Defined() && !slices.Contains(levels, document.Level(c.Interval.Confidence)) {
			levels = append(levels, document.Level(c.Interval.Confidence))
		}
	}
	return levels
}

// IntervalColumn appends the intervals of the geometric means.
func IntervalColumn(t *document.Table, estimates []Estimate) {
	t.Column(document.Column{Name: document.Percent(stats.DefaultConfidence) + " interval", Numeric: true, Wide: true}, func(i int) document.Cell {
		return document.NumericCell(estimates[i].Interval.Low, document.Bracket(estimates[i].Interval, document.Decimals(estimates[i].Center)))
	})
}

// ratioCell is the ratio to a baseline with its interval; 1 for the baseline itself. It is
// empty if another row compares the pair the other way round.
func ratioCell(e Estimate, baseline string) document.Cell {
	c := e.Against(baseline)
	switch {
	case c == nil && e.N == 0, c != nil && !c.Ratio.Defined():
		return document.NoValue
	case c == nil:
		return document.Cell{Text: "1"}
	case !c.First:
		return document.Cell{}
	}
	return c.cell()
}

// cell is the ratio of c with its interval, its verdict, and what the verdict alone does not
// say.
func (c *Comparison) cell() document.Cell {
	cell := document.NumericCell(c.Ratio, document.RatioWithInterval(c.Ratio, c.Interval))
	cell.Badge = c.Badge
	switch {
	case c.Equivalent == stats.Yes && c.Verdict != stats.Equal:
		cell.Remark = "within " + document.Percent(c.margin)
	case c.Verdict == stats.Unknown && c.Detectable.Defined():
		cell.Remark = "detects " + document.Percent(float64(c.Detectable))
	}
	return cell
}

// VerdictCell joins the verdicts on e, each pair of configurations once, and its doubts, for a
// terminal, where cells of ratios have no badge. The notes have the verdicts against few, for
// which the whole table has too few samples.
func VerdictCell(e Estimate, few []string) document.Cell {
	if e.N == 0 {
		return document.Cell{Text: "missing", Missing: true}
	}
	var parts []string
	for _, c := range e.Comparisons {
		noted := slices.Contains(few, c.Baseline) && c.Equivalent == ""
		if c.First && c.Words != "" && !noted {
			parts = append(parts, c.Short)
		}
	}
	return document.Cell{Text: strings.Join(append(parts, DoubtsOf(e)...), "; ")}
}

// TooFewAgainst returns the baselines against which no comparison of a table has enough
// samples.
func TooFewAgainst(baselines []string, estimates []Estimate) []string {
	return slices.DeleteFunc(slices.Clone(baselines), func(name string) bool {
		few, judged := Verdicts(estimates, name)
		return judged == 0 || few < judged
	})
}

// Verdicts counts the verdicts against a baseline, and those with too few samples.
func Verdicts(estimates []Estimate, baseline string) (few, judged int) {
	for _, e := range estimates {
		if c := e.Against(baseline); c != nil && c.Verdict != "" {
			judged++
			if c.Verdict == stats.TooFew {
				few++
			}
		}
	}
	return few, judged
}

// TooFewNotes say once what would be in every row.
func TooFewNotes(baselines []string) []string {
	var notes []string
	for _, name := range baselines {
		notes = append(notes, fmt.Sprintf("No verdict against %s: it takes %d blocks that vary.", name, stats.MinRepetitions))
	}
	return notes
}

// WithLevel says for the title of a chart what intervals it draws.
func WithLevel(estimates []Estimate, baseline string) string {
	switch levels := levelsAgainst(estimates, baseline); len(levels) {
	case 0:
		return ""
	case 1:
		return ", with " + levels[0] + " interval"
	}
	return ", with interval"
}

// BadgeCell is the verdict of c in a word or two.
func BadgeCell(c *Comparison) document.Cell {
	if c == nil || c.Badge == "" {
		return document.NoValue
	}
	return document.Cell{Badge: c.Badge, Short: c.Badge}
}

// WithUnit names a metric and its unit, unless it has none.
func WithUnit(e Estimate) string {
	if e.Unit == "" || e.Unit == "1" {
		return e.Metric
	}
	return e.Metric + ", " + naming.Unit(e.Unit)
}
