package report

import (
	"fmt"
	"strings"

	"unnest/internal/measure/stats"
)

// cpuTime makes a table of the CPU time per unit of work, and a stacked chart per side.
// It shows means, because the means of the parts add up to the mean of the total. The
// table is empty when no part was measured.
func cpuTime(g Group, families map[string][]Estimate) (Table, []Chart) {
	host, guest := cpuSide("host", families), cpuSide("guest", families)
	rows := append(host, guest...)
	if len(rows) == 0 {
		return Table{}, nil
	}
	first := rows[0].estimates[0]
	t := Table{ID: g.ID + "-cpu", Title: fmt.Sprintf("%s: CPU time per unit of work (%s, mean)", g.Title, first.Unit), Minor: true}
	t.Columns = rowColumns(rows[0].estimates)
	for i, e := range rows[0].estimates {
		t.Rows = append(t.Rows, rowCells(e, i > 0 && rows[0].estimates[i-1].Case == e.Case))
	}
	var charts []Chart
	for _, s := range []struct {
		name  string
		parts []cpuPart
	}{{"host", host}, {"guest", guest}} {
		if len(s.parts) == 0 {
			continue
		}
		addParts(&t, s.name, s.parts)
		charts = append(charts, stackChart(g, s.name, s.parts))
	}
	t.Notes = softNotes(families["guest_soft"])
	return t, charts
}

// cpuPart is one part of the CPU time of a side, in the order of the table rows.
type cpuPart struct {
	name      string
	estimates []Estimate
}

func cpuSide(side string, families map[string][]Estimate) []cpuPart {
	var parts []cpuPart
	for _, p := range cpuParts {
		if f := families[p.metric]; strings.HasPrefix(p.metric, side+"_") && measured(f) {
			parts = append(parts, cpuPart{p.column, f})
		}
	}
	return parts
}

// addParts adds a column per part and one for their sum.
func addParts(t *Table, side string, parts []cpuPart) {
	for _, p := range parts {
		t.Columns = append(t.Columns, Column{Name: side + " " + p.name, Numeric: true})
	}
	t.Columns = append(t.Columns, Column{Name: side + " total", Numeric: true})
	for i, first := range parts[0].estimates {
		var means []Number
		for _, p := range parts {
			means = append(means, find(p.estimates, first.Case, first.Configuration).Mean)
		}
		for _, v := range append(means, sum(means)) {
			t.Rows[i] = append(t.Rows[i], numeric(v, number(v)))
		}
	}
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
