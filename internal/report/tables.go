package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/stats"
)

// minorColumns is the number of metrics that share a table.
const minorColumns = 5

// mainTable lists the primary metric of a group: its values, the ratios to the baselines
// and the verdict.
func (b *builder) mainTable(g Group, estimates []Estimate) Table {
	first := estimates[0]
	t := Table{
		ID:    g.ID + "-main",
		Title: fmt.Sprintf("%s: %s (%s, %s)", g.Title, first.Metric, first.Unit, better(first.Order)),
	}
	t.Columns = append(rowColumns(estimates),
		Column{Name: "n", Numeric: true, Wide: sameN(estimates, b.run.Repetitions)},
		Column{Name: "median", Numeric: true},
		Column{Name: "mean", Numeric: true, Wide: true},
		Column{Name: "standard error", Numeric: true, Wide: true},
		Column{Name: percent(b.opts.Confidence) + " interval", Numeric: true},
	)
	for _, name := range b.baselines() {
		t.Columns = append(t.Columns, Column{Name: "vs " + name, Numeric: true})
	}
	if len(b.baselines()) > 0 {
		t.Columns = append(t.Columns, Column{Name: "verdict"})
	}
	few := tooFewAgainst(b.baselines(), estimates)
	for i, e := range estimates {
		t.Rows = append(t.Rows, b.mainRow(e, i > 0 && estimates[i-1].Case == e.Case, few))
	}
	t.Notes = tooFewNotes(few)
	return t
}

// tooFewAgainst returns the baselines against which no comparison of a table has enough
// samples.
func tooFewAgainst(baselines []string, estimates []Estimate) []string {
	return slices.DeleteFunc(slices.Clone(baselines), func(name string) bool {
		few, judged := verdicts(estimates, name)
		return judged == 0 || few < judged
	})
}

// verdicts counts the verdicts against a baseline, and those with too few samples.
func verdicts(estimates []Estimate, baseline string) (few, judged int) {
	for _, e := range estimates {
		if c := e.against(baseline); c != nil && c.Verdict != "" {
			judged++
			if c.Verdict == stats.TooFew {
				few++
			}
		}
	}
	return few, judged
}

// tooFewNotes say once what would be in every row.
func tooFewNotes(baselines []string) []string {
	var notes []string
	for _, name := range baselines {
		notes = append(notes, fmt.Sprintf("Too few samples for a verdict against %s: a verdict takes %d of each.", name, stats.MinRepetitions))
	}
	return notes
}

// sameN reports whether every estimate has the planned n, so that the column can be
// left out.
func sameN(estimates []Estimate, n int) bool {
	return !slices.ContainsFunc(estimates, func(e Estimate) bool { return e.N != n })
}

// rowColumns are the columns that name a row.
func rowColumns(estimates []Estimate) []Column {
	name := "size"
	if slices.ContainsFunc(estimates, func(e Estimate) bool { return e.Size == 0 }) {
		name = "case"
	}
	return []Column{{Name: name, Header: true}, {Name: "configuration", Header: true}}
}

// rowCells name the row of e.
func rowCells(e Estimate, repeat bool) []Cell {
	return []Cell{{Text: e.Label, Repeat: repeat}, {Text: e.Configuration, Series: e.Configuration}}
}

func (b *builder) mainRow(e Estimate, repeat bool, few []string) []Cell {
	places := decimals(e.Median)
	row := append(rowCells(e, repeat),
		Cell{Text: fmt.Sprint(e.N)},
		numeric(e.Median, number(e.Median)),
		numeric(e.Mean, decimal(e.Mean, places)),
		numeric(e.StdErr, number(e.StdErr)),
		numeric(e.Interval.Low, bracket(e.Interval, places, b.opts.Confidence)),
	)
	for _, name := range b.baselines() {
		row = append(row, b.ratioCell(e, name))
	}
	if len(b.baselines()) > 0 {
		row = append(row, verdictCell(e, few))
	}
	return row
}

// noValue is a cell without a value.
var noValue = Cell{Text: none, Missing: true}

// numeric is a cell for v, printed as text.
func numeric(v Number, text string) Cell { return Cell{Text: text, Missing: !v.Defined()} }

// ratioCell is the ratio to a baseline with its interval and adjusted p; 1 for
// the baseline itself.
func (b *builder) ratioCell(e Estimate, baseline string) Cell {
	c := e.against(baseline)
	switch {
	case c == nil && e.N == 0, c != nil && !c.Ratio.Defined():
		return noValue
	case c == nil:
		return Cell{Text: "1"}
	}
	cell := Cell{Text: withInterval(c.Ratio, c.Interval)}
	if c.Adjusted.Defined() {
		cell.Remark = "adjusted " + pValue(c.Adjusted)
	}
	return cell
}

// withInterval prints a ratio with its interval if there is one.
func withInterval(r Number, i Interval) string {
	if !i.Low.Defined() {
		return ratio(r)
	}
	return fmt.Sprintf("%s [%s, %s]", ratio(r), ratio(i.Low), ratio(i.High))
}

// verdictCell joins the verdicts on e, each pair of configurations once. The notes have
// the verdicts against few, for which the whole table has too few samples.
func verdictCell(e Estimate, few []string) Cell {
	if e.N == 0 {
		return Cell{Text: e.Missing, Short: "missing", Missing: true}
	}
	var long, short []string
	owned := false
	for _, c := range e.Comparisons {
		owned = owned || c.first
		noted := slices.Contains(few, c.Baseline) && c.Equivalent == ""
		if c.first && c.Words != "" && !noted {
			long, short = append(long, c.Words), append(short, c.Short)
		}
	}
	if !owned || len(long) == 0 { // the baseline itself, or nothing to add
		return Cell{}
	}
	if len(e.Comparisons) > 2 { // several long verdicts would fill the page
		long = short
	}
	return Cell{Text: sentence(strings.Join(long, ". ")) + ".", Short: strings.Join(short, "; ")}
}

// sentence starts every part of s, which end in ". ", with a capital letter.
func sentence(s string) string {
	parts := strings.Split(s, ". ")
	for i, p := range parts {
		if p != "" {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, ". ")
}

// minorTables list the other metrics of a group, a few per table: medians and their
// ratios to the main baseline.
func (b *builder) minorTables(g Group, names []string, families map[string][]Estimate) []Table {
	var others []string
	for _, name := range names {
		if !isCPU(name) && !families[name][0].Primary && measured(families[name]) {
			others = append(others, name)
		}
	}
	var tables []Table
	for chunk := range slices.Chunk(others, minorColumns) {
		t := Table{ID: fmt.Sprintf("%s-minor-%d", g.ID, len(tables)+1), Minor: true,
			Title: g.Title + ": other metrics, median"}
		if baselines := b.baselines(); len(baselines) > 0 {
			t.Title += " (ratio to " + baselines[0] + ")"
		}
		if len(tables) > 0 {
			t.Title += ", continued"
		}
		var columns [][]Estimate
		for _, name := range chunk {
			columns = append(columns, families[name])
		}
		tables = append(tables, b.pivot(t, columns, b.medianCell))
	}
	return tables
}

// measured reports whether any of estimates has samples.
func measured(estimates []Estimate) bool {
	return slices.ContainsFunc(estimates, func(e Estimate) bool { return e.N > 0 })
}

// pivot fills t with one row per case and configuration and one column per
// metric.
func (b *builder) pivot(t Table, columns [][]Estimate, cell func(Estimate) Cell) Table {
	longest := slices.MaxFunc(columns, func(a, b []Estimate) int { return len(a) - len(b) })
	t.Columns = rowColumns(longest)
	for _, c := range columns {
		t.Columns = append(t.Columns, Column{Name: withUnit(c[0]), Numeric: true})
	}
	for i, e := range longest {
		row := rowCells(e, i > 0 && longest[i-1].Case == e.Case)
		for _, c := range columns {
			row = append(row, cell(find(c, e.Case, e.Configuration)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// withUnit names a metric and its unit, unless it has none.
func withUnit(e Estimate) string {
	if e.Unit == "" || e.Unit == "1" {
		return e.Metric
	}
	return e.Metric + ", " + e.Unit
}

// find returns the estimate of a case in a configuration, one without samples if there
// is none.
func find(estimates []Estimate, name, configuration string) Estimate {
	for _, e := range estimates {
		if e.Case == name && e.Configuration == configuration {
			return e
		}
	}
	e := Estimate{Case: name, Configuration: configuration}
	e.describe(nil, 0)
	return e
}

func (b *builder) medianCell(e Estimate) Cell {
	if e.N == 0 {
		return noValue
	}
	text := number(e.Median)
	if len(e.Comparisons) > 0 && e.Comparisons[0].Baseline == b.baselines()[0] && e.Comparisons[0].Ratio.Defined() {
		text += " (" + ratio(e.Comparisons[0].Ratio) + ")"
	}
	return Cell{Text: text}
}
