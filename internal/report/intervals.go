package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
)

// course is a metric over the time of an execution, the mean of all executions in each of
// its intervals, as Lubomski et al. measure the application stack (§3.5).
type course struct {
	name   string // of the configuration
	slot   int
	drive  string
	values []float64
}

// courses returns the courses of a metric in the configurations that have any.
func (b *builder) courses(c result.Case, m result.Metric) (all []course) {
	for i, s := range seriesOf(b.run) {
		one := course{name: s.Name, slot: s.Slot, drive: b.run.Configurations[i].Options["drive"]}
		var executions [][]float64
		for _, sample := range b.samples {
			if sample.Case == c.Name && sample.Configuration == s.Name && sample.Metric == m.Name && len(sample.Intervals) > 0 {
				executions = append(executions, sample.Intervals)
			}
		}
		if len(executions) == 0 {
			continue
		}
		for interval := range executions[0] {
			sum, n := 0.0, 0.0
			for _, e := range executions {
				if interval < len(e) {
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
func (b *builder) intervals(g Group, cases []result.Case) (tables []Table, charts []Chart) {
	for _, c := range cases {
		for _, m := range b.metrics[c.Name] {
			all := b.courses(c, m)
			if m.Interval == 0 || len(all) == 0 {
				continue
			}
			tables = append(tables, courseTable(fmt.Sprintf("%s-%s", g.ID, anchor("course", m.Name)), c, m, all))
			var drives []string
			for _, one := range all {
				if !slices.Contains(drives, one.drive) {
					drives = append(drives, one.drive)
				}
			}
			for _, drive := range drives {
				same := slices.DeleteFunc(slices.Clone(all), func(o course) bool { return o.drive != drive })
				charts = append(charts, courseChart(fmt.Sprintf("%s-%s", g.ID, anchor(m.Name, "over-time-"+drive)), c, m, drive, same))
			}
		}
	}
	return tables, charts
}

// driven words an option drive in a title.
var driven = map[string]string{"local": ", driven locally", "remote": ", driven from outside"}

func courseChart(id string, c result.Case, m result.Metric, drive string, all []course) Chart {
	chart := Chart{
		ID: id, Kind: Lines, Title: fmt.Sprintf("%s: %s over time%s", c.Title, quantity(m.Name), driven[drive]),
		XAxis: "s", Axis: fmt.Sprintf("%s, %s (%s)", quantity(m.Name), shown(m.Unit), better(m.Order)),
	}
	var words []string
	for _, one := range all {
		series := ChartSeries{Name: one.name, Slot: one.slot}
		for i, v := range one.values {
			series.point(float64(i+1)*m.Interval, v)
		}
		chart.Series = append(chart.Series, series)
		last := Number(one.values[len(one.values)-1])
		words = append(words, fmt.Sprintf("%s: from %s to %s %s", one.name, number(Number(one.values[0])), number(last), shown(m.Unit)))
	}
	chart.Words = chart.Title + ". " + strings.Join(words, "; ") + "."
	return chart
}

// courseTable lists the means of each interval.
func courseTable(id string, c result.Case, m result.Metric, all []course) Table {
	t := Table{ID: id, Minor: true, Title: fmt.Sprintf("%s: mean %s in each interval of %g s (%s, %s)", c.Title, quantity(m.Name), m.Interval, shown(m.Unit), better(m.Order)),
		Columns: []Column{{Name: "until", Header: true}}}
	longest := 0
	for _, one := range all {
		t.Columns = append(t.Columns, Column{Name: one.name, Numeric: true})
		longest = max(longest, len(one.values))
	}
	for i := range longest {
		row := []Cell{{Text: fmt.Sprintf("%g s", float64(i+1)*m.Interval)}}
		for _, one := range all {
			if i < len(one.values) {
				row = append(row, plainCell(Number(one.values[i])))
			} else {
				row = append(row, noValue)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
