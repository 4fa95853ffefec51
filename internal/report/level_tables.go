package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// levelTable is the thesis' table of one metric of a case: one row per level with the
// mean, ΔL and the standard error.
func (b *builder) levelTable(l leveled, m int) Table {
	family := l.cells[m]
	first := *family[0]
	t := Table{
		ID:    l.id + "-" + anchor("means", first.Metric),
		Title: fmt.Sprintf("%s by level of virtualization: %s (%s, %s)", caseTitle(l.of), first.Metric, shown(first.Unit), better(first.Order)),
	}
	t.Rows = make([][]Cell, len(family))
	add := func(name string, cell func(e *Estimate) Cell) {
		t.column(Column{Name: name, Numeric: true}, func(i int) Cell { return cell(family[i]) })
	}
	t.column(Column{Name: "level", Header: true}, func(i int) Cell { return Cell{Text: levelName(family[i].Step.Level)} })
	estimates := values(family)
	t.configurations(estimates)
	t.counts("n", estimates, b.run.Repetitions)
	if l.sized() {
		add("vCPUs", func(e *Estimate) Cell { return countCell(e.Step.VCPUs) })
	}
	add("mean", func(e *Estimate) Cell { return plainCell(e.Mean) })
	add("ΔL", func(e *Estimate) Cell { return changeCell(e.Step.Change) })
	add("standard error", func(e *Estimate) Cell { return plainCell(e.StdErr) })
	add("of the mean", func(e *Estimate) Cell { return shareCell(e.Step.RelStdErr) })
	if l.sized() && first.Metric == throughput {
		add("mean per vCPU", func(e *Estimate) Cell { return plainCell(e.Step.PerVCPU) })
		add("ΔL per vCPU", func(e *Estimate) Cell { return changeCell(e.Step.ChangePerVCPU) })
	}
	return t
}

// levelName names a level as the thesis does: "L1".
func levelName(level int) string { return "L" + strconv.Itoa(level) }

// bootNotes name guests that were booted fewer times than they were measured. Across
// levels a boot is the unit of repetition.
func (b *builder) bootNotes(l leveled) []string {
	var fewer []string
	for i, r := range l.rows {
		boots := map[string]bool{}
		for _, s := range b.samples {
			if s.Suite == l.of.Suite && s.Case == l.of.Name && s.Configuration == r.name && s.Boot != "" {
				boots[s.Boot] = true
			}
		}
		if n := l.cells[0][i].N; r.level > 0 && len(boots) > 0 && len(boots) < n {
			fewer = append(fewer, fmt.Sprintf("%s (%d times in %s)", r.name, n, plural(len(boots), "boot")))
		}
	}
	if len(fewer) == 0 {
		return nil
	}
	return []string{"Measured more often than booted: " + list(fewer) + ". With few boots, the standard error says little about the variation between boots."}
}

// stepTable tests each level against the one below.
func (b *builder) stepTable(l leveled) Table {
	t := Table{ID: l.id + "-tests", Title: caseTitle(l.of) + ": each level against the one below"}
	t.Columns = append([]Column{{Name: "metric", Header: true}}, stepColumns(false)...)
	l.steps(func(e, below *Estimate) {
		repeat := len(t.Rows) > 0 && t.Rows[len(t.Rows)-1][0].Text == e.Metric
		t.Rows = append(t.Rows, append([]Cell{{Text: e.Metric, Repeat: repeat}}, stepCells(*e, *below)...))
	})
	t.Notes = b.stepNotes(l)
	return t
}

// stepColumns are the columns of stepCells. With wide, narrow output leaves out t, df
// and p.
func stepColumns(wide bool) []Column {
	return []Column{{Name: "step", Header: true}, {Name: "ΔL", Numeric: true},
		{Name: "t", Numeric: true, Wide: true}, {Name: "df", Numeric: true, Wide: true}, {Name: "Welch p", Numeric: true, Wide: wide},
		{Name: "ratio", Numeric: true}, {Name: "verdict"}}
}

// stepNotes explain a table of steps.
func (b *builder) stepNotes(l leveled) []string {
	change := "ΔL is the change of the mean against the level below."
	if l.sized() {
		change += " Fewer vCPUs alone reduce throughput: see ΔL per vCPU."
	}
	return append([]string{
		change, "t, df and Welch p are the thesis' test of the means (FitzGerald 2014, §3.1). p is " + pMeaning,
		"The ratio and the verdict follow the rule of this report: see how to read it.",
	}, b.bootNotes(l)...)
}

// stepCells are the cells on the step from below to e.
func stepCells(e, below Estimate) []Cell {
	s := e.Step
	cell := noValue
	if c := s.Comparison; c != nil && c.Ratio.Defined() {
		cell = numeric(c.Ratio, withInterval(c.Ratio, c.Interval))
		if c.Interval.Low.Defined() {
			cell.Remark = "at " + level(c.Interval.Confidence)
		}
	}
	return []Cell{
		{Text: below.Configuration + " → " + e.Configuration}, changeCell(s.Change),
		numeric(s.T, decimal(s.T, 2)), numeric(s.DF, decimal(s.DF, 1)), pCell(s.P), cell, stepVerdict(e, below),
	}
}

// suiteLevels lists the cases of a suite by level in one table, by their first metric.
func (b *builder) suiteLevels(id string, all []leveled) Group {
	name := all[0].of.Suite
	g := Group{ID: id, Title: fmt.Sprintf("Suite %s: levels of virtualization", name)}
	t := Table{ID: id + "-tests", Title: g.Title + ", each against the one below"}
	t.Columns = append([]Column{{Name: "case", Header: true}, {Name: "unit, order", Header: true}}, stepColumns(true)...)
	for _, l := range all {
		l.steps(func(e, below *Estimate) {
			if e.Metric != l.metrics[0].Name {
				return
			}
			repeat := len(t.Rows) > 0 && t.Rows[len(t.Rows)-1][0].Text == e.Case
			t.Rows = append(t.Rows, append([]Cell{{Text: e.Case, Repeat: repeat}, {Text: unitAndOrder(e.Unit, e.Order), Repeat: repeat}}, stepCells(*e, *below)...))
		})
	}
	t.Notes = b.stepNotes(all[0])
	g.Tables = []Table{t}
	return g
}

// stepVerdict is the verdict of a test, or the reason why there is none.
func stepVerdict(e, below Estimate) Cell {
	for _, side := range []Estimate{e, below} {
		if side.N == 0 {
			return Cell{Text: side.Configuration + " " + side.Missing, Short: side.Configuration + " missing", Missing: true}
		}
	}
	return badgeCell(e.Step.Comparison)
}

// chart draws one metric by level, as FitzGerald 2014, Figs. 2-16.
func (l leveled) chart(m int, nestings []nesting) Chart {
	first := l.cells[m][0]
	c := Chart{
		ID: l.id + "-" + anchor("chart", l.metrics[m].Name), Kind: Levels,
		Title: fmt.Sprintf("%s: %s by level, mean and standard error", caseTitle(l.of), quantity(first.Metric)),
		Axis:  fmt.Sprintf("%s, %s (%s)", quantity(first.Metric), shown(first.Unit), better(first.Order)),
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
			series := ChartSeries{Name: nesting.names(k), Slot: len(c.Series) % slots}
			for _, level := range levels {
				mean, stdErr := missing, missing
				if i := slices.Index(nesting.levels, level); i >= 0 {
					e := l.estimate(m, nesting.at(i, k).Name)
					mean, stdErr = e.Mean, e.StdErr
				}
				series.add(mean, Interval{Low: mean - stdErr, High: mean + stdErr})
			}
			c.Series = append(c.Series, series)
		}
	}
	c.Words = describe(c, func(v Number) string { return number(v) + " " + shown(first.Unit) })
	return c
}

// countCell is a count; 0 is not known.
func countCell(n int) Cell {
	if n == 0 {
		return noValue
	}
	return Cell{Text: strconv.Itoa(n)}
}

// changeCell is a fraction as a percentage with its sign.
func changeCell(v Number) Cell {
	if !v.Defined() {
		return noValue
	}
	places := 2
	if math.Abs(float64(v)) >= 10 { // as the +2577.2 % of the thesis
		places = 1
	}
	return Cell{Text: fmt.Sprintf("%+.*f %%", places, 100*float64(v))}
}

// shareCell is a positive fraction as a percentage with three significant digits.
func shareCell(v Number) Cell {
	percent := 100 * v
	if !v.Defined() {
		return noValue
	}
	return Cell{Text: decimal(percent, max(0, decimals(percent)-1)) + " %"}
}

// pCell is p with three decimals, as in the thesis.
func pCell(p Number) Cell {
	if p < 0.001 {
		return Cell{Text: "< 0.001"}
	}
	return numeric(p, decimal(p, 3))
}
