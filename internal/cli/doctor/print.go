package doctor

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/testbed/doctor"
)

func printJSON(streams terminal.Streams, checks []doctor.Check) error {
	enc := json.NewEncoder(streams.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(checks)
}

// row is one line of the table. The last column is as wide as it needs.
type row struct {
	cells  [4]string
	colour string // of the state; empty: none
}

// printTable prints one line per check and, below it, how to fix it.
func printTable(streams terminal.Streams, checks []doctor.Check) error {
	rows := []row{{cells: [...]string{"CHECK", "STATE", "NEED", "FOUND"}}}
	for _, c := range checks {
		r := row{cells: [...]string{c.Name, string(c.State), "optional", strings.ReplaceAll(c.Found, "\n", " ")}}
		if c.Required {
			r.cells[2] = "required"
		}
		if streams.Colour {
			r.colour = colourOf(c)
		}
		rows = append(rows, r)
		if c.Remedy != "" {
			rows = append(rows, row{cells: [...]string{"", "", "", "→ " + c.Remedy}})
		}
	}
	var widths [4]int
	for _, r := range rows {
		for i, cell := range r.cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, r := range rows {
		state := fmt.Sprintf("%-*s", widths[1], r.cells[1])
		if r.colour != "" {
			state = r.colour + r.cells[1] + reset + state[len(r.cells[1]):]
		}
		fmt.Fprintf(&text, "%-*s  %s  %-*s  %s\n", widths[0], r.cells[0], state, widths[2], r.cells[2], r.cells[3])
	}
	_, err := fmt.Fprint(streams.Out, text.String())
	return err
}

// The colours of states, as ECMA-48 select graphic rendition.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	reset  = "\x1b[0m"
)

func colourOf(c doctor.Check) string {
	switch {
	case c.State == doctor.OK:
		return green
	case c.State == doctor.Missing && c.Required:
		return red
	}
	return yellow
}
