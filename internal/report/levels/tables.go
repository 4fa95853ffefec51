package levels

import (
	"fmt"
	"slices"
	"strconv"

	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
)

// levelTable is the thesis' table of one metric of a case: one row per level with the
// mean, ΔL and the standard error.
func (b *section) levelTable(l leveledCase, m int) document.Table {
	family := l.cells[m]
	first := *family[0]
	t := document.Table{
		ID:    l.id + "-" + document.Anchor("means", first.Metric),
		Title: fmt.Sprintf("%s by level of virtualization: %s %s", naming.Case(l.of), first.Metric, naming.Scale(first.Unit, first.Order)),
	}
	t.Rows = make([][]document.Cell, len(family))
	add := func(name string, cell func(e *estimate.Estimate) document.Cell) {
		t.Column(document.Column{Name: name, Numeric: true}, func(i int) document.Cell { return cell(family[i]) })
	}
	t.Column(document.Column{Name: "level", Header: true}, func(i int) document.Cell { return document.Cell{Text: levelName(family[i].Step.Level)} })
	estimates := values(family)
	estimate.ConfigurationColumn(&t, estimates)
	estimate.CountColumn(&t, "n", estimates, b.Run.Repetitions)
	if l.sized() {
		add("vCPUs", func(e *estimate.Estimate) document.Cell { return countCell(e.Step.VCPUs) })
	}
	add("mean", func(e *estimate.Estimate) document.Cell { return document.NumberCell(e.Mean) })
	add("ΔL", func(e *estimate.Estimate) document.Cell { return document.ChangeCell(e.Step.Change) })
	add("standard error", func(e *estimate.Estimate) document.Cell { return document.NumberCell(e.StdErr) })
	add("of the mean", func(e *estimate.Estimate) document.Cell { return document.ShareCell(e.Step.RelStdErr) })
	if l.sized() && first.Metric == throughput {
		add("mean per vCPU", func(e *estimate.Estimate) document.Cell { return document.NumberCell(e.Step.PerVCPU) })
		add("ΔL per vCPU", func(e *estimate.Estimate) document.Cell { return document.ChangeCell(e.Step.ChangePerVCPU) })
	}
	return t
}

// levelName names a level as the thesis does: "L1".
func levelName(level int) string { return "L" + strconv.Itoa(level) }

// bootNotes name guests that were booted fewer times than they were measured. Across
// levels a boot is the unit of repetition.
func (b *section) bootNotes(l leveledCase) []string {
	var fewer []string
	for i, r := range l.rows {
		boots := map[string]bool{}
		for _, s := range b.Samples {
			if s.Suite == l.of.Suite && s.Case == l.of.Name && s.Configuration == r.name && s.Boot != "" {
				boots[s.Boot] = true
			}
		}
		if n := l.cells[0][i].N; r.level > 0 && len(boots) > 0 && len(boots) < n {
			fewer = append(fewer, fmt.Sprintf("%s (%d times in %s)", r.name, n, document.Plural(len(boots), "boot")))
		}
	}
	if len(fewer) == 0 {
		return nil
	}
	return []string{"Measured more often than booted: " + document.List(fewer) + ". With few boots, the standard error says little about the variation between boots."}
}

func (b *section) stepTable(l leveledCase) document.Table {
	t := document.Table{ID: l.id + "-tests", Title: naming.Case(l.of) + ": each level against the one below"}
	t.Columns = append([]document.Column{{Name: "metric", Header: true}}, stepColumns(false)...)
	l.steps(func(e, below *estimate.Estimate) {
		repeat := len(t.Rows) > 0 && t.Rows[len(t.Rows)-1][0].Text == e.Metric
		t.Rows = append(t.Rows, append([]document.Cell{{Text: e.Metric, Repeat: repeat}}, stepCells(*e, *below)...))
	})
	t.Notes = b.stepNotes(l)
	return t
}

// stepColumns are the columns of stepCells. With wide, narrow output leaves out t, df
// and p.
func stepColumns(wide bool) []document.Column {
	return []document.Column{{Name: "step", Header: true}, {Name: "ΔL", Numeric: true},
		{Name: "t", Numeric: true, Wide: true}, {Name: "df", Numeric: true, Wide: true}, {Name: "Welch p", Numeric: true, Wide: wide},
		{Name: "ratio", Numeric: true}, {Name: "verdict"}}
}

// stepNotes explain a table of steps.
func (b *section) stepNotes(l leveledCase) []string {
	change := "ΔL is the change of the mean against the level below."
	if l.sized() {
		change += " Fewer vCPUs alone reduce throughput: see ΔL per vCPU."
	}
	return append([]string{
		change, "t, df and Welch p are the thesis' test of the means (FitzGerald 2014, §3.1), but with df that is not cut to an integer. p is " + naming.PMeaning,
		"The ratio and the verdict follow the rule of this report: see how to read it.",
	}, b.bootNotes(l)...)
}

func stepCells(e, below estimate.Estimate) []document.Cell {
	s := e.Step
	cell := document.NoValue
	if c := s.Comparison; c != nil && c.Ratio.Defined() {
		cell = document.NumericCell(c.Ratio, document.RatioWithInterval(c.Ratio, c.Interval))
		if c.Interval.Low.Defined() {
			cell.Remark = "at " + document.Level(c.Interval.Confidence)
		}
	}
	return []document.Cell{
		{Text: below.Configuration + " → " + e.Configuration}, document.ChangeCell(s.Change),
		document.NumericCell(s.T, document.Decimal(s.T, 2)), document.NumericCell(s.DF, document.Decimal(s.DF, 1)), document.PCell(s.P), cell, stepVerdict(e, below),
	}
}

// suiteLevels lists the cases of a suite by level in one table, by their first metric.
func (b *section) suiteLevels(id string, all []leveledCase) document.Group {
	name := all[0].of.Suite
	g := document.Group{ID: id, Title: fmt.Sprintf("Suite %s: levels of virtualization", name)}
	t := document.Table{ID: id + "-tests", Title: g.Title + ", each against the one below"}
	t.Columns = append([]document.Column{{Name: "case", Header: true}, {Name: "unit, order", Header: true}}, stepColumns(true)...)
	for _, l := range all {
		l.steps(func(e, below *estimate.Estimate) {
			if e.Metric != l.metrics[0].Name {
				return
			}
			repeat := len(t.Rows) > 0 && t.Rows[len(t.Rows)-1][0].Text == e.Case
			t.Rows = append(t.Rows, append([]document.Cell{{Text: e.Case, Repeat: repeat}, {Text: naming.UnitAndOrder(e.Unit, e.Order), Repeat: repeat}}, stepCells(*e, *below)...))
		})
	}
	t.Notes = b.stepNotes(all[0])
	g.Tables = []document.Table{t}
	return g
}

// stepVerdict is the verdict of a test, or the reason why there is none.
func stepVerdict(e, below estimate.Estimate) document.Cell {
	for _, side := range []estimate.Estimate{e, below} {
		if side.N == 0 {
			return document.Cell{Text: side.Configuration + " " + side.Missing, Short: side.Configuration + " missing", Missing: true}
		}
	}
	return estimate.BadgeCell(e.Step.Comparison)
}

// chart draws one metric by level, as FitzGerald 2014, Figs. 2-16.
func (l leveledCase) chart(m int, nestings []nesting) document.Chart {
	first := l.cells[m][0]
	c := document.Chart{
		ID: l.id + "-" + document.Anchor("chart", l.metrics[m].Name), Kind: document.Levels,
		Title: fmt.Sprintf("%s: %s by level, mean and standard error", naming.Case(l.of), naming.Quantity(first.Metric)),
		Axis:  naming.Axis(first.Metric, first.Unit, first.Order),
	}
	var levels []int
	for _, r := range l.rows {
		levels = append(levels, r.level)
	}
	slices.Sort(levels)
	levels = slices.Compact(levels)
	for _, level := range levels {
		c.Categories = append(c.Categories, levelName(level))
	}
	for _, nesting := range nestings {
		for k := range nesting.width() {
			series := document.ChartSeries{Name: nesting.names(k), Slot: len(c.Series) % document.Slots}
			for _, level := range levels {
				mean, stdErr := document.Missing, document.Missing
				if i := slices.Index(nesting.levels, level); i >= 0 {
					e := l.estimate(m, nesting.at(i, k).Name)
					mean, stdErr = e.Mean, e.StdErr
				}
				series.Add(mean, document.Interval{Low: mean - stdErr, High: mean + stdErr})
			}
			c.Series = append(c.Series, series)
		}
	}
	c.Describe(naming.In(first.Unit))
	return c
}

// countCell is a count; 0 is not known.
func countCell(n int) document.Cell {
	if n == 0 {
		return document.NoValue
	}
	return document.Cell{Text: strconv.Itoa(n)}
}
