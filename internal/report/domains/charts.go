package domains

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
)

// domainCharts draw the figures of the paper from the run: a chart only where the run has its
// configurations.
func (b *section) domainCharts(f collocation.Findings) []document.Chart {
	var charts []document.Chart
	add := func(c document.Chart) {
		if len(c.Series) > 0 {
			charts = append(charts, c)
		}
	}
	add(b.ratioChart("domains-kept", "Pairs over the sum of what their domains answer alone", sums(f.Pairs)))
	for _, m := range []struct{ figure, metric string }{
		{"1a", collocation.Utilisation}, {"1b", collocation.Network}, {"1c", collocation.Server}, {"2a", "cpu_per_execution"}, {"2b", "executions"}} {
		add(b.domainChart(m.figure, m.metric))
	}
	add(b.ratioChart("domains-fig-3a", "The active domain next to idle neighbours over the same one alone (Fig. 3a)", f.Idle))
	for _, size := range b.caseSizes() {
		add(b.intensityChart("4", "two domains of one type", size, f.Pairs, func(p collocation.Pair) bool { return p.Identical }))
		add(b.intensityChart("6", "domains of different types", size, f.Pairs, func(p collocation.Pair) bool { return len(p.OfSame) > 0 && !p.Identical }))
	}
	add(b.neighbourChart())
	return charts
}

// caseSizes are the sizes of the cases, each once.
func (b *section) caseSizes() (sizes []int) {
	for _, c := range b.run.Cases {
		if !slices.Contains(sizes, c.Size) {
			sizes = append(sizes, c.Size)
		}
	}
	return sizes
}

func (b *section) alone(configuration string) bool {
	names := map[string]bool{}
	for _, s := range b.samples {
		if name := s.Tags[collocation.DomainTag]; name != "" && s.Configuration == configuration {
			names[name] = true
		}
	}
	return len(names) == 1
}

// top is the highest intensity of the cases, 0 where they have none.
func (b *section) top() (top int) {
	for _, c := range b.run.Cases {
		top = max(top, c.Intensity)
	}
	return top
}

// domainChart draws a metric of the domain of each configuration that has one, by the size of
// the document, under the highest load of the run.
func (b *section) domainChart(figure, metric string) document.Chart {
	c := document.Chart{ID: "domains-fig-" + figure, Kind: document.Bars}
	var cases []result.Case
	for _, one := range b.run.Cases {
		if one.Intensity == b.top() {
			cases, c.Categories = append(cases, one), append(c.Categories, naming.Size(one.Size))
		}
	}
	unit := ""
	for _, s := range naming.Series(b.run) {
		if !b.alone(s.Name) {
			continue
		}
		series, some := document.ChartSeries{Name: s.Name, Slot: s.Slot}, false
		for _, one := range cases {
			var obs []stats.Observation
			for _, sample := range b.samples {
				if sample.Configuration == s.Name && sample.Case == one.Name && sample.Metric == metric && collocation.OfDomain(sample) {
					obs, unit = append(obs, stats.Observation{Block: sample.Block, Value: sample.Value}), sample.Unit
				}
			}
			e := estimate.Describe(obs)
			series.Add(e.Center, e.Interval)
			some = some || e.N > 0
		}
		if some {
			c.Series = append(c.Series, series)
		}
	}
	load := "under full load"
	if part := collocation.PartLoad(b.run.Cases); part > 0 {
		load = fmt.Sprintf("at %d %% of its full load", part)
	}
	c.Title = fmt.Sprintf("A domain alone: %s %s (Fig. %s)", naming.Quantity(metric), load, figure)
	c.Axis = document.Join(naming.Quantity(metric), naming.Unit(unit))
	c.Describe(naming.In(unit))
	return c
}

// sums are the ratios of pairs over the sum of what their domains answer alone.
func sums(pairs []collocation.Pair) (ratios []collocation.Ratio) {
	for _, p := range pairs {
		if p.OfSum != nil {
			ratios = append(ratios, *p.OfSum)
		}
	}
	return ratios
}

// ratioChart draws ratios of the throughput by load.
func (b *section) ratioChart(id, title string, ratios []collocation.Ratio) document.Chart {
	c := document.Chart{ID: id, Kind: document.Ratios, Title: title + ", with " + level(ratios) + " interval", Axis: "ratio of the throughput (higher is better)"}
	for _, r := range ratios {
		if label := loadLabel(r.Load); !slices.Contains(c.Categories, label) {
			c.Categories = append(c.Categories, label)
		}
	}
	for _, s := range naming.Series(b.run) {
		series, some := document.ChartSeries{Name: s.Name, Slot: s.Slot}, false
		for _, label := range c.Categories {
			i := slices.IndexFunc(ratios, func(r collocation.Ratio) bool { return r.Configuration == s.Name && loadLabel(r.Load) == label })
			if i < 0 {
				series.Add(document.Missing, document.NoInterval)
				continue
			}
			some = true
			series.Add(ratioOf(ratios[i].Effect, confidence(ratios)))
		}
		if some {
			c.Series = append(c.Series, series)
		}
	}
	c.Complete()
	return c
}

// intensityChart draws the aggregate throughput of pairs over the intensity, for one size.
func (b *section) intensityChart(figure, what string, size int, pairs []collocation.Pair, wants func(collocation.Pair) bool) document.Chart {
	c := document.Chart{ID: fmt.Sprintf("domains-fig-%s-%d", figure, size), Kind: document.Lines, XAxis: "intensity, % of full load", Axis: "aggregate throughput, responses/s",
		Title: fmt.Sprintf("Aggregate throughput of %s, %s (Fig. %s)", what, naming.Size(size), figure)}
	for _, s := range naming.Series(b.run) {
		wanted := slices.ContainsFunc(pairs, func(p collocation.Pair) bool { return p.Configuration == s.Name && p.Size == size && wants(p) })
		if series := b.overIntensity(s, size, collocation.Aggregate, ""); wanted && len(series.X) > 1 {
			c.Series = append(c.Series, series)
		}
	}
	c.Words = c.Title + ": the tables have the values."
	return c
}

// overIntensity is the mean of a metric of a configuration over the intensities, of one domain or of
// all.
func (b *section) overIntensity(s document.Series, size int, metric, domain string) document.ChartSeries {
	series := document.ChartSeries{Name: s.Name, Slot: s.Slot}
	cases := slices.SortedFunc(slices.Values(b.run.Cases), func(x, y result.Case) int { return cmp.Compare(x.Intensity, y.Intensity) })
	for _, one := range cases {
		if one.Size != size || one.Intensity == 0 {
			continue
		}
		var values []float64
		for _, sample := range b.samples {
			if sample.Configuration == s.Name && sample.Case == one.Name && sample.Metric == metric && sample.Tags[collocation.DomainTag] == domain {
				values = append(values, sample.Value)
			}
		}
		if m, err := stats.Summarize(values); err == nil {
			series.Point(float64(one.Intensity), m.Mean)
		}
	}
	return series
}

// neighbourChart draws the throughput of a domain with a document of its own over the intensity, a
// line for each document of its neighbour.
func (b *section) neighbourChart() document.Chart {
	c := document.Chart{ID: "domains-fig-5", Kind: document.Lines, Title: "A domain with a document of its own, by that of its neighbour (Fig. 5)", XAxis: "intensity, % of full load", Axis: "server throughput, responses/s"}
	for _, s := range naming.Series(b.run) {
		for _, size := range b.caseSizes() {
			if domain, own := b.ownDocument(s.Name, size); domain != "" {
				series := b.overIntensity(s, size, collocation.Server, domain)
				series.Name, series.Slot = strings.TrimSpace(fmt.Sprintf("%s, %s:%s", s.Name, naming.Size(own), naming.Size(size))), len(c.Series)%document.Slots
				if len(series.X) > 1 {
					c.Series = append(c.Series, series)
				}
			}
		}
	}
	c.Words = c.Title + ": the tables have the values."
	return c
}

// ownDocument returns the domain of a configuration that serves another document than its case says,
// and the size of that.
func (b *section) ownDocument(configuration string, size int) (domain string, own int) {
	for _, conf := range b.run.Configurations {
		if conf.Name != configuration || !strings.Contains(conf.Options["domains"], "iB)") {
			continue
		}
		for _, s := range b.samples {
			var n int
			if _, err := fmt.Sscan(s.Tags[collocation.SizeTag], &n); err == nil && s.Configuration == configuration && n != size {
				if i := slices.IndexFunc(b.run.Cases, func(c result.Case) bool { return c.Name == s.Case }); i >= 0 && b.run.Cases[i].Size == size {
					return s.Tags[collocation.DomainTag], n
				}
			}
		}
	}
	return "", 0
}
