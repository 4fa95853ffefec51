package document

import (
	"slices"
	"strings"
)

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
	low, high := Number(1), Number(1)
	for _, s := range c.Series {
		for _, v := range slices.Concat(s.Values, s.Low, s.High) {
			if v.Defined() {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if c.Log = low > 0 && high > logSpan*low; c.Log {
		c.Axis += ", logarithmic"
	}
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
