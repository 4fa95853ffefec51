package runs

import (
	"fmt"

	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
)

// valueChart draws the primary metric of a group: one bar per case and
// configuration, with its interval.
func (b *builder) valueChart(g document.Group, estimates []estimate.Estimate) document.Chart {
	first := estimates[0]
	c := document.Chart{
		ID: g.ID + "-values", Kind: document.Bars, Categories: estimate.Labels(estimates),
		Title: fmt.Sprintf("%s: %s, with %s interval", g.Title, naming.Quantity(first.Metric), document.Percent(stats.DefaultConfidence)),
		Axis:  naming.Axis(first.Metric, first.Unit, first.Order),
	}
	for _, s := range naming.Series(b.Run) {
		series := document.ChartSeries{Name: s.Name, Slot: s.Slot}
		for _, e := range estimates {
			if e.Configuration == s.Name {
				series.Add(e.Center, e.Interval)
			}
		}
		c.Series = append(c.Series, series)
	}
	c.Describe(naming.In(first.Unit))
	return c
}

// ratioCharts draw the primary metric over each baseline.
func (b *builder) ratioCharts(g document.Group, estimates []estimate.Estimate) []document.Chart {
	var charts []document.Chart
	for _, baseline := range b.Baselines() {
		c := document.Chart{
			ID: g.ID + "-" + document.Anchor("ratio", fmt.Sprint(len(charts)+1)), Kind: document.Ratios, Categories: estimate.Labels(estimates),
			Title: fmt.Sprintf("%s: %s over that of %s%s", g.Title, naming.Quantity(estimates[0].Metric), baseline, estimate.WithLevel(estimates, baseline)),
			Axis:  fmt.Sprintf("ratio to %s (%s)", baseline, naming.Better(estimates[0].Order)),
		}
		if baseline == brFusionClaim.Baseline {
			c.Margin = brFusionClaim.Margin
		}
		if estimate.AddRatios(&c, b.Run, estimates, baseline, estimate.PlainRatio) {
			charts = append(charts, c)
		}
	}
	return charts
}

// stackChart draws the parts of the CPU time of one side.
func stackChart(g document.Group, side cpuSide, parts []cpuPart) document.Chart {
	first := parts[0].estimates[0]
	c := document.Chart{
		ID: g.ID + "-cpu-" + side.name, Kind: document.Stack,
		Title: fmt.Sprintf("%s: CPU time %s, mean", g.Title, side.where),
		Axis:  "CPU time, " + naming.Unit(first.Unit),
	}
	severalCases := len(estimate.Labels(parts[0].estimates)) > 1
	for _, e := range parts[0].estimates {
		name := e.Configuration
		if severalCases {
			name = e.Label + ", " + name
		}
		c.Categories = append(c.Categories, name)
	}
	for i, p := range parts {
		series := document.ChartSeries{Name: p.name, Slot: i}
		for _, e := range p.estimates {
			series.Values = append(series.Values, e.Mean)
		}
		c.Series = append(c.Series, series)
	}
	c.Describe(naming.In(first.Unit))
	return c
}
