package report

import (
	"fmt"
	"slices"

	"unnest/internal/report/papers"
)

// score returns the published score of the cell of e, nil if there is none.
func (p Papers) score(e Estimate) *papers.Score {
	i := slices.IndexFunc(p.Scores, func(s papers.Score) bool {
		return s.Suite == e.Suite && s.Case == e.Case && s.Configuration == e.Configuration
	})
	if i < 0 {
		return nil
	}
	return &p.Scores[i]
}

// total returns the published total of a suite in a configuration, nil if there is none.
func (p Papers) total(suite, configuration string) *papers.Total {
	i := slices.IndexFunc(p.Totals, func(t papers.Total) bool { return t.Suite == suite && t.Configuration == configuration })
	if i < 0 {
		return nil
	}
	return &p.Totals[i]
}

// publishedTable lists our scores with the paper's, in the configurations of which the
// paper has any; it is empty when nothing matches.
func (s *scored) publishedTable() Table {
	t := Table{ID: s.id + "-published",
		Title:   fmt.Sprintf("Suite %s: scores of this run and of the paper", s.sum.Name),
		Columns: []Column{{Name: "case", Header: true}}}
	var configurations []string
	var tables []int
	for _, total := range s.said.Totals {
		if total.Published != nil {
			configurations, tables = append(configurations, total.Configuration), append(tables, total.Published.Table)
			t.Columns = append(t.Columns, Column{Name: total.Configuration, Numeric: true})
		}
	}
	if len(configurations) == 0 {
		return Table{}
	}
	for _, c := range s.cases {
		row, some := []Cell{{Text: c.name}}, false
		for _, name := range configurations {
			e := s.cells[[2]string{c.name, name}]
			if e == nil || e.Score.Published == nil {
				row = append(row, noValue)
				continue
			}
			some = true
			row = append(row, withPaper(decimal(e.Score.Score, 2), e.Score.Published.Score))
		}
		if some {
			t.Rows = append(t.Rows, row)
		}
	}
	totals, counts := []Cell{{Text: "total"}}, []Cell{{Text: "cases in it"}}
	for _, total := range s.said.Totals {
		if p := total.Published; p != nil {
			totals = append(totals, withPaper(decimal(total.Rounded, 2), p.Total))
			counts = append(counts, withPaper(fmt.Sprint(s.said.Cases), papers.Number(fmt.Sprint(p.Cases))))
		}
	}
	t.Rows = append(t.Rows, totals, counts)
	t.Sums = 2
	t.Notes = publishedScoreNotes(tables)
	return t
}

// withPaper is a cell of our figure and the paper's.
func withPaper(ours string, printed papers.Number) Cell {
	paper := "paper " + string(printed)
	return Cell{Text: ours, Short: ours + ", " + paper, Remark: paper}
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
		"Paper: Lubomski, Kalinowski, Krawczyk, Multi-level virtualization and its impact on system performance in cloud computing, " + tableWord + list(names) +
			", as printed. The paper used another machine, VMware ESXi, Docker on AUFS, and the programs and sizes of the Phoronix Test Suite.",
		"Scores and totals depend on the configurations and cases that were measured together. Those of the paper are over its own configurations and cases: compare the ranking of the configurations rather than the figures.",
	}
}
