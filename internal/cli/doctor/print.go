package doctor

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"unnest/internal/cli/terminal"
	"unnest/internal/testbed/doctor"
)

func printJSON(streams terminal.Streams, checks []doctor.Check) error {
	enc := json.NewEncoder(streams.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(checks)
}

// The titles of the columns; the last one is as wide as it needs.
var titles = [...]string{"CHECK", "STATE", "NEED", "FOUND"}

// printTable prints one line per check and, below it, what to do about it.
func printTable(streams terminal.Streams, checks []doctor.Check) error {
	widths := columnWidths(checks)
	var text strings.Builder
	writeRow(&text, widths, titles, "")
	for _, c := range checks {
		colour := ""
		if streams.Colour {
			colour = colourOf(c)
		}
		writeRow(&text, widths, row(c), colour)
		if c.Remedy != "" {
			writeRow(&text, widths, [...]string{"", "", "", "→ " + c.Remedy}, "")
		}
	}
	_, err := fmt.Fprint(streams.Out, text.String())
	return err
}

func row(c doctor.Check) [len(titles)]string {
	need := "optional"
	if c.Required {
		need = "required"
	}
	return [...]string{c.Name, string(c.State), need, strings.ReplaceAll(c.Found, "\n", " ")}
}

func columnWidths(checks []doctor.Check) (widths [len(titles)]int) {
	widen := func(cells [len(titles)]string) {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	widen(titles)
	for _, c := range checks {
		widen(row(c))
	}
	return widths
}

// writeRow writes cells side by side, the state in colour.
func writeRow(text *strings.Builder, widths [len(titles)]int, cells [len(titles)]string, colour string) {
	last := len(cells) - 1
	for i, cell := range cells[:last] {
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		if i == 1 && colour != "" {
			cell = colour + cell + reset
		}
		text.WriteString(cell + pad)
	}
	text.WriteString(cells[last] + "\n")
}

// The colours of states: ECMA-48 select graphic rendition.
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
