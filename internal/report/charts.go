package report

import (
	"fmt"
	"slices"
	"strings"
)

// valueChart draws the primary metric of a group: one bar per case and
// configuration, with its interval.
func (b *builder) valueChart(g Group, estimates []Estimate) Chart {
	first := estimates[0]
	c := Chart{
		ID: g.ID + "-values", Kind: Bars, Setting: setting(b.run), Categories: labels(estimates),
		Title: fmt.Sprintf("%s: %s, median and %s interval", g.Title, quantity(first.Metric), percent(b.opts.Confidence)),
		Axis:  fmt.Sprintf("%s, %s (%s)", quantity(first.Metric), first.Unit, better(first.Order)),
	}
	for _, s := range seriesOf(b.run) {
		series := ChartSeries{Name: s.Name, Slot: s.Slot}
		for _, e := range estimates {
			if e.Configuration == s.Name {
				series.add(e.Median, e.Interval)
			}
		}
		c.Series = append(c.Series, series)
	}
	c.Words = describe(c, func(v Number) string { return number(v) + " " + first.Unit })
	return c
}

// add appends one value with its interval.
func (s *ChartSeries) add(v Number, i Interval) {
	s.Values, s.Low, s.High = append(s.Values, v), append(s.Low, i.Low), append(s.High, i.High)
}

// addRatios adds to c a series for each configuration but the baseline, of what value
// makes of its comparisons with that. It reports whether there is any.
func (b *builder) addRatios(c *Chart, estimates []Estimate, baseline string, value func(Estimate, Comparison) (Number, Interval)) bool {
	for _, s := range seriesOf(b.run) {
		if s.Name == baseline {
			continue
		}
		series := ChartSeries{Name: s.Name, Slot: s.Slot}
		for _, e := range estimates {
			if cmp := e.against(baseline); e.Configuration == s.Name && cmp != nil {
				series.add(value(e, *cmp))
			}
		}
		c.Series = append(c.Series, series)
	}
	c.complete()
	return len(c.Series) > 0
}

// logSpan is how many times the least ratio of a chart the largest is where the axis is
// logarithmic: a half and twice are alike, and on a linear axis of that span the lesser
// ones are one line.
const logSpan = 10

// complete puts a chart of ratios into words, and makes its axis fit for what is on it, the
// ends of intervals and 1.
func (c *Chart) complete() {
	c.Words = describe(*c, ratio)
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

// ratioCharts draw the primary metric over each baseline.
func (b *builder) ratioCharts(g Group, estimates []Estimate) []Chart {
	var charts []Chart
	for _, baseline := range b.baselines() {
		c := Chart{
			ID: g.ID + "-" + anchor("ratio", fmt.Sprint(len(charts)+1)), Kind: Ratios, Setting: setting(b.run), Categories: labels(estimates),
			Title: fmt.Sprintf("%s: %s over that of %s, with %s interval", g.Title, quantity(estimates[0].Metric), baseline, percent(b.opts.Confidence)),
			Axis:  fmt.Sprintf("ratio to %s (%s)", baseline, better(estimates[0].Order)),
		}
		if baseline == b.opts.Equivalence.Baseline {
			c.Margin = b.opts.Equivalence.Margin
		}
		if b.addRatios(&c, estimates, baseline, func(_ Estimate, cmp Comparison) (Number, Interval) { return cmp.Ratio, cmp.Interval }) {
			charts = append(charts, c)
		}
	}
	return charts
}

// stackChart draws the parts of the CPU time of one side.
func (b *builder) stackChart(g Group, side string, parts []cpuPart) Chart {
	first := parts[0].estimates[0]
	c := Chart{
		ID: g.ID + "-cpu-" + side, Kind: Stack, Setting: setting(b.run),
		Title: fmt.Sprintf("%s: CPU time %s, mean", g.Title, map[string]string{"host": "on the host", "guest": "in the guest"}[side]),
		Axis:  "CPU time, " + first.Unit,
	}
	severalCases := len(labels(parts[0].estimates)) > 1
	for _, e := range parts[0].estimates {
		name := e.Configuration
		if severalCases {
			name = e.Label + ", " + name
		}
		c.Categories = append(c.Categories, name)
	}
	for i, p := range parts {
		series := ChartSeries{Name: p.name, Slot: i}
		for _, e := range p.estimates {
			series.Values = append(series.Values, e.Mean)
		}
		c.Series = append(c.Series, series)
	}
	c.Words = describe(c, func(v Number) string { return number(v) + " " + first.Unit })
	return c
}

// labels names the cases of estimates, each once, in their order.
func labels(estimates []Estimate) []string {
	var names []string
	for i, e := range estimates {
		if i == 0 || e.Case != estimates[i-1].Case {
			names = append(names, e.Label)
		}
	}
	return names
}

// describe puts a chart into words.
func describe(c Chart, value func(Number) string) string {
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
	return c.Title + ". " + strings.Join(parts, "; ") + "."
}

// reference returns the first estimate of the case that stands for the group in
// the headlines: 1280 B, which Bacou et al. 2019, §5.2.1 single out, or with Hostlo
// 1024 B (§5.3.2), else the last.
func reference(estimates []Estimate) Estimate {
	paperSize := 1280
	if slices.ContainsFunc(estimates, func(e Estimate) bool { return e.Configuration == "Hostlo" }) {
		paperSize = 1024
	}
	i := slices.IndexFunc(estimates, func(e Estimate) bool { return e.Size == paperSize })
	if i < 0 {
		last := estimates[len(estimates)-1].Case
		i = slices.IndexFunc(estimates, func(e Estimate) bool { return e.Case == last })
	}
	return estimates[i]
}
