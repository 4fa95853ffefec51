package report

import (
	"fmt"
	"math"
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
		Title: fmt.Sprintf("%s: %s (%s, %s)", g.Title, first.Metric, shown(first.Unit), better(first.Order)),
	}
	t.labels(estimates)
	few := tooFewAgainst(b.baselines(), estimates)
	t.counts("n", estimates, b.run.Repetitions)
	t.centers("value", estimates)
	t.column(Column{Name: "mean", Numeric: true, Wide: true}, func(i int) Cell {
		return numeric(estimates[i].Mean, decimal(estimates[i].Mean, decimals(estimates[i].Center)))
	})
	t.column(Column{Name: "standard error", Numeric: true, Wide: true}, func(i int) Cell { return plainCell(estimates[i].StdErr) })
	t.intervals(estimates, b.opts.Confidence)
	for _, name := range b.baselines() {
		t.ratios("vs "+name, estimates, name)
	}
	if len(b.baselines()) > 0 {
		t.column(Column{Name: "verdict", Console: true}, func(i int) Cell { return verdictCell(estimates[i], few) })
	}
	t.doubts(estimates)
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
		notes = append(notes, fmt.Sprintf("No verdict against %s: it takes %d blocks that vary.", name, stats.MinRepetitions))
	}
	return notes
}

// labels makes a row for each of estimates, and the columns that name it.
func (t *Table) labels(estimates []Estimate) {
	t.Rows = make([][]Cell, len(estimates))
	t.column(Column{Name: labelColumn(estimates), Header: true}, func(i int) Cell {
		return Cell{Text: estimates[i].Label, Repeat: i > 0 && estimates[i-1].Case == estimates[i].Case}
	})
	t.configurations(estimates)
}

// labelColumn names the column of the labels of estimates.
func labelColumn(estimates []Estimate) string {
	if slices.ContainsFunc(estimates, func(e Estimate) bool { return e.Size == 0 }) {
		return "case"
	}
	return "size"
}

func (t *Table) configurations(estimates []Estimate) {
	t.column(Column{Name: "configuration", Header: true}, func(i int) Cell {
		return Cell{Text: estimates[i].Configuration, Series: estimates[i].Configuration}
	})
}

// counts appends n, which is left out of narrow output where every estimate has the
// planned number.
func (t *Table) counts(name string, estimates []Estimate, planned int) {
	same := !slices.ContainsFunc(estimates, func(e Estimate) bool { return e.N != planned })
	t.column(Column{Name: name, Numeric: true, Wide: same}, func(i int) Cell { return Cell{Text: fmt.Sprint(estimates[i].N)} })
}

// centers appends the geometric means.
func (t *Table) centers(name string, estimates []Estimate) {
	t.column(Column{Name: name, Numeric: true}, func(i int) Cell { return plainCell(estimates[i].Center) })
}

// ratios appends the ratios to a baseline with their intervals. The name of the column
// says the level of the intervals, unless the rows are of different families.
func (t *Table) ratios(name string, estimates []Estimate, baseline string) {
	levels := levelsAgainst(estimates, baseline)
	if len(levels) == 1 {
		name += ", " + levels[0]
	}
	few := len(tooFewAgainst([]string{baseline}, estimates)) > 0 // a note says so once
	t.column(Column{Name: name, Numeric: true}, func(i int) Cell {
		cell := ratioCell(estimates[i], baseline)
		if few {
			cell.Badge = ""
		}
		if c := estimates[i].against(baseline); len(levels) > 1 && c != nil && c.first && c.Interval.Low.Defined() {
			cell.Remark = join("at "+level(c.Interval.Confidence), cell.Remark)
		}
		return cell
	})
}

// levelsAgainst returns the levels of the intervals of the ratios to a baseline, each
// once.
func levelsAgainst(estimates []Estimate, baseline string) []string {
	var levels []string
	for _, e := range estimates {
		if c := e.against(baseline); c != nil && c.first && c.Interval.Low.Defined() && !slices.Contains(levels, level(c.Interval.Confidence)) {
			levels = append(levels, level(c.Interval.Confidence))
		}
	}
	return levels
}

// withLevel says for the title of a chart what intervals it draws.
func withLevel(estimates []Estimate, baseline string) string {
	switch levels := levelsAgainst(estimates, baseline); len(levels) {
	case 0:
		return ""
	case 1:
		return ", with " + levels[0] + " interval"
	}
	return ", with interval"
}

func (t *Table) intervals(estimates []Estimate, confidence float64) {
	t.column(Column{Name: percent(confidence) + " interval", Numeric: true, Wide: true}, func(i int) Cell {
		return numeric(estimates[i].Interval.Low, bracket(estimates[i].Interval, decimals(estimates[i].Center)))
	})
}

// noValue is a cell without a value.
var noValue = Cell{Text: none, Missing: true}

// numeric is a cell for v, printed as text.
func numeric(v Number, text string) Cell { return Cell{Text: text, Missing: !v.Defined()} }

// plainCell is a cell for v.
func plainCell(v Number) Cell { return numeric(v, number(v)) }

// ratioCell is the ratio to a baseline with its interval; 1 for the baseline itself. It is
// empty if another row compares the pair the other way round.
func ratioCell(e Estimate, baseline string) Cell {
	c := e.against(baseline)
	switch {
	case c == nil && e.N == 0, c != nil && !c.Ratio.Defined():
		return noValue
	case c == nil:
		return Cell{Text: "1"}
	case !c.first:
		return Cell{}
	}
	return c.cell()
}

// cell is the ratio of c with its interval, its verdict, and what the verdict alone does not
// say.
func (c *Comparison) cell() Cell {
	cell := numeric(c.Ratio, withInterval(c.Ratio, c.Interval))
	cell.Badge = c.Badge
	switch {
	case c.Equivalent == stats.Yes && c.Verdict != stats.Equal:
		cell.Remark = "within " + percent(c.margin)
	case c.Verdict == stats.Unknown && c.Detectable.Defined():
		cell.Remark = "detects " + percent(float64(c.Detectable))
	}
	return cell
}

// withInterval prints a ratio with its interval if there is one, with as many decimals as
// show on which side of 1 the bounds are.
func withInterval(r Number, i Interval) string {
	if !i.Low.Defined() {
		return ratio(r)
	}
	places := intervalDecimals(i)
	return fmt.Sprintf("%s [%s, %s]", ratioTo(r, places), ratioTo(i.Low, places), ratioTo(i.High, places))
}

// intervalDecimals is the least number of decimals, from 2 to 4, with which no bound of i
// is printed as 1 without being 1.
func intervalDecimals(i Interval) int {
	places := 2
	for ; places < 4; places++ {
		unit := math.Pow(10, -float64(places))
		close := func(v Number) bool { return v != 1 && math.Abs(float64(v)-1) <= unit/2 }
		if !close(i.Low) && !close(i.High) {
			break
		}
	}
	return places
}

// verdictCell joins the verdicts on e, each pair of configurations once, and its doubts, for a
// terminal, where cells of ratios have no badge. The notes have the verdicts against few, for
// which the whole table has too few samples.
func verdictCell(e Estimate, few []string) Cell {
	if e.N == 0 {
		return Cell{Text: "missing", Missing: true}
	}
	var parts []string
	for _, c := range e.Comparisons {
		noted := slices.Contains(few, c.Baseline) && c.Equivalent == ""
		if c.first && c.Words != "" && !noted {
			parts = append(parts, c.Short)
		}
	}
	return Cell{Text: strings.Join(append(parts, doubtsOf(e)...), "; ")}
}

// minorTables list the other metrics of a group, a few per table: values and their
// ratios to the main baseline. A cell says its n if some executions of its row lack the metric. They
// may lack a percentile because they had too few answers, so the others are no fair sample.
func (b *builder) minorTables(g Group, names []string, families map[string][]Estimate) []Table {
	main := slices.IndexFunc(names, func(name string) bool { return families[name][0].Primary })
	var others []string
	for _, name := range names {
		if !isCPU(name) && !families[name][0].Primary && telling(families[name]) {
			others = append(others, name)
		}
	}
	var tables []Table
	for chunk := range slices.Chunk(others, minorColumns) {
		t := Table{ID: fmt.Sprintf("%s-minor-%d", g.ID, len(tables)+1), Minor: true,
			Title: g.Title + ": other metrics"}
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
		tables = append(tables, b.pivot(t, columns, func(e Estimate) Cell {
			c := b.medianCell(e)
			if e.N > 0 && main >= 0 && e.N < find(families[names[main]], e.Case, e.Configuration).N {
				c.Text += fmt.Sprintf(", n = %d", e.N)
			}
			return c
		}))
	}
	return tables
}

// measured reports whether any of estimates has samples.
func measured(estimates []Estimate) bool {
	return slices.ContainsFunc(estimates, func(e Estimate) bool { return e.N > 0 })
}

// telling reports whether any of estimates has a value other than 0.
func telling(estimates []Estimate) bool {
	return slices.ContainsFunc(estimates, func(e Estimate) bool { return e.N > 0 && (e.Min != 0 || e.Max != 0) })
}

// pivot fills t with one row per case and configuration and one column per
// metric.
func (b *builder) pivot(t Table, columns [][]Estimate, cell func(Estimate) Cell) Table {
	longest := slices.MaxFunc(columns, func(a, b []Estimate) int { return len(a) - len(b) })
	t.labels(longest)
	for _, c := range columns {
		t.column(Column{Name: withUnit(c[0]), Numeric: true}, func(i int) Cell { return cell(find(c, longest[i].Case, longest[i].Configuration)) })
	}
	return t
}

// withUnit names a metric and its unit, unless it has none.
func withUnit(e Estimate) string {
	if e.Unit == "" || e.Unit == "1" {
		return e.Metric
	}
	return e.Metric + ", " + shown(e.Unit)
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
	text := number(e.Center)
	if len(e.Comparisons) > 0 && e.Comparisons[0].Baseline == b.baselines()[0] && e.Comparisons[0].Ratio.Defined() {
		text += " (" + ratio(e.Comparisons[0].Ratio) + ")"
	}
	return Cell{Text: text}
}
