// Package document is what stands on a page of a report: sentences, tables, charts, and the
// numbers in them, printed. It knows no subject. Printing a document belongs to package render.
package document

import (
	"iter"
	"math"
	"slices"
	"strings"
	"time"
)

// Document is a report before it is printed.
type Document struct {
	Command     string      // that made it, default report
	Title       string      //
	Description string      // a paragraph
	Run         string      // run identifier; two in a comparison
	Dir         string      // run directory
	Setting     string      // "6 repetitions, tcg": printed with every table and chart
	Answer      string      // the main finding in one sentence, with Caution before it
	Caution     string      // why the answer is none: printed as a warning, and what follows without emphasis
	Diagram     Diagram     // of what is compared
	Headlines   []string    // the findings in plain words
	NotKnown    []string    // the comparisons that decide nothing, by subject: one line of the page, folded
	Figures     []KeyFigure // the few numbers to remember
	Warnings    []string
	Series      []Series // what has a colour of its own
	Groups      []Group
	Failures    Table
	Provenance  Table
	File        string   // the file that it was made from
	Methods     []Method // how to read the report

	SchemaVersion int        // of Data
	Data          any        // what JSON prints: an object
	Records       [][]string // what CSV prints: a line of columns, then rows
	Samples       Samples    // what the formats of benchmarks print
}

// PutSettings prints the setting of the document with every table and chart.
func (d *Document) PutSettings() {
	for _, g := range d.Groups {
		for i := range g.Tables {
			g.Tables[i].Setting = d.Setting
		}
		for i := range g.Charts {
			g.Charts[i].Setting = d.Setting
		}
	}
}

// AnswerFirst makes the headline at i the answer, if there is one.
func (d *Document) AnswerFirst(i int) {
	if i < len(d.Headlines) {
		d.Answer = d.Headlines[i]
		d.Headlines = slices.Delete(d.Headlines, i, i+1)
	}
}

// SayBefore puts sentences before the answer that take its weight from it.
func (d *Document) SayBefore(sentences []string) {
	if d.Caution = strings.Join(sentences, " "); d.Caution != "" {
		for i := range d.Figures {
			d.Figures[i].Open = true
		}
	}
	d.Answer = strings.TrimSpace(strings.Join(append(sentences, d.Answer), " "))
}

// Said are the headlines, with one line on what is not known.
func (d Document) Said() []string {
	if len(d.NotKnown) == 0 {
		return d.Headlines
	}
	return append(slices.Clone(d.Headlines), "Not known: "+strings.Join(d.NotKnown, "; ")+".")
}

// Finding is the answer without the caution before it.
func (d Document) Finding() string { return strings.TrimSpace(strings.TrimPrefix(d.Answer, d.Caution)) }

// RunName names the run of a document, if it has one.
func (d Document) RunName() string {
	if d.Run == "" {
		return ""
	}
	return "run " + d.Run
}

// KeyFigure is one number worth a line of its own.
type KeyFigure struct {
	Value  string `json:"value"`  // "1.52×"
	Label  string `json:"label"`  // "NAT / NoCont"
	Detail string `json:"detail"` // "UDP ping-pong, 1280 B, latency (1.49 to 1.55)"
	Series string `json:"series"` // whose figure it is
	Badge  string `json:"badge,omitempty"`
	Open   bool   `json:"open,omitempty"` // the verdict is not known
}

// Slots is the number of distinct colours of Series. From the ninth on they are darker ones of the first, with other marks.
const Slots = 16

// Series is one thing that is compared in charts and tables.
type Series struct {
	Name  string `json:"name"`
	Stack string `json:"stack,omitempty"`
	Slot  int    `json:"slot"` // colour and mark, below Slots
}

// Method explains one term of the report.
type Method struct {
	Term string `json:"term"`
	Text string `json:"text"`
}

// Group is a section: charts and tables on one subject.
type Group struct {
	ID     string  `json:"id"` // usable as an anchor
	Title  string  `json:"title"`
	Charts []Chart `json:"charts,omitempty"`
	Tables []Table `json:"tables"`
}

// Add appends the tables that have rows.
func (g *Group) Add(tables ...Table) {
	g.Tables = append(g.Tables, slices.DeleteFunc(slices.Clone(tables), func(t Table) bool { return len(t.Rows) == 0 })...)
}

// Fact is a name with a value.
type Fact struct{ Name, Value string }

// ProvenanceTable lists the facts that have a value.
func ProvenanceTable(facts []Fact) Table {
	t := Table{ID: "provenance", Title: "Provenance", Columns: []Column{{Name: "fact", Header: true}, {Name: "value"}}}
	for _, f := range facts {
		if f.Value != "" {
			t.Rows = append(t.Rows, TextRow(f.Name, f.Value))
		}
	}
	return t
}

// MaxFigures is the number of key figures that fit on two lines.
const MaxFigures = 8

// Diagram pictures what is compared: for each series a row of boxes. It has no rows where
// nothing is pictured.
type Diagram struct {
	Title  string
	Marked string // what boxes of kind nested are, empty if there are none
	Notes  []string
	Rows   []DiagramRow
}

// DiagramRow is one series in a diagram.
type DiagramRow struct {
	Series, Value, Badge string
	Frames               []Frame
}

// Frame holds boxes that belong together.
type Frame struct {
	Name, Note string
	Boxes      []Box
}

// Box is a part of what is pictured.
type Box struct {
	Name string
	Kind string // end, host, vm or nested: its colour
}

// Samples are the measured values of a document, for the formats of benchmarks.
type Samples struct {
	Run   string // identifier; empty where the document has no samples
	First string // the configuration that is printed first where that makes it the baseline
	Facts []Fact // true of all
	All   iter.Seq[Sample]
}

// Sample is one measured value.
type Sample struct {
	Run       string
	Test      string // what was measured: "udp_rr/1280"
	Title     string // of the test and of others that Keys tell apart: "UDP ping-pong"
	Keys      []Fact // such as size, 1280
	Metric    string
	Primary   bool // the metric that the test is about
	Unit      string
	Better    string // higher or lower
	Value     float64
	Execution int // equal where values were measured together
	Start     time.Time
	Labels    map[string]string // all that is known of it; empty ones are not printed
}

// The kinds of chart.
const (
	Bars   = "bars"   // values with their intervals, from zero
	Ratios = "ratios" // ratios with their intervals, around one
	Stack  = "stack"  // parts that add up
	CDF    = "cdf"    // cumulative distributions, as stairs
	Totals = "totals" // as Bars, of sums, which may be below zero
	Levels = "levels" // as Bars, of means with their standard errors by level
	Lines  = "lines"  // values over X, joined by straight lines
	Forest = "forest" // as Ratios, lying: a line for each category
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
	Of         string        `json:"-"`                // what a CDF has shares of
	Secondary  bool          `json:"-"`                // other ratios come before it at the top of a page
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

// Add appends one value with its interval.
func (s *ChartSeries) Add(v Number, i Interval) {
	s.Values, s.Low, s.High = append(s.Values, v), append(s.Low, i.Low), append(s.High, i.High)
}

// Point appends one point of a line.
func (s *ChartSeries) Point(x, y float64) {
	s.X, s.Values = append(s.X, Number(x)), append(s.Values, Number(y))
}

// logSpan is the quotient of the largest and the smallest ratio above which the axis is
// logarithmic.
const logSpan = 10

// Complete words a chart of ratios, and chooses its axis for the values, the ends of the
// intervals and 1.
func (c *Chart) Complete() {
	c.Describe(Ratio)
	low, high := c.Extent(1)
	if c.Log = low > 0 && high > logSpan*low; c.Log {
		c.Axis += ", logarithmic"
	}
}

// Extent returns the least and the largest of the values, the ends of their intervals, and numbers; infinities if there are none.
func (c Chart) Extent(numbers ...Number) (low, high Number) {
	low, high = Number(math.Inf(1)), Number(math.Inf(-1))
	for _, s := range c.Series {
		numbers = slices.Concat(numbers, s.Values, s.Low, s.High)
	}
	for _, v := range numbers {
		if v.Defined() {
			low, high = min(low, v), max(high, v)
		}
	}
	return low, high
}

// Describe words a chart with one value per category; value prints a number.
func (c *Chart) Describe(value func(Number) string) {
	var parts []string
	for _, s := range c.Series {
		var values []string
		for i, v := range s.Values {
			text := "missing"
			if v.Defined() {
				text = value(v)
			}
			values = append(values, c.Categories[i]+" "+text)
		}
		parts = append(parts, s.Name+": "+strings.Join(values, ", "))
	}
	c.Words = c.Title + ". " + strings.Join(parts, "; ") + "."
}
