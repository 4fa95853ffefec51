package text

import (
	"slices"
	"strings"
	"unicode/utf8"

	"unnest.io/unnest/internal/report/document"
)

// parts splits the columns into parts that fit the width, each with the columns that name
// the rows. A column of words takes no room at the end of a part, because it can be printed
// below.
func (p *printer) parts(columns []document.Column, grid [][]string) [][]int {
	width := func(j int) int {
		widest, _ := extent(grid, j)
		return widest + 2
	}
	var names []int
	used := 0
	for j, c := range columns {
		if c.Header {
			names, used = append(names, j), used+width(j)
		}
	}
	if used > p.options.Width/2 && len(names) < len(columns) { // names are wrapped rather than alone on the line
		used = 0
		for _, j := range names {
			_, word := extent(grid, j)
			used += word + 2
		}
	}
	parts, left := [][]int{slices.Clone(names)}, p.options.Width-used
	for j, c := range columns {
		if c.Header {
			continue
		}
		last := &parts[len(parts)-1]
		if need := width(j); left < need && (c.Numeric || left <= 0) && len(*last) > len(names) {
			parts, left = append(parts, slices.Clone(names)), p.options.Width-used
			last = &parts[len(parts)-1]
		}
		if *last, left = append(*last, j), left-width(j); left < 0 {
			left = 0 // nothing fits after words that are printed below
		}
	}
	return parts
}

// extent returns the width of the widest cell of a column and of its longest word.
func extent(grid [][]string, j int) (cell, word int) {
	for _, row := range grid {
		cell = max(cell, utf8.RuneCountInString(row[j]))
		for _, w := range strings.FieldsFunc(document.Glue(row[j]), isSpace) {
			word = max(word, utf8.RuneCountInString(w))
		}
	}
	return cell, word
}

func isSpace(r rune) bool { return r == ' ' }

// pick returns the elements of xs at the indices.
func pick[T any](xs []T, indices []int) []T {
	picked := make([]T, len(indices))
	for i, j := range indices {
		picked[i] = xs[j]
	}
	return picked
}

// pickEach is pick for every row.
func pickEach[T any](rows [][]T, indices []int) [][]T {
	picked := make([][]T, len(rows))
	for i, row := range rows {
		picked[i] = pick(row, indices)
	}
	return picked
}

// minLast is the least width of the last column; with less, it is printed below the
// others.
const minLast = 24

// widths returns the width of each column: the width of its widest cell, or for a last
// column of words the rest of the line, 0 if that is too little. If that is too wide, the
// cells of the other columns of words are wrapped, from the first one on.
func (p *printer) widths(columns []document.Column, grid [][]string) []int {
	widths, words := make([]int, len(columns)), make([]int, len(columns))
	left := p.options.Width
	for j := range columns {
		widths[j], words[j] = extent(grid, j)
		left -= widths[j] + 2
	}
	last := len(columns) - 1
	if left < 0 && !columns[last].Numeric && !columns[last].Header {
		widths[last] += left
		if left = 0; widths[last] < minLast {
			left = p.options.Width - 2*last
			for _, w := range widths[:last] {
				left -= w
			}
			widths[last] = 0
		}
	}
	for j := 0; j <= last && left < 0; j++ {
		if room := widths[j] - words[j]; !columns[j].Numeric && room > 0 {
			cut := min(room, -left)
			widths[j], left = widths[j]-cut, left+cut
		}
	}
	return widths
}

// row prints one row of a table, on several lines when a cell needs them.
func (p *printer) row(style string, columns []document.Column, widths []int, cells []string) {
	last := len(cells) - 1
	below := widths[last] == 0
	shown := cells
	if below {
		shown = cells[:last]
	}
	wrapped, lines := make([][]string, len(shown)), 1
	for j, cell := range shown {
		wrapped[j] = wrap(cell, widths[j])
		lines = max(lines, len(wrapped[j]))
	}
	for i := range lines {
		var line strings.Builder
		for j := range shown {
			part := ""
			if i < len(wrapped[j]) {
				part = wrapped[j][i]
			}
			line.WriteString("  " + pad(part, widths[j], columns[j].Numeric))
		}
		p.buf.WriteString(p.styled(style, strings.TrimRight(line.String(), " ")) + "\n")
	}
	if below && cells[last] != "" {
		indent := widths[0] + 4
		if p.options.Width-indent < minLast {
			indent = 6 // below a first column that fills the line
		}
		p.wrapped(style, strings.Repeat(" ", indent), cells[last])
	}
}
