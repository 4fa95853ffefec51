package estimate

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/report/document"
)

// WarningTable lists the warnings on the estimates of the primary metrics, each warning
// once with the cells that it concerns.
func WarningTable(estimates []Estimate) document.Table {
	several := slices.ContainsFunc(estimates, func(e Estimate) bool { return e.Run != estimates[0].Run })
	var order []string
	concerned := map[string][]string{}
	add := func(warning, cell string) {
		if concerned[warning] == nil {
			order = append(order, warning)
		}
		concerned[warning] = append(concerned[warning], cell)
	}
	for _, e := range Primaries(estimates) {
		cell := e.Case + " in " + e.Configuration
		if several {
			cell = e.Run + ": " + cell
		}
		for _, d := range e.Warnings {
			add(d, cell)
		}
		for _, c := range e.Comparisons {
			for _, d := range c.Warnings {
				add(d, cell+" against "+c.Baseline)
			}
		}
	}
	t := document.Table{ID: "doubts", Title: "Warnings on single results", Columns: []document.Column{{Name: "warning", Header: true}, {Name: "concerns"}}}
	for _, warning := range order {
		cells := concerned[warning]
		text := strings.Join(cells[:min(len(cells), maxConcerned)], "; ")
		if rest := len(cells) - maxConcerned; rest > 0 {
			text += fmt.Sprintf("; and %d more", rest)
		}
		t.Rows = append(t.Rows, []document.Cell{{Text: warning}, {Text: text}})
	}
	return t
}

// maxConcerned is the number of cells that a warning names.
const maxConcerned = 6

// DoubtColumn appends a column that says next to each row why to trust it less: because of an
// estimate or its comparisons. Each of sides has one estimate per row. There is no column
// where nothing is doubtful.
func DoubtColumn(t *document.Table, sides ...[]Estimate) {
	cells, some := make([]document.Cell, len(t.Rows)), false
	for i := range t.Rows {
		for _, side := range sides {
			cells[i] = doubtsCell(cells[i], side[i], len(sides) > 1)
		}
		some = some || cells[i].Text != ""
	}
	if some {
		t.Column(document.Column{Name: "doubts", Page: true}, func(i int) document.Cell { return cells[i] })
	}
}

// doubtsCell adds the doubts about e to cell; named says of which run it is.
func doubtsCell(cell document.Cell, e Estimate, named bool) document.Cell {
	text := strings.Join(DoubtsOf(e), "; ")
	if e.N == 0 {
		text, cell.Missing = e.Missing, true
	}
	if named && text != "" {
		text = e.Run + ": " + text
	}
	cell.Text = strings.Join(slices.DeleteFunc([]string{cell.Text, text}, func(s string) bool { return s == "" }), "; ")
	return cell
}
