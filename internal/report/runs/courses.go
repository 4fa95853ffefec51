package runs

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/naming"
)

// course is a metric over the time of an execution, the mean of the executions that have a value in each of
// its intervals, as Lubomski et al. measure the application stack (§3.5).
type course struct {
	name   string // of the configuration
	slot   int
	drive  string
	values []float64
}

// courses returns the courses of a metric in the configurations that have any.
func (b *builder) courses(c result.Case, m result.Metric) (all []course) {
	for i, s := range naming.Series(b.Run) {
		one := course{name: s.Name, slot: s.Slot, drive: b.Run.Configurations[i].Options["drive"]}
		var executions [][]float64
		for _, sample := range b.Samples {
			if sample.Case == c.Name && sample.Configuration == s.Name && sample.Metric == m.Name && len(sample.Intervals) > 0 {
				executions = append(executions, sample.Intervals)
			}
		}
		if len(executions) == 0 {
			continue
		}
		for interval := range slices.MaxFunc(executions, func(a, b []float64) int { return len(a) - len(b) }) {
			sum, n := 0.0, 0.0
			for _, e := range executions {
				if interval < len(e) && (e[interval] != 0 || m.Name != "latency_mean") { // 0: nothing was answered
					sum, n = sum+e[interval], n+1
				}
			}
			one.values = append(one.values, sum/n)
		}
		all = append(all, one)
	}
	return all
}

// intervals makes, for each metric with intervals, a chart of the configurations that are
// driven in the same way (Figs. 2 and 3), and a table of all.
func (b *builder) intervals(g document.Group, cases []result.Case) (tables []document.Table, charts []document.Chart) {
	for _, c := range cases {
		for _, m := range b.Metrics[c.Name] {
			all := b.courses(c, m)
			if m.Interval == 0 || len(all) == 0 {
				continue
			}
			tables = append(tables, courseTable(fmt.Sprintf("%s-%s", g.ID, document.Anchor("course", m.Name)), c, m, all))
			var drives []string
			for _, one := range all {
				if !slices.Contains(drives, one.drive) {
					drives = append(drives, one.drive)
				}
			}
			for _, drive := range drives {
				same := slices.DeleteFunc(slices.Clone(all), func(o course) bool { return o.drive != drive })
				charts = append(charts, courseChart(fmt.Sprintf("%s-%s", g.ID, document.Anchor(m.Name, "over-time-"+drive)), c, m, drive, same))
			}
		}
	}
	return tables, charts
}

// driven words an option drive in a title.
var driven = map[string]string{"local": ", driven locally", "remote": ", driven from outside"}

func courseChart(id string, c result.Case, m result.Metric, drive string, all []course) document.Chart {
	chart := document.Chart{
		ID: id, Kind: document.Lines, Title: fmt.Sprintf("%s: %s over time%s", c.Title, naming.Quantity(m.Name), driven[drive]),
		XAxis: "s", Axis: naming.Axis(m.Name, m.Unit, m.Order),
	}
	var words []string
	for _, one := range all {
		series := document.ChartSeries{Name: one.name, Slot: one.slot}
		for i, v := range one.values {
			series.Point(float64(i+1)*m.Interval, v)
		}
		chart.Series = append(chart.Series, series)
		last := document.Number(one.values[len(one.values)-1])
		words = append(words, fmt.Sprintf("%s: from %s to %s %s", one.name, document.Rounded(document.Number(one.values[0])), document.Rounded(last), naming.Unit(m.Unit)))
	}
	chart.Words = chart.Title + ". " + strings.Join(words, "; ") + "."
	return chart
}

// courseTable lists the means of each interval.
func courseTable(id string, c result.Case, m result.Metric, all []course) document.Table {
	t := document.Table{ID: id, Minor: true, Title: fmt.Sprintf("%s: mean %s in each interval of %g s %s", c.Title, naming.Quantity(m.Name), m.Interval, naming.Scale(m.Unit, m.Order)),
		Columns: []document.Column{{Name: "until", Header: true}}}
	longest := 0
	for _, one := range all {
		t.Columns = append(t.Columns, document.Column{Name: one.name, Numeric: true})
		longest = max(longest, len(one.values))
	}
	for i := range longest {
		row := []document.Cell{{Text: fmt.Sprintf("%g s", float64(i+1)*m.Interval)}}
		for _, one := range all {
			if i < len(one.values) {
				row = append(row, document.NumberCell(document.Number(one.values[i])))
			} else {
				row = append(row, document.NoValue)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
