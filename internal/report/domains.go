package report

import (
	"fmt"
	"slices"
	"strconv"

	"unnest/internal/measure/collocation"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// measures reports whether samples have a metric of a case.
func measures(samples []result.Sample, name, metric string) bool {
	return slices.ContainsFunc(samples, func(s result.Sample) bool { return s.Case == name && s.Metric == metric })
}

// addDomains puts what domains cost each other before the sections on the cases.
func (b *builder) addDomains(doc *Document) {
	if !slices.ContainsFunc(b.samples, collocation.OfDomain) {
		return
	}
	f := collocation.Find(b.run, b.samples)
	g := Group{ID: "domains", Title: "Who disturbs whom"}
	g.add(b.effectTable("domains-alone", "A domain alone, over the host itself", f.Alone),
		b.effectTable("domains-idle", "The active domain next to idle neighbours, over the same one alone", f.Idle),
		b.pairTable(f.Pairs), b.effectTable("domains-same", "A pair of two types, over a pair of one of them", ofSame(f.Pairs)), b.peakTable(f.Peaks), b.paperDomains(f), b.domainTable())
	g.Charts = b.domainCharts(f)
	doc.Groups = append([]Group{g}, doc.Groups...)
	if answer, said := domainHeadlines(f); answer != "" {
		doc.Answer, doc.Headlines, doc.Figures = answer, said, pairFigures(f)
	}
	doc.Methods = append(doc.Methods, domainMethods...)
}

var domainMethods = []Method{
	{"full load", "The highest throughput that one domain of a type reaches alone with documents of a size. It was found before the first block: the load rises until the throughput falls. An intensity is a share of it."},
	{"sum of singles", "What the domains of a pair answer alone under the same intensity, added up within each block. 1 means that they do not disturb each other."},
	{"Jain's index", "Fairness: 1 if the domains answer the same, 1/n if one of n answers everything. Domains that differ are compared by their share of what they answer alone."},
	{"keeps least", "The domain that keeps least of what it answers alone under the same intensity, with the mean of this share over the blocks. The sum hides it where the other domain answers many times as much."},
	{"largest deviation", "By how much the domain that answers least is behind the one that answers most."},
}

// loadLabel names a load: "1024 B at 50 %".
func loadLabel(l collocation.Load) string {
	if l.Intensity == 0 {
		return sizeLabel(l.Size) + ", highest"
	}
	return fmt.Sprintf("%s at %d %%", sizeLabel(l.Size), l.Intensity)
}

// effectCell is a ratio with its interval.
func effectCell(e stats.Effect) Cell {
	return numeric(Number(e.Ratio()), withInterval(Number(e.Ratio()), interval(e.Interval(stats.DefaultConfidence))))
}

func (b *builder) effectTable(id, title string, ratios []collocation.Ratio) Table {
	t := Table{ID: id, Title: title + ": aggregate throughput", Columns: []Column{
		{Name: "load", Header: true}, {Name: "configuration", Header: true}, {Name: "over", Header: true}, {Name: "ratio, 95 %", Numeric: true}, {Name: "n", Numeric: true}}}
	for _, r := range ratios {
		t.Rows = append(t.Rows, []Cell{{Text: loadLabel(r.Load)}, {Text: r.Configuration, Series: r.Configuration}, {Text: r.Reference}, effectCell(r.Effect), {Text: strconv.Itoa(r.Effect.N)}})
	}
	return t
}

// optionalCell is a ratio that may not have been measured.
func optionalCell(r *collocation.Ratio) Cell {
	if r == nil {
		return noValue
	}
	return effectCell(r.Effect)
}

// spreadCell is a mean in a unit with its interval; as prints a number.
func spreadCell(s collocation.Spread, unit string, as func(float64) string) Cell {
	if s.N == 0 {
		return noValue
	}
	text := as(s.Mean) + unit
	if s.Interval.Defined() {
		text += fmt.Sprintf(" [%s, %s]", as(s.Interval.Low), as(s.Interval.High))
	}
	return Cell{Text: text}
}

func decimalText(places int) func(float64) string {
	return func(x float64) string { return strconv.FormatFloat(x, 'f', places, 64) }
}

// percentCell is a fraction in percent: "45 % [37, 53]", "5.8 % [2.7, 9.0]".
func percentCell(s collocation.Spread) Cell {
	places := 0
	if s.Mean < 0.1 {
		places = 1
	}
	s.Mean, s.Interval.Low, s.Interval.High = 100*s.Mean, 100*s.Interval.Low, 100*s.Interval.High
	return spreadCell(s, " %", decimalText(places))
}

func (b *builder) pairTable(pairs []collocation.Pair) Table {
	t := Table{ID: "domains-pairs", Title: "Active domains side by side: aggregate throughput and fairness, 95 % intervals", Columns: []Column{
		{Name: "load", Header: true}, {Name: "configuration", Header: true}, {Name: "over sum of singles", Numeric: true}, {Name: "over best single", Numeric: true},
		{Name: "Jain's index", Numeric: true, Wide: true}, {Name: "largest deviation", Numeric: true, Wide: true}, {Name: "keeps least", Numeric: true}}}
	for _, p := range pairs {
		t.Rows = append(t.Rows, []Cell{{Text: loadLabel(p.Load)}, {Text: p.Configuration, Series: p.Configuration}, optionalCell(p.OfSum), optionalCell(p.OfSingle),
			spreadCell(p.Jain, "", decimalText(3)), percentCell(p.Deviation), leastCell(p.Least)})
	}
	return t
}

// leastCell names the domain that keeps least, and what it keeps.
func leastCell(k *collocation.Kept) Cell {
	if k == nil {
		return noValue
	}
	cell := percentCell(k.Spread)
	cell.Text = k.Domain + " " + cell.Text
	return cell
}

// ofSame compares the pairs of two types with those of one.
func ofSame(pairs []collocation.Pair) (all []collocation.Ratio) {
	for _, p := range pairs {
		all = append(all, p.OfSame...)
	}
	return all
}

func (b *builder) peakTable(peaks []collocation.Peak) Table {
	t := Table{ID: "domains-peaks", Title: "Peak intensity: where the aggregate throughput is highest", Columns: numericColumns("configuration", "document", "intensity", "of the blocks, mean", "responses/s there")}
	for _, p := range peaks {
		t.Rows = append(t.Rows, []Cell{{Text: p.Configuration, Series: p.Configuration}, {Text: sizeLabel(p.Size)}, {Text: fmt.Sprintf("%d %%", p.Intensity)},
			spreadCell(p.Blocks, "", decimalText(0)), spreadCell(p.Throughput, "", func(x float64) string { return number(Number(x)) })})
	}
	return t
}

// domainTable lists the means of what was measured of each domain.
func (b *builder) domainTable() Table {
	t := Table{ID: "domains-each", Title: "What each domain had (mean)", Minor: true, Columns: []Column{
		{Name: "case", Header: true}, {Name: "configuration", Header: true}, {Name: "domain", Header: true}}}
	type key struct{ name, configuration, domain string }
	sums, counts, metrics, order := map[key]map[string]float64{}, map[key]map[string]float64{}, []result.Metric{}, []key{}
	for _, s := range b.samples {
		if !collocation.OfDomain(s) {
			continue
		}
		k := key{s.Case, s.Configuration, s.Tags[collocation.DomainTag]}
		if sums[k] == nil {
			sums[k], counts[k], order = map[string]float64{}, map[string]float64{}, append(order, k)
		}
		sums[k][s.Metric] += s.Value
		counts[k][s.Metric]++
		if metricNamed(metrics, s.Metric) == nil {
			metrics = append(metrics, result.Metric{Name: s.Metric, Unit: s.Unit})
		}
	}
	for _, m := range metrics {
		t.Columns = append(t.Columns, Column{Name: join(quantity(m.Name), shown(m.Unit)), Numeric: true})
	}
	for _, c := range b.run.Cases {
		for _, conf := range b.run.Configurations {
			for _, k := range order {
				if k.name != c.Name || k.configuration != conf.Name {
					continue
				}
				row := []Cell{{Text: k.name}, {Text: k.configuration, Series: k.configuration}, {Text: k.domain}}
				for _, m := range metrics {
					row = append(row, plainCell(Number(sums[k][m.Name]/counts[k][m.Name])))
				}
				t.Rows = append(t.Rows, row)
			}
		}
	}
	return t
}
