package runs

import (
	"fmt"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
)

// group makes the i-th section of the report and the estimates of its cases.
func (b *builder) group(i int, cases []result.Case) (document.Group, []estimate.Estimate) {
	g := document.Group{ID: document.Anchor(fmt.Sprint("g", i+1), naming.GroupKey(cases[0])), Title: naming.Group(cases[0])}
	families := map[string][]estimate.Estimate{}
	names := b.MetricNames(cases)
	var all []estimate.Estimate
	for _, name := range names {
		families[name] = b.Estimates(cases, func(result.Case) string { return name })
		all = append(all, families[name]...)
	}
	main := families[cases[0].Primary]
	if len(main) > 0 {
		g.Add(b.mainTable(g, main))
	}
	g.Add(b.publishedRatioTable(g, cases, families))
	tables, charts := b.distributions(g, cases, names)
	g.Add(tables...)
	g.Charts = charts
	if estimate.Measured(main) {
		if len(charts) == 0 { // a distribution shows its median too
			g.Charts = append(g.Charts, b.valueChart(g, main))
		}
		g.Charts = append(g.Charts, b.ratioCharts(g, main)...)
	}
	tables, charts = b.intervals(g, cases)
	g.Add(tables...)
	g.Charts = append(g.Charts, charts...)
	g.Add(b.minorTables(g, names, families)...)
	g.Add(b.publishedUsageTable(g, cases, families))
	tables, charts = cpuTime(g, families)
	g.Add(tables...)
	g.Charts = append(g.Charts, charts...)
	return g, all
}
