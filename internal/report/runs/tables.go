package runs

import (
	"fmt"
	"slices"

	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
)

// minorColumns is the number of metrics that share a table.
const minorColumns = 5

// mainTable lists the primary metric of a group: its values, the ratios to the baselines
// and the verdict.
func (b *builder) mainTable(g document.Group, estimates []estimate.Estimate) document.Table {
	first := estimates[0]
	t := document.Table{
		ID:    g.ID + "-main",
		Title: fmt.Sprintf("%s: %s %s", g.Title, first.Metric, naming.Scale(first.Unit, first.Order)),
	}
	estimate.LabelRows(&t, estimates)
	few := estimate.TooFewAgainst(b.Baselines(), estimates)
	estimate.CountColumn(&t, "n", estimates, b.Run.Repetitions)
	estimate.CenterColumn(&t, "value", estimates)
	t.Column(document.Column{Name: "mean", Numeric: true, Wide: true}, func(i int) document.Cell {
		return document.NumericCell(estimates[i].Mean, document.Decimal(estimates[i].Mean, document.Decimals(estimates[i].Center)))
	})
	t.Column(document.Column{Name: "standard error", Numeric: true, Wide: true}, func(i int) document.Cell { return document.NumberCell(estimates[i].StdErr) })
	estimate.IntervalColumn(&t, estimates)
	for _, name := range b.Baselines() {
		estimate.RatioColumn(&t, "vs "+name, estimates, name)
	}
	if len(b.Baselines()) > 0 {
		t.Column(document.Column{Name: "verdict", Console: true}, func(i int) document.Cell { return estimate.VerdictCell(estimates[i], few) })
	}
	estimate.DoubtColumn(&t, estimates)
	t.Notes = estimate.TooFewNotes(few)
	return t
}

// minorTables list the other metrics of a group, a few per table: values and their
// ratios to the main baseline. A cell says its n if some executions of its row lack the metric. They
// may lack a percentile because they had too few answers, so the others are no fair sample.
func (b *builder) minorTables(g document.Group, names []string, families map[string][]estimate.Estimate) []document.Table {
	main := slices.IndexFunc(names, func(name string) bool { return families[name][0].Primary })
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return naming.IsCPU(name) || families[name][0].Primary || !estimate.Telling(families[name])
	})
	var tables []document.Table
	for chunk := range slices.Chunk(others, minorColumns) {
		t := document.Table{ID: fmt.Sprintf("%s-minor-%d", g.ID, len(tables)+1), Minor: true,
			Title: g.Title + ": other metrics"}
		if baselines := b.Baselines(); len(baselines) > 0 {
			t.Title += " (ratio to " + baselines[0] + ")"
		}
		if len(tables) > 0 {
			t.Title += ", continued"
		}
		var columns [][]estimate.Estimate
		for _, name := range chunk {
			columns = append(columns, families[name])
		}
		tables = append(tables, b.pivot(t, columns, func(e estimate.Estimate) document.Cell {
			c := b.medianCell(e)
			if e.N > 0 && main >= 0 && e.N < estimate.Find(families[names[main]], e.Case, e.Configuration).N {
				c.Text += fmt.Sprintf(", n = %d", e.N)
			}
			return c
		}))
	}
	return tables
}

// pivot fills t with one row per case and configuration and one column per
// metric.
func (b *builder) pivot(t document.Table, columns [][]estimate.Estimate, cell func(estimate.Estimate) document.Cell) document.Table {
	longest := slices.MaxFunc(columns, func(a, b []estimate.Estimate) int { return len(a) - len(b) })
	estimate.LabelRows(&t, longest)
	for _, c := range columns {
		t.Column(document.Column{Name: estimate.WithUnit(c[0]), Numeric: true}, func(i int) document.Cell { return cell(estimate.Find(c, longest[i].Case, longest[i].Configuration)) })
	}
	return t
}

func (b *builder) medianCell(e estimate.Estimate) document.Cell {
	if e.N == 0 {
		return document.NoValue
	}
	text := document.Rounded(e.Center)
	if len(e.Comparisons) > 0 && e.Comparisons[0].Baseline == b.Baselines()[0] && e.Comparisons[0].Ratio.Defined() {
		text += " (" + document.Ratio(e.Comparisons[0].Ratio) + ")"
	}
	return document.Cell{Text: text}
}
