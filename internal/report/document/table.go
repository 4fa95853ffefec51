package document

import (
	"fmt"
	"math"
)

// Table is a grid of text.
type Table struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Setting string   `json:"setting,omitempty"` // printed with the title
	Columns []Column `json:"columns"`
	Rows    [][]Cell `json:"rows"`
	Notes   []string `json:"notes,omitempty"`
	Minor   bool     `json:"minor,omitempty"` // less important; folded on a page
	Sums    int      `json:"sums,omitempty"`  // number of rows at the end with sums
}

// Column is one column of a table.
type Column struct {
	Name    string `json:"name"`
	Numeric bool   `json:"numeric,omitempty"` // aligned to the right
	Wide    bool   `json:"wide,omitempty"`    // left out of narrow output
	Page    bool   `json:"page,omitempty"`    // left out on a terminal
	Console bool   `json:"console,omitempty"` // printed on a terminal only
	Header  bool   `json:"header,omitempty"`  // its cells name their row
}

// Cell is one cell of a table.
type Cell struct {
	Text    string `json:"text"`
	Short   string `json:"short,omitempty"`   // instead of Text in narrow output
	Badge   string `json:"badge,omitempty"`   // the verdict on Text, left out on a terminal
	Remark  string `json:"remark,omitempty"`  // next to or under Text, left out on a terminal
	Repeat  bool   `json:"repeat,omitempty"`  // the same as in the row above
	Missing bool   `json:"missing,omitempty"` // there is no value; Text says why
	Series  string `json:"series,omitempty"`  // the series that the cell names
}

// Column appends a column; cell returns its cell in row i. The rows must be there.
func (t *Table) Column(c Column, cell func(i int) Cell) {
	t.Columns = append(t.Columns, c)
	for i := range t.Rows {
		t.Rows[i] = append(t.Rows[i], cell(i))
	}
}

// ForPage returns t without the columns of a terminal.
func (t Table) ForPage() Table {
	page := t
	page.Columns, page.Rows = nil, make([][]Cell, len(t.Rows))
	for j, c := range t.Columns {
		if !c.Console {
			page.Column(c, func(i int) Cell { return t.Rows[i][j] })
		}
	}
	return page
}

// ForTerminal returns the columns of t for a terminal and the texts in them, below their names.
func (t Table) ForTerminal() ([]Column, [][]string) {
	var columns []Column
	grid := make([][]string, len(t.Rows)+1)
	for j, c := range t.Columns {
		if c.Wide || c.Page {
			continue
		}
		columns = append(columns, c)
		grid[0] = append(grid[0], Clean(c.Name))
		for i, row := range t.Rows {
			grid[i+1] = append(grid[i+1], Clean(row[j].short()))
		}
	}
	return columns, grid
}

// short is the text of a cell in narrow output.
func (c Cell) short() string {
	switch {
	case c.Repeat:
		return ""
	case c.Short != "":
		return c.Short
	}
	return c.Text
}

// NumericColumns are a column that names the rows and numeric ones.
func NumericColumns(header string, numeric ...string) []Column {
	columns := []Column{{Name: header, Header: true}}
	for _, name := range numeric {
		columns = append(columns, Column{Name: name, Numeric: true})
	}
	return columns
}

// TextRow is a row of plain cells.
func TextRow(texts ...string) []Cell {
	var row []Cell
	for _, text := range texts {
		row = append(row, Cell{Text: text})
	}
	return row
}

// NoValue is a cell without a value.
var NoValue = Cell{Text: None, Missing: true}

// NumericCell is a cell for v, printed as text.
func NumericCell(v Number, text string) Cell { return Cell{Text: text, Missing: !v.Defined()} }

// NumberCell is a cell for v.
func NumberCell(v Number) Cell { return NumericCell(v, Rounded(v)) }

// ChangeCell is a fraction as a percentage with its sign.
func ChangeCell(v Number) Cell {
	if !v.Defined() {
		return NoValue
	}
	places := 2
	if math.Abs(float64(v)) >= 10 { // such as +2577.2 %
		places = 1
	}
	return Cell{Text: fmt.Sprintf("%+.*f %%", places, 100*float64(v))}
}

// ShareCell is a positive fraction as a percentage with three significant digits.
func ShareCell(v Number) Cell {
	percent := 100 * v
	if !v.Defined() {
		return NoValue
	}
	return Cell{Text: Decimal(percent, max(0, Decimals(percent)-1)) + " %"}
}

// PCell is the p of a test with three decimals.
func PCell(p Number) Cell {
	if p < 0.001 {
		return Cell{Text: "< 0.001"}
	}
	return NumericCell(p, Decimal(p, 3))
}
