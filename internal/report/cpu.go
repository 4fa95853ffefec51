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
	t := Table{ID: g.ID + "-cpu", Title: fmt.Sprintf("%s: CPU time per unit of work (%s, mean)", g.Title, shown(first.Unit)), Minor: true}
	t.labels(rows[0].estimates)
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
