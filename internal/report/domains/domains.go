// Package domains builds the section of a report on what domains on one host cost each other.
// Package collocation finds it.
package domains

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/papers"
)

// Add adds what domains cost each other, before the sections on the cases, to the report
// of a run with domains. What it finds replaces the comparisons with a baseline: that a pair
// answers more than one domain is no finding.
func Add(doc *document.Document, run result.Run, samples []result.Sample, printed []papers.Collocated) {
	if !slices.ContainsFunc(samples, collocation.OfDomain) {
		return
	}
	b := section{run, samples, printed}
	f := collocation.Find(run, samples)
	g := document.Group{ID: "domains", Title: "Who disturbs whom"}
	g.Add(effectTable("domains-alone", "A domain alone, over the host itself", f.Alone),
		effectTable("domains-idle", "The active domain next to idle neighbours, over the same one alone", f.Idle),
		pairTable(f.Pairs), effectTable("domains-same", "A pair of two types, over a pair of one of them", ofSame(f.Pairs)), peakTable(f.Peaks), b.paperDomains(f), b.domainTable())
	g.Charts = b.domainCharts(f)
	doc.Groups = append([]document.Group{g}, doc.Groups...)
	if answer, said := headlines(f); answer != "" {
		doc.Answer, doc.Headlines, doc.Figures = answer, said, pairFigures(f)
	}
	doc.Methods = append(doc.Methods, methods...)
}

// section is the run that the section is about.
type section struct {
	run     result.Run
	samples []result.Sample
	printed []papers.Collocated
}

var methods = []document.Method{
	{Term: "full load", Text: "The highest throughput that one domain of a type reaches alone with documents of a size. It was found before the first block: the load rises until the throughput falls. An intensity is a share of it."},
	{Term: "level", Text: "The ratios of a table over one thing, such as those of all pairs over the sum of singles, are one family: of the differences that it shows, 5 % are expected to be false (Benjamini and Hochberg). Its intervals have the level of the family, also in sentences and figures."},
	{Term: "sum of singles", Text: "What the domains of a pair answer alone under the same intensity, added up within each block. 1 means that they do not disturb each other."},
	{Term: "Jain's index", Text: "Fairness: 1 if the domains answer the same, 1/n if one of n answers everything. Domains that differ are compared by their share of what they answer alone."},
	{Term: "keeps least", Text: "The domain that keeps least of what it answers alone under the same intensity, with the mean of this share over the blocks. The sum hides it where the other domain answers many times as much."},
	{Term: "largest deviation", Text: "By how much the domain that answers least is behind the one that answers most."},
}

// loadLabel names a load: "1024 B at 50 %".
func loadLabel(l collocation.Load) string {
	if l.Intensity == 0 {
		return naming.Size(l.Size) + ", highest"
	}
	return fmt.Sprintf("%s at %d %%", naming.Size(l.Size), l.Intensity)
}

// confidence is that of the intervals of ratios that are one family, by the rule of all reports.
func confidence(family []collocation.Ratio) float64 {
	var ps []float64
	for _, r := range family {
		ps = append(ps, r.Effect.P())
	}
	return stats.Judge(ps, stats.DefaultAlpha).Confidence()
}

// level prints the confidence of a family.
func level(family []collocation.Ratio) string {
	return document.Level(document.Number(confidence(family)))
}

func ratioOf(e stats.Effect, confidence float64) (document.Number, document.Interval) {
	return document.Number(e.Ratio()), estimate.ConfidenceInterval(e.Interval(confidence))
}

// effectCell is a ratio with its interval.
func effectCell(e stats.Effect, confidence float64) document.Cell {
	r, i := ratioOf(e, confidence)
	return document.NumericCell(r, document.RatioWithInterval(r, i))
}

func effectTable(id, title string, ratios []collocation.Ratio) document.Table {
	t := document.Table{ID: id, Title: title + ": aggregate throughput", Columns: []document.Column{
		{Name: "load", Header: true}, {Name: "configuration", Header: true}, {Name: "over", Header: true}, {Name: "ratio, " + level(ratios), Numeric: true}, {Name: "n", Numeric: true}}}
	for _, r := range ratios {
		t.Rows = append(t.Rows, []document.Cell{{Text: loadLabel(r.Load)}, {Text: r.Configuration, Series: r.Configuration}, {Text: r.Reference}, effectCell(r.Effect, confidence(ratios)), {Text: strconv.Itoa(r.Effect.N)}})
	}
	return t
}

// optionalCell is a ratio that may not have been measured.
func optionalCell(r *collocation.Ratio, confidence float64) document.Cell {
	if r == nil {
		return document.NoValue
	}
	return effectCell(r.Effect, confidence)
}

// spreadCell is a mean in a unit with its interval; as prints a number.
func spreadCell(s collocation.Spread, unit string, as func(float64) string) document.Cell {
	if s.N == 0 {
		return document.NoValue
	}
	text := as(s.Mean) + unit
	if s.Interval.Defined() {
		text += fmt.Sprintf(" [%s, %s]", as(s.Interval.Low), as(s.Interval.High))
	}
	return document.Cell{Text: text}
}

func decimalText(places int) func(float64) string {
	return func(x float64) string { return strconv.FormatFloat(x, 'f', places, 64) }
}

func roundedText(x float64) string { return document.Rounded(document.Number(x)) }

// percentCell is a fraction in percent: "45 % [37, 53]", "5.8 % [2.7, 9.0]".
func percentCell(s collocation.Spread) document.Cell {
	places := 0
	if s.Mean < 0.1 {
		places = 1
	}
	s.Mean, s.Interval.Low, s.Interval.High = 100*s.Mean, 100*s.Interval.Low, 100*s.Interval.High
	return spreadCell(s, " %", decimalText(places))
}

func pairTable(pairs []collocation.Pair) document.Table {
	t := document.Table{ID: "domains-pairs", Title: "Active domains side by side: aggregate throughput and fairness, at 95 % where no other level stands", Columns: []document.Column{
		{Name: "load", Header: true}, {Name: "configuration", Header: true}, {Name: "over sum of singles, " + level(sums(pairs)), Numeric: true}, {Name: "over best single", Numeric: true},
		{Name: "Jain's index", Numeric: true, Wide: true}, {Name: "largest deviation", Numeric: true, Wide: true}, {Name: "keeps least", Numeric: true}}}
	for _, p := range pairs {
		t.Rows = append(t.Rows, []document.Cell{{Text: loadLabel(p.Load)}, {Text: p.Configuration, Series: p.Configuration}, optionalCell(p.OfSum, confidence(sums(pairs))), optionalCell(p.OfSingle, stats.DefaultConfidence),
			spreadCell(p.Jain, "", decimalText(3)), percentCell(p.Deviation), leastCell(p.Least)})
	}
	return t
}

// leastCell names the domain that keeps least, and what it keeps.
func leastCell(k *collocation.Kept) document.Cell {
	if k == nil {
		return document.NoValue
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

func peakTable(peaks []collocation.Peak) document.Table {
	t := document.Table{ID: "domains-peaks", Title: "Peak intensity: where the aggregate throughput is highest", Columns: document.NumericColumns("configuration", "document", "intensity", "of the blocks, mean", "responses/s there")}
	for _, p := range peaks {
		if p.Compared < 2 {
			continue
		}
		t.Rows = append(t.Rows, []document.Cell{{Text: p.Configuration, Series: p.Configuration}, {Text: naming.Size(p.Size)}, {Text: fmt.Sprintf("%d %%", p.Intensity)},
			spreadCell(p.Blocks, "", decimalText(0)), spreadCell(p.Throughput, "", roundedText)})
	}
	return t
}

// domainTable lists the means of what was measured of each domain.
func (b *section) domainTable() document.Table {
	t := document.Table{ID: "domains-each", Title: "What each domain had (mean)", Minor: true, Columns: []document.Column{
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
		if estimate.MetricNamed(metrics, s.Metric) == nil {
			metrics = append(metrics, result.Metric{Name: s.Metric, Unit: s.Unit})
		}
	}
	for _, m := range metrics {
		t.Columns = append(t.Columns, document.Column{Name: document.Join(naming.Quantity(m.Name), naming.Unit(m.Unit)), Numeric: true})
	}
	for _, c := range b.run.Cases {
		for _, conf := range b.run.Configurations {
			for _, k := range order {
				if k.name != c.Name || k.configuration != conf.Name {
					continue
				}
				row := []document.Cell{{Text: k.name}, {Text: k.configuration, Series: k.configuration}, {Text: k.domain}}
				for _, m := range metrics {
					row = append(row, document.NumberCell(document.Number(sums[k][m.Name]/counts[k][m.Name])))
				}
				t.Rows = append(t.Rows, row)
			}
		}
	}
	return t
}

// paperDomains lists what the paper's text says next to what the run says of the same
// configurations. It names them by the types of their domains.
func (b *section) paperDomains(f collocation.Findings) document.Table {
	t := document.Table{ID: "domains-paper", Title: "This run and the text of the paper", Columns: []document.Column{
		{Name: "figure", Header: true}, {Name: "document", Header: true}, {Name: "configuration", Header: true}, {Name: "over", Header: true}, {Name: "paper", Numeric: true}, {Name: "this run, 95 %", Numeric: true}}}
	for _, p := range b.printed {
		ours := b.oursFor(p, f)
		if ours == "" {
			continue
		}
		over := cmp.Or(p.Baseline, "-")
		paper := string(p.Value) + " " + p.Form
		if p.Form == "%" && p.Value.Float() > 0 {
			paper = "+" + paper
		}
		t.Rows = append(t.Rows, []document.Cell{{Text: p.Figure}, {Text: fmt.Sprintf("%d KB", p.Size)}, {Text: p.Configuration}, {Text: over}, {Text: paper}, {Text: ours}})
	}
	t.Notes = []string{"Paper: Apache in HVMs, PVMs and containers on Xen 4.4 with an i7-3770, six clients with httperf; its Figures 1 to 6 have no numbers. On another hypervisor, and above all with an emulated processor, compare the signs rather than the numbers. This run: each side at the intensity with its highest mean throughput, as in the paper, which is at 80 or 90 % there.",
		"By the paper's own rates HVM-PVM is 19 % above PVM-PVM, and HVM-CON and PVM-CON are 15 % below HVM-PVM, which is 18 % above them."}
	return t
}

// oursFor is the run's value for a printed one, each side at its peak; empty: the run has none.
func (b *section) oursFor(p papers.Collocated, f collocation.Findings) string {
	baseline := p.Baseline
	if i := slices.IndexFunc(f.Pairs, func(pair collocation.Pair) bool { return pair.Configuration == p.Configuration && pair.OfSingle != nil }); baseline == "alone" && i >= 0 {
		baseline = f.Pairs[i].OfSingle.Reference
	}
	peak := func(configuration string) (of collocation.Peak) {
		if i := slices.IndexFunc(f.Peaks, func(one collocation.Peak) bool { return one.Configuration == configuration && one.Size == p.Size<<10 }); i >= 0 {
			of = f.Peaks[i]
		}
		return of
	}
	of := peak(p.Configuration)
	switch {
	case len(of.Values) == 0:
		return ""
	case p.Form != "%":
		return spreadCell(of.Throughput, "", roundedText).Text
	}
	e, err := stats.Compare(of.Values, peak(baseline).Values, b.run.Interleaved)
	if err != nil {
		return ""
	}
	return changeText(e)
}

// changeText prints a ratio as a change in percent with its interval.
func changeText(e stats.Effect) string {
	text := document.Change(document.Number(e.Ratio()))
	if i := e.Interval(stats.DefaultConfidence); i.Defined() {
		text += fmt.Sprintf(" [%+.0f, %+.0f]", 100*(i.Low-1), 100*(i.High-1))
	}
	return text
}
