package runs

import (
	"fmt"
	"strings"

	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
)

// cpuTime makes tables of the CPU time per unit of work, and a stacked chart per side. They
// show means, because the means of the parts add up to the mean of the total. There is nothing
// when no part was measured.
func cpuTime(g document.Group, families map[string][]estimate.Estimate) (tables []document.Table, charts []document.Chart) {
	for i, sides := range cpuSides {
		t := document.Table{ID: g.ID + "-cpu", Minor: true}
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
				t.Title = fmt.Sprintf("%s: %s per unit of work (%s, mean)", g.Title, what, naming.Unit(first.Unit))
				estimate.LabelRows(&t, parts[0].estimates)
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
	estimates []estimate.Estimate
}

func (s cpuSide) parts(families map[string][]estimate.Estimate) []cpuPart {
	var parts []cpuPart
	for _, p := range naming.CPUTimes {
		if f := families[p.Metric]; strings.HasPrefix(p.Metric, s.name+"_") && estimate.Measured(f) {
			parts = append(parts, cpuPart{p.Column, f})
		}
	}
	return parts
}

// addParts adds a column of means per part and one for their sum.
func addParts(t *document.Table, side string, parts []cpuPart) {
	rows := parts[0].estimates
	mean := func(p cpuPart, i int) document.Number {
		return estimate.Find(p.estimates, rows[i].Case, rows[i].Configuration).Mean
	}
	for _, p := range parts {
		t.Column(document.Column{Name: side + " " + p.name, Numeric: true}, func(i int) document.Cell { return document.NumberCell(mean(p, i)) })
	}
	t.Column(document.Column{Name: side + " total", Numeric: true}, func(i int) document.Cell {
		var means []document.Number
		for _, p := range parts {
			means = append(means, mean(p, i))
		}
		return document.NumberCell(document.Sum(means))
	})
}

// softNotes compare the time in software interrupts of the guest, which do the NAT
// (Bacou et al. 2019, §5.2.3).
func softNotes(family []estimate.Estimate) []string {
	var notes []string
	for _, e := range family {
		for _, c := range e.Comparisons {
			if e.Case == estimate.Reference(family).Case && c.First && c.Words != "" && c.Verdict != stats.TooFew {
				notes = append(notes, fmt.Sprintf("%s, %s: %s.", e.Label, e.Configuration, c.Words))
			}
		}
	}
	return notes
}

// cpuSides are the prefixes of naming.CPUTimes that share a table, with what they are the time of.
var cpuSides = [][]cpuSide{
	{{"host", "on the host"}, {"guest", "in the guest"}, {"node", "on the nodes"}},
	{{"vm", "of the VM's process on the host"}, {"server", "of the server's process"}},
}

type cpuSide struct{ name, where string }
