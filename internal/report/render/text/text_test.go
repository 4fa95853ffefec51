package text

import (
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/report/document"
)

func TestWrap(t *testing.T) {
	tests := []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"one two three", 7, []string{"one two", "three"}},
		{"unbreakable", 4, []string{"unbreakable"}},
		{"about 3.5 % of it (p < 0.001)", 9, []string{"about", "3.5 % of", "it", "(p < 0.001)"}},
	}
	for _, tt := range tests {
		if got := wrap(tt.text, tt.width); !slices.Equal(got, tt.want) {
			t.Errorf("wrap %q at %d: %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

// Wide tables are split by columns; each part names its rows.
func TestTextFitsTheWidth(t *testing.T) {
	table := document.Table{Title: "wide", Columns: []document.Column{{Name: "case", Header: true}}, Rows: [][]document.Cell{{{Text: "first"}}, {{Text: "second"}}}}
	for range 12 {
		table.Column(document.Column{Name: "a number", Numeric: true}, func(int) document.Cell { return document.Cell{Text: "123456"} })
	}
	var out strings.Builder
	if err := Print(&out, document.Document{Title: "t", Groups: []document.Group{{Tables: []document.Table{table}}}}, Options{}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if len(strings.TrimRight(line, "\n")) > 80 {
			t.Errorf("longer than 80 columns: %q", line)
		}
	}
	if n := strings.Count(out.String(), "second"); n != 2 || strings.Count(out.String(), "123456") != 24 {
		t.Errorf("%d parts of\n%s", n, out.String())
	}
}

// The words of a last column stand on lines of their own below a first column that fills the line.
func TestTextBelowAFullLine(t *testing.T) {
	name, command := strings.Repeat("name ", 15)+"end", "unnest bench FILE with these domains"
	table := document.Table{Title: "how", Columns: []document.Column{{Name: "advice", Header: true}, {Name: "command"}}, Rows: [][]document.Cell{{{Text: name}, {Text: command}}}}
	var out strings.Builder
	if err := Print(&out, document.Document{Title: "t", Groups: []document.Group{{Tables: []document.Table{table}}}}, Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "  "+name+"\n      "+command+"\n") {
		t.Errorf("name and command are not on a line each:\n%s", out.String())
	}
}
