package runs

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
)

// distributions makes, for each case and each metric with a distribution, a chart as
// Bacou et al. 2019, Fig. 8a and a table as their Fig. 8b. names are the metrics of the
// cases.
func (b *builder) distributions(g document.Group, cases []result.Case, names []string) (tables []document.Table, charts []document.Chart) {
	for _, name := range names {
		for _, c := range cases {
			i := slices.IndexFunc(b.Metrics[c.Name], func(m result.Metric) bool { return m.Name == name && m.Distribution })
			if i < 0 {
				continue
			}
			var estimates []estimate.Estimate
			for _, conf := range b.Run.Configurations {
				estimates = append(estimates, b.Describe(c, conf, b.Metrics[c.Name][i]))
			}
			if !estimate.Measured(estimates) {
				continue
			}
			id := g.ID + "-" + document.Anchor("distribution", fmt.Sprint(len(tables)+1))
			tables = append(tables, b.distributionTable(id+"-table", c, estimates))
			charts = append(charts, b.distributionChart(id, c, b.Metrics[c.Name][i], estimates))
		}
	}
	return tables, charts
}

// distributionTable lists the statistics of each configuration.
func (b *builder) distributionTable(id string, c result.Case, estimates []estimate.Estimate) document.Table {
	t := document.Table{
		ID: id, Minor: !estimates[0].Primary,
		Title:   fmt.Sprintf("%s: distribution of %s %s", c.Title, estimates[0].Metric, naming.Scale(estimates[0].Unit, estimates[0].Order)),
		Columns: document.NumericColumns("configuration", "n", "min", "p25", "median", "p75", "p90", "p99", "max", "mean", "sd"),
	}
	for _, e := range estimates {
		row := []document.Cell{{Text: e.Configuration, Series: e.Configuration}, {Text: fmt.Sprint(e.N)}}
		for _, v := range []document.Number{e.Min, e.P25, e.Median, e.P75, e.P90, e.P99, e.Max, e.Mean, e.StdDev} {
			row = append(row, document.NumberCell(v))
		}
		t.Rows = append(t.Rows, row)
	}
	if slices.ContainsFunc(estimates, func(e estimate.Estimate) bool { return e.N > 0 && e.N < 100 }) {
		t.Notes = []string{"With fewer than 100 values the 99th percentile is close to the maximum."}
	}
	return t
}

// distributionChart draws the share of executions that took at most x.
func (b *builder) distributionChart(id string, c result.Case, m result.Metric, estimates []estimate.Estimate) document.Chart {
	chart := document.Chart{
		ID: id, Kind: document.CDF, Of: "share of executions",
		Title: fmt.Sprintf("%s: cumulative distribution of %s", c.Title, naming.Quantity(m.Name)),
		Axis:  naming.Axis(m.Name, m.Unit, m.Order),
	}
	var words []string
	for i, s := range naming.Series(b.Run) {
		e := estimates[i]
		if e.N == 0 {
			continue
		}
		series := document.ChartSeries{Name: s.Name, Slot: s.Slot}
		values := stats.Values(stats.ByBlock(b.Observations(c, s.Name, m.Name)))
		for _, v := range slices.Sorted(slices.Values(values)) {
			series.Values = append(series.Values, document.Number(v))
		}
		chart.Series = append(chart.Series, series)
		words = append(words, fmt.Sprintf("%s: half within %s %s, 90 %% within %s %s", s.Name, document.Rounded(e.Median), naming.Unit(m.Unit), document.Rounded(e.P90), naming.Unit(m.Unit)))
	}
	chart.Words = chart.Title + ". " + strings.Join(words, "; ") + "."
	return chart
}
