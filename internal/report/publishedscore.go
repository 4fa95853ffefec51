package report

import (
	"fmt"
	"slices"
)

// PublishedScore is a result and its score as Lubomski et al., Tables 5 and 6,
// print them, under our names of the suite and the case. Numbers are as printed.
type PublishedScore struct {
	Table         int    `json:"table"`
	Suite         string `json:"-"`
	Case          string `json:"-"`
	Configuration string `json:"-"`
	Value         string `json:"value"`
	Unit          string `json:"unit"`
	Score         string `json:"score"`
}

// PublishedTotal is a total score as Lubomski et al., Tables 3-7, print it, under
// our name of the suite.
type PublishedTotal struct {
	Table         int    `json:"table"`
	Suite         string `json:"-"`
	Configuration string `json:"-"`
	Total         string `json:"total"` // as printed
	Cases         int    `json:"cases"` // that it is the sum of
}

// publishedScore returns what was published for the cell of e, nil if nothing.
func (o Options) publishedScore(e Estimate) *PublishedScore {
	i := slices.IndexFunc(o.PublishedScores, func(p PublishedScore) bool {
		return p.Suite == e.Suite && p.Case == e.Case && p.Configuration == e.Configuration
	})
	if i < 0 {
		return nil
	}
	return &o.PublishedScores[i]
}

// publishedTotal returns what was published for a suite in a configuration, nil
// if nothing.
func (o Options) publishedTotal(suite, configuration string) *PublishedTotal {
	i := slices.IndexFunc(o.PublishedTotals, func(p PublishedTotal) bool {
		return p.Suite == suite && p.Configuration == configuration
	})
	if i < 0 {
		return nil
	}
	return &o.PublishedTotals[i]
}

// publishedScoreTable sets the paper's scores beside ours, in the configurations
// of which it has any; there is none when nothing matches.
func (b *builder) publishedScoreTable(s scored) (Table, bool) {
	t := Table{ID: s.id + "-published", Setting: setting(b.run),
		Title:   fmt.Sprintf("Suite %s: scores on this machine beside those on the paper's machine", s.sum.Name),
		Columns: []Column{{Name: "case", Header: true}}}
	var configurations []string
	var tables []int
	for _, total := range s.said.Totals {
		if total.Published != nil {
			configurations, tables = append(configurations, total.Configuration), append(tables, total.Published.Table)
			t.Columns = append(t.Columns, Column{Name: total.Configuration, Numeric: true})
		}
	}
	for _, c := range s.cases {
		row, some := []Cell{{Text: c.Name}}, false
		for _, name := range configurations {
			e := s.cells[[2]string{c.Name, name}]
			if e == nil || e.Score.Published == nil {
				row = append(row, Cell{Text: none, Missing: true})
				continue
			}
			some = true
			row = append(row, beside(decimal(e.Score.Score, 2), e.Score.Published.Score))
		}
		if some {
			t.Rows = append(t.Rows, row)
		}
	}
	totals, counts := []Cell{{Text: "total"}}, []Cell{{Text: "cases in it"}}
	for _, total := range s.said.Totals {
		if p := total.Published; p != nil {
			totals = append(totals, beside(decimal(total.Rounded, 2), p.Total))
			counts = append(counts, beside(fmt.Sprint(s.said.Cases), fmt.Sprint(p.Cases)))
		}
	}
	t.Rows = append(t.Rows, totals, counts)
	t.Sums = 2
	t.Notes = publishedScoreNotes(tables)
	return t, len(configurations) > 0
}

// beside is a cell of our figure with the paper's.
func beside(ours, theirs string) Cell {
	theirs = "paper " + theirs
	return Cell{Text: ours, Short: ours + ", " + theirs, Remark: theirs}
}

// publishedScoreNotes say where the paper's figures come from and how far they
// can be compared.
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
			", as printed: another machine, with VMware ESXi and with Docker on AUFS, and the programs and sizes of the Phoronix Test Suite.",
		"A score is over the best of the configurations measured together, and a total sums up the cases there are. The paper's are over its own configurations and cases, whatever this run has: compare how the configurations rank rather than the figures.",
	}
}
