package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// distributions makes, for each case and each metric with a distribution, a chart as
// Bacou et al. 2019, Fig. 8a and a table as their Fig. 8b. names are the metrics of the
// cases.
func (b *builder) distributions(g Group, cases []result.Case, names []string) (tables []Table, charts []Chart) {
	for _, name := range names {
		for _, c := range cases {
			i := slices.IndexFunc(b.metrics[c.Name], func(m result.Metric) bool { return m.Name == name && m.Distribution })
			if i < 0 {
				continue
			}
			var estimates []Estimate
			for _, conf := range b.run.Configurations {
				estimates = append(estimates, b.describe(c, conf, b.metrics[c.Name][i]))
			}
			if !measured(estimates) {
				continue
			}
			id := g.ID + "-" + anchor("distribution", fmt.Sprint(len(tables)+1))
			tables = append(tables, b.distributionTable(id+"-table", c, estimates))
			charts = append(charts, b.distributionChart(id, c, b.metrics[c.Name][i], estimates))
		}
	}
	return tables, charts
}

// distributionTable lists the statistics of each configuration.
func (b *builder) distributionTable(id string, c result.Case, estimates []Estimate) Table {
	t := Table{
		ID: id, Minor: !estimates[0].Primary,
		Title:   fmt.Sprintf("%s: distribution of %s (%s, %s)", c.Title, estimates[0].Metric, shown(estimates[0].Unit), better(estimates[0].Order)),
		Columns: numericColumns("configuration", "n", "min", "p25", "median", "p75", "p90", "p99", "max", "mean", "sd"),
	}
	for _, e := range estimates {
		row := []Cell{{Text: e.Configuration, Series: e.Configuration}, {Text: fmt.Sprint(e.N)}}
		for _, v := range []Number{e.Min, e.P25, e.Median, e.P75, e.P90, e.P99, e.Max, e.Mean, e.StdDev} {
			row = append(row, plainCell(v))
		}
		t.Rows = append(t.Rows, row)
	}
	if slices.ContainsFunc(estimates, func(e Estimate) bool { return e.N > 0 && e.N < 100 }) {
		t.Notes = []string{"With fewer than 100 values the 99th percentile is close to the maximum."}
	}
	return t
}

// distributionChart draws the share of executions that took at most x.
func (b *builder) distributionChart(id string, c result.Case, m result.Metric, estimates []Estimate) Chart {
	chart := Chart{
		ID: id, Kind: CDF,
		Title: fmt.Sprintf("%s: cumulative distribution of %s", c.Title, quantity(m.Name)),
		Axis:  fmt.Sprintf("%s, %s (%s)", quantity(m.Name), shown(m.Unit), better(m.Order)),
	}
	var words []string
	for i, s := range seriesOf(b.run) {
		e := estimates[i]
		if e.N == 0 {
			continue
		}
		series := ChartSeries{Name: s.Name, Slot: s.Slot}
		values := stats.Values(stats.ByBlock(b.side(c, s.Name, m).obs))
		for _, v := range slices.Sorted(slices.Values(values)) {
			series.Values = append(series.Values, Number(v))
		}
		chart.Series = append(chart.Series, series)
		words = append(words, fmt.Sprintf("%s: half within %s %s, 90 %% within %s %s", s.Name, number(e.Median), shown(m.Unit), number(e.P90), shown(m.Unit)))
	}
	chart.Words = chart.Title + ". " + strings.Join(words, "; ") + "."
	return chart
}
