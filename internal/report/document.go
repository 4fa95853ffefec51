package report

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"unnest/internal/measure/result"
)

// Document is a report before it is printed.
type Document struct {
	SchemaVersion    int          `json:"schema_version"`
	Command          string       `json:"-"` // that made it, default report
	Title            string       `json:"title"`
	Description      string       `json:"description,omitempty"`
	Run              string       `json:"run"`               // run identifier; two in a comparison
	Dir              string       `json:"dir,omitempty"`     // run directory
	Setting          string       `json:"setting"`           // "6 repetitions, tcg": printed with every table and chart
	Answer           string       `json:"answer,omitempty"`  // the main finding in one sentence
	Paths            []Path       `json:"paths,omitempty"`   // what a packet crosses in each configuration
	Headlines        []string     `json:"headlines"`         // the findings in plain words
	Figures          []KeyFigure  `json:"figures,omitempty"` // the few numbers to remember
	Warnings         []string     `json:"warnings,omitempty"`
	Baselines        []string     `json:"baselines"`        // the main one first
	Series           []Series     `json:"series"`           // the configurations
	Suites           []SuiteScore `json:"suites,omitempty"` // scores of suites of cases
	Groups           []Group      `json:"groups"`           // one per group of cases
	Failures         Table        `json:"failures"`
	EstimateWarnings Table        `json:"doubts"` // warnings on single estimates
	Provenance       Table        `json:"provenance"`
	File             string       `json:"file,omitempty"` // the experiment file
	Methods          []Method     `json:"methods"`        // how to read the report
	Families         []Family     `json:"families,omitempty"`
	Estimates        []Estimate   `json:"estimates"` // everything computed, in long form

	pathsOf pathKind

	// Samples are those of the run that Build was given; a comparison has none.
	Samples []result.Sample `json:"-"`
	// Source is the run that Build was given.
	Source result.Run `json:"-"`

	// Data is what JSON prints, and Records what CSV prints, of a document that is not
	// made of runs.
	Data    any        `json:"-"`
	Records [][]string `json:"-"`
}

// putSettings prints the setting of the document with every table and chart.
func (d *Document) putSettings() {
	for _, g := range d.Groups {
		for i := range g.Tables {
			g.Tables[i].Setting = d.Setting
		}
		for i := range g.Charts {
			g.Charts[i].Setting = d.Setting
		}
	}
}

// answerFirst makes the headline at i the answer, if there is one.
func (d *Document) answerFirst(i int) {
	if i < len(d.Headlines) {
		d.Answer = d.Headlines[i]
		d.Headlines = slices.Delete(d.Headlines, i, i+1)
	}
}

// sayBefore puts sentences before the answer.
func (d *Document) sayBefore(sentences []string) {
	d.Answer = strings.TrimSpace(strings.Join(append(sentences, d.Answer), " "))
}

// RunName names the run of a document, if it has one.
func (d Document) RunName() string {
	if d.Run == "" {
		return ""
	}
	return "run " + d.Run
}

// join joins the parts that are not empty with a comma.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

// KeyFigure is one number worth a line of its own.
type KeyFigure struct {
	Value  string `json:"value"`  // "1.52×"
	Label  string `json:"label"`  // "NAT / NoCont"
	Detail string `json:"detail"` // "UDP ping-pong, 1280 B, latency (1.49 to 1.55)"
	Series string `json:"series"` // the configuration or scheme of the figure
	Badge  string `json:"badge,omitempty"`
	Open   bool   `json:"open,omitempty"` // the verdict is not known
}

// Series is one configuration in charts and tables.
type Series struct {
	Name  string `json:"name"`
	Stack string `json:"stack,omitempty"`
	Slot  int    `json:"slot"` // colour and mark, the same for a known name in every report
}

// Group is a section: charts and tables on cases that differ only in message size, or on
// one subject.
type Group struct {
	ID     string  `json:"id"` // usable as an anchor
	Title  string  `json:"title"`
	Charts []Chart `json:"charts,omitempty"`
	Tables []Table `json:"tables"`
}

// add appends the tables that have rows.
func (g *Group) add(tables ...Table) {
	for _, t := range tables {
		if len(t.Rows) > 0 {
			g.Tables = append(g.Tables, t)
		}
	}
}

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

// forPage returns t without the columns of a terminal.
func (t Table) forPage() Table {
	var kept []int
	for j, c := range t.Columns {
		if !c.Console {
			kept = append(kept, j)
		}
	}
	t.Columns, t.Rows = pick(t.Columns, kept), pickEach(t.Rows, kept)
	return t
}

// column appends a column; cell returns its cell in row i. The rows must be there.
func (t *Table) column(c Column, cell func(i int) Cell) {
	t.Columns = append(t.Columns, c)
	for i := range t.Rows {
		t.Rows[i] = append(t.Rows[i], cell(i))
	}
}

// Cell is one cell of a table.
type Cell struct {
	Text    string `json:"text"`
	Short   string `json:"short,omitempty"`   // instead of Text in narrow output
	Badge   string `json:"badge,omitempty"`   // the verdict on Text, left out on a terminal
	Remark  string `json:"remark,omitempty"`  // next to or under Text, left out on a terminal
	Repeat  bool   `json:"repeat,omitempty"`  // the same as in the row above
	Missing bool   `json:"missing,omitempty"` // there is no value; Text says why
	Series  string `json:"series,omitempty"`  // the configuration that the cell names
}

// The kinds of chart.
const (
	Bars   = "bars"   // values with their intervals, from zero
	Ratios = "ratios" // ratios with their intervals, around one
	Stack  = "stack"  // parts that add up
	CDF    = "cdf"    // cumulative distributions, as stairs
	Totals = "totals" // as Bars, of sums, which may be below zero
	Levels = "levels" // as Bars, of means with their standard errors by level of virtualization
	Lines  = "lines"  // values over X, joined by straight lines
	Forest = "forest" // as Ratios, of one series, lying: a line for each category
)

// Chart is a figure as data.
type Chart struct {
	ID         string        `json:"id"`
	Kind       string        `json:"kind"`
	Title      string        `json:"title"`
	Setting    string        `json:"setting"`
	Axis       string        `json:"axis"`                 // quantity and unit of the values
	XAxis      string        `json:"x_axis,omitempty"`     // quantity and unit of X, of Lines
	Categories []string      `json:"categories,omitempty"` // none of a CDF or Lines
	Slots      []int         `json:"slots,omitempty"`      // colour of each category, in charts of one series
	Series     []ChartSeries `json:"series"`
	Margin     float64       `json:"margin,omitempty"` // half width of the band of equivalence around 1
	Log        bool          `json:"log,omitempty"`    // the axis is logarithmic
	Words      string        `json:"words"`            // for screen readers
	overCases  bool          // the intervals are over cases, not over blocks
}

// ChartSeries holds one value per category, NaN where it is missing. Of a CDF it holds
// all values in ascending order.
type ChartSeries struct {
	Name   string   `json:"name"`
	Slot   int      `json:"slot"`
	X      []Number `json:"x,omitempty"` // of Lines
	Values []Number `json:"values"`
	Low    []Number `json:"low,omitempty"`
	High   []Number `json:"high,omitempty"`
}

// Method explains one term of the report.
type Method struct {
	Term string `json:"term"`
	Text string `json:"text"`
}

// Number is a float that may be missing: NaN, null in JSON.
type Number float64

var missing = Number(math.NaN())

// Defined reports whether there is a finite number.
func (n Number) Defined() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// MarshalJSON writes null for a missing number.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Defined() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}
