package scores

import (
	"fmt"
	"slices"

	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/papers"
)

// publishedTable lists our scores with the paper's, in the configurations of which the
// paper has any; it is empty when nothing matches.
func (s *Suite) publishedTable() document.Table {
	t := document.Table{ID: s.id + "-published",
		Title:   fmt.Sprintf("Suite %s: scores of this run and of the paper", s.sum.Name),
		Columns: []document.Column{{Name: "case", Header: true}}}
	var configurations []string
	var tables []int
	for _, total := range s.Values.Totals {
		if total.Published != nil {
			configurations, tables = append(configurations, total.Configuration), append(tables, total.Published.Table)
			t.Columns = append(t.Columns, document.Column{Name: total.Configuration, Numeric: true})
		}
	}
	if len(configurations) == 0 {
		return document.Table{}
	}
	for _, c := range s.cases {
		row, some := []document.Cell{{Text: c.name}}, false
		for _, name := range configurations {
			e := s.cells[[2]string{c.name, name}]
			if e == nil || e.Score.Published == nil {
				row = append(row, document.NoValue)
				continue
			}
			some = true
			row = append(row, withPaper(document.Decimal(e.Score.Score, 2), e.Score.Published.Score))
		}
		if some {
			t.Rows = append(t.Rows, row)
		}
	}
	totals, counts := []document.Cell{{Text: "total"}}, []document.Cell{{Text: "cases in it"}}
	for _, total := range s.Values.Totals {
		if p := total.Published; p != nil {
			totals = append(totals, withPaper(document.Decimal(total.Rounded, 2), p.Total))
			counts = append(counts, withPaper(fmt.Sprint(s.Values.Cases), papers.Number(fmt.Sprint(p.Cases))))
		}
	}
	t.Rows = append(t.Rows, totals, counts)
	t.Sums = 2
	t.Notes = publishedScoreNotes(tables)
	return t
}

// withPaper is a cell of our figure and the paper's.
func withPaper(ours string, printed papers.Number) document.Cell {
	paper := "paper " + string(printed)
	return document.Cell{Text: ours, Short: ours + ", " + paper, Remark: paper}
}

// publishedScoreNotes name the source of the paper's figures and the limits of the
// comparison.
func publishedScoreNotes(tables []int) []string {
	slices.Sort(tables)
	var names []string
	for _, t := range slices.Compact(tables) {
		names = append(names, fmt.Sprint(t))
	}
	tableWord := "Table "
	if len(names) > 1 {
		tableWord = "Tables "
	}
	return []string{
		"Paper: Lubomski, Kalinowski, Krawczyk, Multi-level virtualization and its impact on system performance in cloud computing, " + tableWord + document.List(names) +
			", as printed. The paper used another machine, VMware ESXi, Docker on AUFS, and the programs and sizes of the Phoronix Test Suite.",
		"Scores and totals depend on the configurations and cases that were measured together. Those of the paper are over its own configurations and cases: compare the ranking of the configurations rather than the figures.",
	}
}
