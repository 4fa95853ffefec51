// Package text prints documents for a terminal.
package text

import (
	"bytes"
	"cmp"
	"io"
	"strings"
	"unicode/utf8"

	"unnest.io/unnest/internal/report/document"
)

// Options says how a document is printed on a terminal.
type Options struct {
	Width  int  // columns, default 80; wider tables are split by columns
	Colour bool // ANSI escape sequences
	Brief  bool // findings, warnings, main tables and failures only
}

// Print prints doc for a terminal: aligned tables, the last column of each
// wrapped to the width.
func Print(w io.Writer, doc document.Document, o Options) error {
	o.Width = cmp.Or(o.Width, 80)
	p := printer{options: o}
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

type printer struct {
	buf     bytes.Buffer
	options Options
}

func (p *printer) document(doc document.Document) {
	p.wrapped(bold, "", doc.Title)
	for _, line := range []string{document.Join(doc.Setting, doc.RunName()), doc.Dir} {
		if line != "" {
			p.wrapped(faint, "", line)
		}
	}
	p.buf.WriteString("\n")
	switch {
	case doc.Caution != "":
		p.wrapped(yellow, "! ", doc.Caution)
		p.buf.WriteString("\n")
		p.wrapped("", "", doc.Finding())
		p.buf.WriteString("\n")
	case doc.Answer != "":
		p.wrapped(bold, "", doc.Answer)
		p.buf.WriteString("\n")
	}
	for _, h := range doc.Said() {
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
		p.table(doc.Provenance)
	}
}

func (p *printer) styled(style, text string) string {
	if !p.options.Colour || style == "" || text == "" {
		return text
	}
	return style + text + plain
}

// wrapped prints text with a hanging indent under mark.
func (p *printer) wrapped(style, mark, text string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(mark))
	for i, l := range wrap(document.Clean(text), p.options.Width-len(indent)) {
		if i > 0 {
			mark = indent
		}
		p.buf.WriteString(p.styled(style, mark+l) + "\n")
	}
}

// table prints t unless it has no rows.
func (p *printer) table(t document.Table) {
	if len(t.Rows) == 0 {
		return
	}
	p.buf.WriteString("\n")
	p.wrapped(bold, "", document.Join(t.Title, t.Setting))
	columns, grid := t.ForTerminal()
	for i, part := range p.parts(columns, grid) {
		if i > 0 {
			p.buf.WriteString("\n")
		}
		p.grid(pick(columns, part), pickEach(grid, part))
	}
	for _, n := range t.Notes {
		p.wrapped("", "  ", n)
	}
}

// grid prints rows, of which the first is the header.
func (p *printer) grid(columns []document.Column, grid [][]string) {
	widths := p.widths(columns, grid)
	if widths[len(widths)-1] == 0 {
		grid[0][len(widths)-1] = "" // the last column is printed below the others, without a header
	}
	p.row(faint, columns, widths, grid[0])
	for _, row := range grid[1:] {
		p.row("", columns, widths, row)
	}
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
	for _, word := range strings.FieldsFunc(document.Glue(s), isSpace) {
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
		lines[i] = strings.ReplaceAll(lines[i], document.NoBreak, " ")
	}
	return lines
}
