package report

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// TextOptions says how a document is printed on a terminal.
type TextOptions struct {
	Width  int  // columns, default 100; wider tables exceed it
	Colour bool // ANSI escape sequences
	Brief  bool // findings, warnings, main tables and failures only
}

// Text prints doc for a terminal: aligned tables, the last column of each
// wrapped to the width.
func Text(w io.Writer, doc Document, o TextOptions) error {
	if o.Width == 0 {
		o.Width = 100
	}
	p := textPrinter{options: o}
	p.document(doc)
	_, err := w.Write(p.buf.Bytes())
	return err
}

// Escape sequences, used in pairs with plain.
const (
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

type textPrinter struct {
	buf     bytes.Buffer
	options TextOptions
}

func (p *textPrinter) document(doc Document) {
	p.line(bold, doc.Title)
	for _, line := range []string{join(doc.Setting, doc.RunName()), doc.Dir} {
		if line != "" {
			p.line(faint, line)
		}
	}
	p.buf.WriteString("\n")
	for _, h := range doc.Headlines {
		p.wrapped("", "- ", h)
	}
	for i, warning := range doc.Warnings {
		if i == 0 {
			p.buf.WriteString("\n")
		}
		p.wrapped(yellow, "! ", warning)
	}
	for _, g := range doc.Groups {
		for _, t := range g.Tables {
			if !t.Minor || !p.options.Brief {
				p.table(t)
			}
		}
	}
	p.table(doc.Failures)
	if !p.options.Brief {
		p.warningList(doc.EstimateWarnings)
		p.table(doc.Provenance)
	}
}

// warningList prints a table of two long columns as a list.
func (p *textPrinter) warningList(t Table) {
	if len(t.Rows) == 0 {
		return
	}
	p.buf.WriteString("\n")
	p.line(bold, t.Title)
	for _, row := range t.Rows {
		p.wrapped("", "  - ", row[1].Text+": "+row[0].Text)
	}
}

// line prints one line in a style.
func (p *textPrinter) line(style, text string) {
	p.buf.WriteString(p.styled(style, clean(text)) + "\n")
}

func (p *textPrinter) styled(style, text string) string {
	if !p.options.Colour || style == "" || text == "" {
		return text
	}
	return style + text + plain
}

// wrapped prints text with a hanging indent under mark.
func (p *textPrinter) wrapped(style, mark, text string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(mark))
	for i, l := range wrap(clean(text), p.options.Width-len(indent)) {
		if i > 0 {
			mark = indent
		}
		p.buf.WriteString(p.styled(style, mark+l) + "\n")
	}
}

// table prints t unless it has no rows.
func (p *textPrinter) table(t Table) {
	if len(t.Rows) == 0 {
		return
	}
	p.buf.WriteString("\n")
	p.line(bold, join(t.Title, t.Setting))
	columns, grid := compact(t)
	widths := p.widths(columns, grid)
	if widths[len(widths)-1] == 0 {
		grid[0][len(widths)-1] = "" // the last column is printed below the others, without a header
	}
	p.row(faint, columns, widths, grid[0])
	for _, row := range grid[1:] {
		p.row("", columns, widths, row)
	}
	for _, n := range t.Notes {
		p.wrapped("", "  ", n)
	}
}

// compact picks the columns for a terminal. The first row of the grid is the header.
func compact(t Table) ([]Column, [][]string) {
	var columns []Column
	grid := make([][]string, len(t.Rows)+1)
	for j, c := range t.Columns {
		if c.Wide {
			continue
		}
		columns = append(columns, c)
		grid[0] = append(grid[0], clean(c.Name))
		for i, row := range t.Rows {
			grid[i+1] = append(grid[i+1], clean(compactText(row[j])))
		}
	}
	return columns, grid
}

func compactText(c Cell) string {
	switch {
	case c.Repeat:
		return ""
	case c.Short != "":
		return c.Short
	}
	return c.Text
}

// minLast is the least width of the last column; with less, it is printed below the
// others.
const minLast = 24

// widths returns the width of each column: the width of its widest cell, or for a last
// column of words the rest of the line, 0 if that is too little.
func (p *textPrinter) widths(columns []Column, grid [][]string) []int {
	widths := make([]int, len(columns))
	left := p.options.Width
	for j := range columns {
		for _, row := range grid {
			widths[j] = max(widths[j], utf8.RuneCountInString(row[j]))
		}
		left -= widths[j] + 2
	}
	last := len(columns) - 1
	if left >= 0 || columns[last].Numeric {
		return widths
	}
	widths[last] += left
	if widths[last] < minLast {
		widths[last] = 0
	}
	return widths
}

// row prints one row of a table, on several lines when its last cell needs them.
func (p *textPrinter) row(style string, columns []Column, widths []int, cells []string) {
	last := len(cells) - 1
	var line strings.Builder
	for j, cell := range cells[:last] {
		line.WriteString("  " + pad(cell, widths[j], columns[j].Numeric))
	}
	if widths[last] == 0 {
		p.print(style, line.String())
		if cells[last] != "" {
			p.wrapped(style, strings.Repeat(" ", widths[0]+4), cells[last])
		}
		return
	}
	start := line.String()
	for _, part := range wrap(cells[last], widths[last]) {
		p.print(style, start+"  "+pad(part, widths[last], columns[last].Numeric))
		start = strings.Repeat(" ", utf8.RuneCountInString(start))
	}
}

// print prints one line, without trailing space.
func (p *textPrinter) print(style, text string) {
	p.buf.WriteString(p.styled(style, strings.TrimRight(text, " ")) + "\n")
}

func pad(s string, width int, right bool) string {
	space := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
	if right {
		return space + s
	}
	return s + space
}

// wrap breaks s between words into lines of at most width runes, unless a word is
// longer. It returns at least one line.
func wrap(s string, width int) []string {
	lines := []string{""}
	for _, word := range strings.FieldsFunc(glue(s), func(r rune) bool { return r == ' ' }) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], noBreak, " ")
	}
	return lines
}

// clean replaces control characters, which could control the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r):
			return utf8.RuneError
		}
		return r
	}, s)
}
