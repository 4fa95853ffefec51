package render

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"unnest.io/unnest/internal/report/document"
)

// plotWidth is the number of columns between the ends of an axis.
const plotWidth = 48

// Plot draws a chart with intervals in characters, a line for each value, as a block of code in Markdown. 1 is a bar in
// charts of ratios.
func Plot(c document.Chart) string {
	number, ones := document.Rounded, []document.Number(nil)
	if c.Kind == document.Ratios || c.Kind == document.Forest {
		number, ones = document.Ratio, []document.Number{1}
	}
	low, high := c.Extent(ones...)
	column := func(n document.Number) int {
		at := func(n document.Number) float64 { return float64(n) }
		if c.Log {
			at = func(n document.Number) float64 { return math.Log(float64(n)) }
		}
		return int(math.Round((plotWidth - 1) * (at(n) - at(low)) / max(at(high)-at(low), math.SmallestNonzeroFloat64)))
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(category, series, value, line string) {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", plain(category), plain(series), value, strings.TrimRight(line, " "))
	}
	for i, category := range c.Categories {
		for _, s := range c.Series {
			v, interval := s.Values[i], document.NoInterval
			if !v.Defined() {
				continue
			}
			line := []rune(strings.Repeat(" ", plotWidth))
			for _, one := range ones {
				line[column(one)] = '│'
			}
			if i < len(s.Low) && s.Low[i].Defined() {
				interval = document.Interval{Low: s.Low[i], High: s.High[i]}
				from, to := column(s.Low[i]), column(s.High[i])
				copy(line[from:to+1], []rune("├"+strings.Repeat("─", max(0, to-from-1))+"┤"))
			}
			line[column(v)] = '●'
			text := number(v)
			if ones != nil {
				text = document.RatioWithInterval(v, interval)
			} else if interval.Low.Defined() {
				text += " " + document.Bracket(interval, document.Decimals(v))
			}
			row(category, s.Name, text, string(line))
			category = ""
		}
	}
	axis := []rune(number(low) + strings.Repeat(" ", plotWidth-len(number(low))-len(number(high))) + number(high))
	for _, one := range ones {
		if at := column(one); at > len(number(low)) && at < plotWidth-len(number(high))-1 {
			axis[at] = '1'
		}
	}
	row("", "", "", string(axis))
	_ = w.Flush()
	return fmt.Sprintf("```text\n%s\n%s%s\n```\n", plain(c.Title), b.String(), plain(c.Axis))
}

// plain keeps names from ending the block.
func plain(s string) string { return strings.ReplaceAll(document.Clean(s), "`", "'") }
