package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/measure/collocation"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
	"unnest/internal/report/papers"
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

// spreadCell is a mean with its interval; as prints a number.
func spreadCell(s collocation.Spread, as func(float64) string) Cell {
	if s.N == 0 {
		return noValue
	}
	text := as(s.Mean)
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
	cell := spreadCell(s, decimalText(places))
	if s.N > 0 {
		mean, bounds, _ := strings.Cut(cell.Text, " ")
		cell.Text = strings.TrimSpace(mean + " % " + bounds)
	}
	return cell
}

func (b *builder) pairTable(pairs []collocation.Pair) Table {
	t := Table{ID: "domains-pairs", Title: "Active domains side by side: aggregate throughput and fairness, 95 % intervals", Columns: []Column{
		{Name: "load", Header: true}, {Name: "configuration", Header: true}, {Name: "over sum of singles", Numeric: true}, {Name: "over best single", Numeric: true},
		{Name: "Jain's index", Numeric: true, Wide: true}, {Name: "largest deviation", Numeric: true, Wide: true}, {Name: "keeps least", Numeric: true}}}
	for _, p := range pairs {
		t.Rows = append(t.Rows, []Cell{{Text: loadLabel(p.Load)}, {Text: p.Configuration, Series: p.Configuration}, optionalCell(p.OfSum), optionalCell(p.OfSingle),
			spreadCell(p.Jain, decimalText(3)), percentCell(p.Deviation), leastCell(p.Least)})
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
			spreadCell(p.Blocks, decimalText(0)), spreadCell(p.Throughput, func(x float64) string { return number(Number(x)) })})
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

// domainHeadlines say which pair keeps and which loses most under the highest load, what each other pair
// keeps there, and what idle neighbours take. The answer is empty if no pair was measured. They replace
// the comparisons with a baseline: that a pair answers more than one domain is no finding.
func domainHeadlines(f collocation.Findings) (answer string, said []string) {
	pairs := keptByPairs(f.Pairs)
	if len(pairs) == 0 {
		return "", nil
	}
	loads := fullest(f.Pairs)
	full := slices.DeleteFunc(slices.Clone(pairs), func(p collocation.Pair) bool {
		return !slices.ContainsFunc(loads, func(l collocation.Load) bool { return l.Size == p.Size && l.Intensity == p.Intensity })
	})
	if len(full) == 0 {
		return "", nil
	}
	answer = keptAnswer(full)
	for _, load := range loads {
		var kept []string
		for _, p := range pairs {
			if p.Size == load.Size && p.Intensity == load.Intensity {
				text := p.Configuration + " " + effectText(p.OfSum.Effect)
				if starves(p) {
					text += fmt.Sprintf(" (%s only %.0f %%)", p.Least.Domain, 100*p.Least.Mean)
				}
				kept = append(kept, text)
			}
		}
		if len(kept) > 1 { // else the answer or a table has it
			said = append(said, fmt.Sprintf("%s, over what the domains answer alone: %s.", loadLabel(load), list(kept)))
		}
	}
	tested := 0
	var changed []string
	for _, r := range f.Idle {
		if e := r.Effect; e.Testable() {
			tested++
			if !e.Interval(stats.DefaultConfidence).Contains(1) {
				changed = append(changed, fmt.Sprintf("%s with %s %s", r.Configuration, loadLabel(r.Load), effectText(e)))
			}
		}
	}
	switch {
	case tested > 0 && len(changed) == 0:
		said = append(said, fmt.Sprintf("Idle neighbours: %s with the same domain alone, no difference found.", plural(tested, "comparison")))
	case len(changed) > 0:
		said = append(said, fmt.Sprintf("Idle neighbours: %s with the same domain alone, %s found: %s.", plural(tested, "comparison"), plural(len(changed), "difference"), list(changed)))
	}
	return answer, said
}

// starves reports whether a domain of the pair keeps less than half of what the pair keeps. The
// sum hides that where the other domain answers many times as much.
func starves(p collocation.Pair) bool {
	return p.Least != nil && p.Least.Mean < p.OfSum.Effect.Ratio()/2
}

// keptAnswer says what the first and the last of the pairs keep; if there is only one pair, what
// it keeps with each document.
func keptAnswer(pairs []collocation.Pair) string {
	first, last := pairs[0], pairs[len(pairs)-1]
	if !slices.ContainsFunc(pairs, func(p collocation.Pair) bool { return p.Configuration != first.Configuration }) {
		var kept []string
		for _, p := range pairs {
			kept = append(kept, fmt.Sprintf("%s with %s", effectText(p.OfSum.Effect), loadLabel(p.Load)))
		}
		return fmt.Sprintf("%s, over what the domains answer alone: %s.", first.Configuration, list(kept))
	}
	say := func(what string, p collocation.Pair) string {
		text := fmt.Sprintf("%s: %s with %s answers %s of what its domains answer alone", what, p.Configuration, loadLabel(p.Load), effectText(p.OfSum.Effect))
		if starves(p) {
			text += fmt.Sprintf(", but %s only %.0f %% of what it answers alone", p.Least.Domain, 100*p.Least.Mean)
		}
		return text + "."
	}
	return say("The pair that keeps most", first) + " " + say("The one that loses most", last)
}

// keptByPairs are the pairs that can be judged, those that keep most of what their domains answer
// alone first.
func keptByPairs(pairs []collocation.Pair) []collocation.Pair {
	pairs = slices.DeleteFunc(slices.Clone(pairs), func(p collocation.Pair) bool { return p.OfSum == nil || !p.OfSum.Effect.Testable() })
	slices.SortStableFunc(pairs, func(a, b collocation.Pair) int { return cmp.Compare(b.OfSum.Effect.Ratio(), a.OfSum.Effect.Ratio()) })
	return pairs
}

// fullest are the loads of the highest intensity of each size.
func fullest(pairs []collocation.Pair) (loads []collocation.Load) {
	for _, p := range pairs {
		i := slices.IndexFunc(loads, func(l collocation.Load) bool { return l.Size == p.Size })
		if i < 0 {
			loads, i = append(loads, p.Load), len(loads)
		}
		loads[i].Intensity = max(loads[i].Intensity, p.Intensity)
	}
	return loads
}

// pairFigures are what each pair keeps under the highest load with the largest document.
func pairFigures(f collocation.Findings) (figures []KeyFigure) {
	loads := fullest(f.Pairs)
	largest := slices.MaxFunc(loads, func(a, b collocation.Load) int { return cmp.Compare(a.Size, b.Size) })
	for _, p := range keptByPairs(f.Pairs) {
		if p.Size != largest.Size || p.Intensity != largest.Intensity {
			continue
		}
		e := p.OfSum.Effect
		i := interval(e.Interval(stats.DefaultConfidence))
		detail := loadLabel(p.Load) + span(i)
		if starves(p) {
			detail += fmt.Sprintf("; %s only %.0f %%", p.Least.Domain, 100*p.Least.Mean)
		}
		figures = append(figures, KeyFigure{Value: ratio(Number(e.Ratio())) + "×", Label: p.Configuration + " / alone", Detail: detail,
			Series: p.Configuration, Open: e.Interval(stats.DefaultConfidence).Contains(1)})
	}
	return figures
}

// effectText prints a ratio with its interval.
func effectText(e stats.Effect) string {
	return timesWithInterval(Number(e.Ratio()), interval(e.Interval(stats.DefaultConfidence)))
}

// domainWarnings name what bounded the load besides the domains, once for each cause.
func domainWarnings(samples []result.Sample) []string {
	limits, failed := map[string]bool{}, map[string]int{}
	dropped := 0.0
	for _, s := range samples {
		if s.Metric != collocation.Aggregate && s.Metric != collocation.Conntrack {
			continue
		}
		if s.Metric == collocation.Conntrack {
			dropped += s.Value
			continue
		}
		if s.Tags[collocation.LimitTag] != "" {
			limits[s.Configuration+" "+s.Case] = true
		}
		if s.Tags[collocation.FailuresTag] != "" {
			failed[s.Configuration+" "+s.Case]++
		}
	}
	var warnings []string
	if len(limits) > 0 {
		warnings = append(warnings, "The load generator was at its limit, or late, in "+list(slices.Sorted(maps.Keys(limits)))+": the domains may answer more.")
	}
	if len(failed) > 0 {
		warnings = append(warnings, "Requests had no answer in time in "+list(slices.Sorted(maps.Keys(failed)))+"; the tags of the samples name the causes.")
	}
	if dropped > 0 {
		warnings = append(warnings, fmt.Sprintf("The tracking of connections dropped %.0f packets: it had no room. Raise nf_conntrack_max.", dropped))
	}
	return warnings
}

// paperDomains lists what the paper's text says next to what the run says of the same
// configurations. It names them by the types of their domains.
func (b *builder) paperDomains(f collocation.Findings) Table {
	t := Table{ID: "domains-paper", Title: "This run and the text of the paper", Columns: []Column{
		{Name: "figure", Header: true}, {Name: "document", Header: true}, {Name: "configuration", Header: true}, {Name: "over", Header: true}, {Name: "paper", Numeric: true}, {Name: "this run", Numeric: true}}}
	for _, p := range b.opts.Papers.Collocations {
		ours := oursFor(p, f)
		if ours == "" {
			continue
		}
		over := p.Baseline
		if over == "" {
			over = "-"
		}
		paper := string(p.Value) + " " + p.Form
		if p.Form == "%" && p.Value.Float() > 0 {
			paper = "+" + paper
		}
		t.Rows = append(t.Rows, []Cell{{Text: p.Figure}, {Text: fmt.Sprintf("%d KB", p.Size)}, {Text: p.Configuration}, {Text: over}, {Text: paper}, {Text: ours}})
	}
	t.Notes = []string{"Paper: Apache in HVMs, PVMs and containers on Xen 4.4 with an i7-3770, six clients with httperf; its Figures 1 to 6 have no numbers. On another hypervisor, and above all with an emulated processor, compare the signs rather than the numbers. This run: the intensity with the highest aggregate throughput."}
	return t
}

// oursFor is the run's value for a printed one, at the load with the highest throughput; empty:
// the run has none.
func oursFor(p papers.Collocated, f collocation.Findings) string {
	if p.Form != "%" {
		for _, peak := range f.Peaks {
			if peak.Configuration == p.Configuration && peak.Size == p.Size<<10 {
				return spreadCell(peak.Throughput, func(x float64) string { return number(Number(x)) }).Text
			}
		}
		return ""
	}
	best := ""
	top := -1
	for _, pair := range f.Pairs {
		if pair.Configuration != p.Configuration || pair.Size != p.Size<<10 || pair.Intensity < top {
			continue
		}
		for _, r := range append([]collocation.Ratio{}, pair.OfSame...) {
			if r.Reference == p.Baseline {
				best, top = changeText(r.Effect), pair.Intensity
			}
		}
		if p.Baseline == "alone" && pair.OfSingle != nil {
			best, top = changeText(pair.OfSingle.Effect), pair.Intensity
		}
	}
	return best
}

// changeText prints a ratio as a change in percent with its interval.
func changeText(e stats.Effect) string {
	text := change(Number(e.Ratio()))
	if i := e.Interval(stats.DefaultConfidence); i.Defined() {
		text += fmt.Sprintf(" [%+.0f, %+.0f]", 100*(i.Low-1), 100*(i.High-1))
	}
	return text
}
