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
		ID: g.ID + "-values", Kind: Bars, Categories: labels(estimates),
		Title: fmt.Sprintf("%s: %s, with %s interval", g.Title, quantity(first.Metric), percent(b.opts.Confidence)),
		Axis:  fmt.Sprintf("%s, %s (%s)", quantity(first.Metric), shown(first.Unit), better(first.Order)),
	}
	for _, s := range seriesOf(b.run) {
		series := ChartSeries{Name: s.Name, Slot: s.Slot}
		for _, e := range estimates {
			if e.Configuration == s.Name {
				series.add(e.Center, e.Interval)
			}
		}
		c.Series = append(c.Series, series)
	}
	c.Words = describe(c, func(v Number) string { return number(v) + " " + shown(first.Unit) })
	return c
}

// add appends one value with its interval.
func (s *ChartSeries) add(v Number, i Interval) {
	s.Values, s.Low, s.High = append(s.Values, v), append(s.Low, i.Low), append(s.High, i.High)
}

// point appends one point of a line.
func (s *ChartSeries) point(x, y float64) {
	s.X, s.Values = append(s.X, Number(x)), append(s.Values, Number(y))
}

// addRatios adds to c a series for each configuration that is compared with the baseline:
// the value of its comparisons. It reports whether c has a series.
func (b *builder) addRatios(c *Chart, estimates []Estimate, baseline string, value func(Estimate, Comparison) (Number, Interval)) bool {
	for _, s := range seriesOf(b.run) {
		series := ChartSeries{Name: s.Name, Slot: s.Slot}
		for _, e := range estimates {
			if cmp := e.against(baseline); e.Configuration == s.Name && cmp != nil {
				series.add(value(e, *cmp))
			}
		}
		if len(series.Values) > 0 {
			c.Series = append(c.Series, series)
		}
	}
	c.complete()
	return len(c.Series) > 0
}

// logSpan is the quotient of the largest and the smallest ratio above which the axis is
// logarithmic.
const logSpan = 10

// complete words a chart of ratios, and chooses its axis for the values, the ends of the
// intervals and 1.
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

// plainRatio is the ratio of a comparison.
func plainRatio(_ Estimate, c Comparison) (Number, Interval) { return c.Ratio, c.Interval }

// ratioCharts draw the primary metric over each baseline.
func (b *builder) ratioCharts(g Group, estimates []Estimate) []Chart {
	var charts []Chart
	for _, baseline := range b.baselines() {
		c := Chart{
			ID: g.ID + "-" + anchor("ratio", fmt.Sprint(len(charts)+1)), Kind: Ratios, Categories: labels(estimates),
			Title: fmt.Sprintf("%s: %s over that of %s%s", g.Title, quantity(estimates[0].Metric), baseline, withLevel(estimates, baseline)),
			Axis:  fmt.Sprintf("ratio to %s (%s)", baseline, better(estimates[0].Order)),
		}
		if baseline == b.opts.Equivalence.Baseline {
			c.Margin = b.opts.Equivalence.Margin
		}
		if b.addRatios(&c, estimates, baseline, plainRatio) {
			charts = append(charts, c)
		}
	}
	return charts
}

// stackChart draws the parts of the CPU time of one side.
func stackChart(g Group, side cpuSide, parts []cpuPart) Chart {
	first := parts[0].estimates[0]
	c := Chart{
		ID: g.ID + "-cpu-" + side.name, Kind: Stack,
		Title: fmt.Sprintf("%s: CPU time %s, mean", g.Title, side.where),
		Axis:  "CPU time, " + shown(first.Unit),
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
	c.Words = describe(c, func(v Number) string { return number(v) + " " + shown(first.Unit) })
	return c
}

// labels are the labels of the cases of estimates.
func labels(estimates []Estimate) []string {
	return eachCase(estimates, func(e Estimate) string { return e.Label })
}

// eachCase returns the name of each case of estimates once, in their order.
func eachCase(estimates []Estimate, name func(Estimate) string) []string {
	var names []string
	for i, e := range estimates {
		if i == 0 || e.Case != estimates[i-1].Case {
			names = append(names, name(e))
		}
	}
	return names
}

// describe words a chart.
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

// reference returns the first estimate of the case that represents the group in the
// headlines: 1280 B as in Bacou et al. 2019, §5.2.1, or 1024 B with Hostlo (§5.3.2),
// else the last.
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
