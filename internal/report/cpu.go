package report

import (
	"fmt"
	"strings"

	"unnest/internal/measure/stats"
)

// cpuTime makes tables of the CPU time per unit of work, and a stacked chart per side. They
// show means, because the means of the parts add up to the mean of the total. There is nothing
// when no part was measured.
func cpuTime(g Group, families map[string][]Estimate) (tables []Table, charts []Chart) {
	for i, sides := range cpuSides {
		t := Table{ID: g.ID + "-cpu", Minor: true}
		if i > 0 {
			t.ID += fmt.Sprintf("-%d", i+1)
		}
		for _, s := range sides {
			parts := s.parts(families)
			if len(parts) == 0 {
				continue
			}
			first := parts[0].estimates[0]
			if t.Rows == nil {
				what := []string{"CPU time", "CPU time of processes"}[i]
				t.Title = fmt.Sprintf("%s: %s per unit of work (%s, mean)", g.Title, what, shown(first.Unit))
				t.labels(parts[0].estimates)
			}
			addParts(&t, s.name, parts)
			charts = append(charts, stackChart(g, s, parts))
		}
		if i == 0 {
			t.Notes = softNotes(families["guest_soft"])
		}
		tables = append(tables, t)
	}
	return tables, charts
}

// cpuPart is one part of the CPU time of a side, in the order of the table rows.
type cpuPart struct {
	name      string
	estimates []Estimate
}

func (s cpuSide) parts(families map[string][]Estimate) []cpuPart {
	var parts []cpuPart
	for _, p := range cpuParts {
		if f := families[p.metric]; strings.HasPrefix(p.metric, s.name+"_") && measured(f) {
			parts = append(parts, cpuPart{p.column, f})
		}
	}
	return parts
}

// addParts adds a column of means per part and one for their sum.
func addParts(t *Table, side string, parts []cpuPart) {
	rows := parts[0].estimates
	mean := func(p cpuPart, i int) Number { return find(p.estimates, rows[i].Case, rows[i].Configuration).Mean }
	for _, p := range parts {
		t.column(Column{Name: side + " " + p.name, Numeric: true}, func(i int) Cell { return plainCell(mean(p, i)) })
	}
	t.column(Column{Name: side + " total", Numeric: true}, func(i int) Cell {
		var means []Number
		for _, p := range parts {
			means = append(means, mean(p, i))
		}
		return plainCell(sum(means))
	})
}

// softNotes compare the time in software interrupts of the guest, which do the NAT
// (Bacou et al. 2019, §5.2.3).
func softNotes(family []Estimate) []string {
	var notes []string
	for _, e := range family {
		for _, c := range e.Comparisons {
			if e.Case == reference(family).Case && c.first && c.Words != "" && c.Verdict != stats.TooFew {
				notes = append(notes, fmt.Sprintf("%s, %s: %s.", e.Label, e.Configuration, c.Words))
			}
		}
	}
	return notes
}
