package render

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"unnest.io/unnest/internal/report/document"
)

// plotWidth is the number of columns between the ends of an axis.
const plotWidth = 48

// Plot draws a chart with intervals in characters, a line for each value, as a block of code in Markdown. 1 is a bar in
// charts of ratios.
func Plot(c document.Chart) string {
	ratios := c.Kind == document.Ratios || c.Kind == document.Forest
	var lines [][4]string // category, series, value, its line
	scale := scaleOf(c, ratios)
	for i, category := range c.Categories {
		for _, s := range c.Series {
			if i >= len(s.Values) || !s.Values[i].Defined() {
				continue
			}
			v, interval := s.Values[i], document.NoInterval
			if i < len(s.Low) {
				interval = document.Interval{Low: s.Low[i], High: s.High[i]}
			}
			text := document.RatioWithInterval(v, interval)
			if !ratios {
				text = document.Join(document.Rounded(v), fmt.Sprintf("%s to %s", document.Rounded(interval.Low), document.Rounded(interval.High)))
			}
			lines = append(lines, [4]string{category, s.Name, text, scale.line(v, interval, ratios)})
			category = ""
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "```text\n%s\n", plain(c.Title))
	var widths [3]int
	for _, l := range lines {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(plain(l[i])))
		}
	}
	for _, l := range append(lines, [4]string{3: scale.axis(ratios)}) {
		for i, width := range widths {
			if width > 0 {
				b.WriteString(plain(l[i]) + strings.Repeat(" ", width-utf8.RuneCountInString(plain(l[i]))+2))
			}
		}
		b.WriteString(l[3] + "\n")
	}
	fmt.Fprintf(&b, "%s\n```\n", plain(c.Axis))
	return b.String()
}

// plain keeps names from ending the block.
func plain(s string) string { return strings.ReplaceAll(document.Clean(s), "`", "'") }

// scale maps values to columns.
type scale struct {
	low, high float64
	log       bool
}

func scaleOf(c document.Chart, ratios bool) scale {
	s := scale{math.Inf(1), math.Inf(-1), c.Log}
	see := func(n document.Number) {
		if n.Defined() {
			s.low, s.high = min(s.low, float64(n)), max(s.high, float64(n))
		}
	}
	if ratios {
		see(1)
	}
	for _, series := range c.Series {
		for i, v := range series.Values {
			if see(v); i < len(series.Low) {
				see(series.Low[i])
				see(series.High[i])
			}
		}
	}
	return s
}

func (s scale) column(n document.Number) int {
	at := func(v float64) float64 { return v }
	if s.log {
		at = math.Log
	}
	if s.low >= s.high {
		return 0
	}
	return int(math.Round((plotWidth - 1) * (at(float64(n)) - at(s.low)) / (at(s.high) - at(s.low))))
}

// line draws one value with its interval.
func (s scale) line(v document.Number, i document.Interval, ratios bool) string {
	line := []rune(strings.Repeat(" ", plotWidth))
	if ratios {
		line[s.column(1)] = '│'
	}
	if i.Low.Defined() && i.High.Defined() {
		low, high := s.column(i.Low), s.column(i.High)
		for j := low; j <= high; j++ {
			line[j] = '─'
		}
		line[low], line[high] = '├', '┤'
	}
	line[s.column(v)] = '●'
	return strings.TrimRight(string(line), " ")
}

// axis has the ends of the scale, and 1 of ratios where it does not touch them.
func (s scale) axis(ratios bool) string {
	number := document.Rounded
	if ratios {
		number = document.Ratio
	}
	low, high := number(document.Number(s.low)), number(document.Number(s.high))
	line := []rune(low + strings.Repeat(" ", max(1, plotWidth-len(low)-len(high))) + high)
	if one := s.column(1); ratios && one > len(low) && one < plotWidth-len(high)-1 {
		line[one] = '1'
	}
	return string(line)
}
