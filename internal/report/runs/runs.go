// Package runs builds the report of a run. Sections on levels of virtualization, scores and
// domains come from the packages of these names.
package runs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/domains"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/levels"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/paths"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/record"
	"unnest.io/unnest/internal/report/scores"
)

// Options says how a report is built.
type Options struct {
	Dir    string         // path of the run directory, printed with the figures
	Notes  []string       // warnings from reading the run directory
	Papers papers.Figures // printed figures to show next to the run's
}

// brFusionClaim is from Bacou et al. 2019, §5.2.1: "BrFusion is also within 3.5% of
// NoCont's performance".
var brFusionClaim = estimate.Claim{Configuration: "BrFusion", Baseline: "NoCont", Margin: 0.035}

// builder is the run that a report is built from.
type builder struct {
	*estimate.Set
	papers papers.Figures
}

// Build makes the report of a run. It depends only on its arguments. Configurations, cases and
// metrics are in the order of the run. Numbers of missing executions are missing.
func Build(run result.Run, samples []result.Sample, o Options) document.Document {
	b := &builder{papers: o.Papers}
	b.Set = estimate.New(run, samples, brFusionClaim, levels.Pairs(run))
	doc := document.Document{
		Title: naming.Run(run), Description: run.Description, Run: run.ID, Dir: o.Dir, Setting: provenance.Setting(run, b.Samples),
		Series: naming.Series(run), Methods: methods(run), File: run.File, Samples: samplesOf(run, b.Samples),
	}
	computed := record.Data{Baselines: b.Baselines(), Families: b.Families}
	for i, cases := range b.sections() {
		b.addSection(&doc, &computed, i, cases)
	}
	unscored := b.addScores(&doc, &computed)
	domains.Add(&doc, run, b.Samples, b.papers.Collocations)
	doc.SayBefore(provenance.Observe(run, b.Samples).Verdict())
	doc.PutSettings()
	if len(doc.Headlines)+len(doc.NotKnown) == 0 {
		doc.Headlines = []string{"This run has no samples to compare."}
	}
	doc.Figures = doc.Figures[:min(len(doc.Figures), document.MaxFigures)]
	doc.Warnings = slices.Concat(provenance.Warnings(run, b.Samples), provenance.LoadWarnings(b.Samples), b.Unknown, unscored, run.Notes, o.Notes)
	doc.Failures, computed.Doubts = provenance.FailureTable(run), estimate.WarningTable(computed.Estimates)
	doc.Provenance = document.ProvenanceTable(provenance.Facts(o.Dir, run, b.Samples))
	computed.Put(&doc)
	return doc
}

// addSection adds the i-th section on cases. The first one that has an answer answers for the
// run.
func (b *builder) addSection(doc *document.Document, computed *record.Data, i int, cases []result.Case) {
	together := scores.OfSuites(b.Run) && len(cases) > 1 && !scores.Swept(cases) // different cases of a suite, which share a table
	section := b.group
	if together {
		section = b.suiteGroup
	}
	group, estimates := section(i, cases)
	levels := levels.Sections(b.Set, b.papers.Levels, fmt.Sprintf("g%d-levels", i+1), cases, estimates, together && scores.OfTableOne(b.Run))
	doc.Groups = append(append(doc.Groups, group), levels...)
	computed.Estimates = append(computed.Estimates, estimates...)
	switch {
	case doc.Answer != "":
	case together:
		doc.Answer, computed.Paths = b.suiteAnswer(cases, estimates), paths.Layers(b.Run, b.badges(estimates))
		doc.Diagram = paths.LayerDiagram(computed.Paths, computed.Baselines)
	default:
		doc.Answer, computed.Paths = b.answer(cases, estimates), paths.Packets(b.Set, estimates)
		doc.Diagram = paths.PacketDiagram(computed.Paths, computed.Baselines)
	}
	if !together {
		headlines, open := b.headlines(cases, estimates)
		doc.Headlines, doc.NotKnown = append(doc.Headlines, headlines...), append(doc.NotKnown, open...)
		doc.Figures = append(doc.Figures, b.keyFigures(cases, estimates)...)
	}
}

// addScores puts the scores of suites before the sections on their cases. The warnings
// name what has no scores.
func (b *builder) addScores(doc *document.Document, computed *record.Data) (warnings []string) {
	scores, warnings := scores.OfRun(b.Set, b.papers, computed.Estimates)
	var groups []document.Group
	var headlines []string
	var figures []document.KeyFigure
	for _, s := range scores {
		computed.Suites = append(computed.Suites, s.Values)
		groups, headlines = append(groups, s.Group()), append(headlines, s.Headlines()...)
		figures = append(figures, s.Figures(b.suiteBadges(s.Values.Suite, computed.Estimates))...)
	}
	doc.Groups = append(groups, doc.Groups...)
	doc.Headlines, doc.Figures = append(headlines, doc.Headlines...), append(figures, doc.Figures...)
	return warnings
}

// methods explain the numbers of a report of a run.
func methods(run result.Run) []document.Method {
	ms := estimate.Methods(run.Interleaved, run.Fresh)
	if text := startsOf(run.Guests); text != "" {
		ms = append(ms, document.Method{Term: "guests", Text: text})
	}
	if distributed(run) {
		ms = append(ms, document.Method{Term: "distribution", Text: "A line shows the share of executions that took at most the time below it; it rises at every measured value. A line further left is faster; a line that reaches the top late has slow outliers. p25, p75, p90 and p99 are percentiles, interpolated between the values."})
	}
	ms = append(ms, levels.Methods(run)...)
	if len(scores.Suites(run)) > 0 {
		ms = append(ms, scores.Methods()...)
	}
	margin := document.Percent(brFusionClaim.Margin)
	return append(ms, document.Method{Term: "within " + margin, Text: fmt.Sprintf("Shown when the whole interval of the ratio lies within %s of 1. The default margin is from Bacou et al. 2019, §5.2.1, who report BrFusion within 3.5 %% of NoCont.", margin)})
}

// startsOf says which guests were booted and which were restored, as far as that is known.
func startsOf(guests []result.Machine) string {
	names := map[string][]string{}
	for _, g := range guests {
		names[g.Start] = append(names[g.Start], g.Name)
	}
	var text []string
	if booted := names[result.Booted]; booted != nil {
		text = append(text, "Booted for this run: "+strings.Join(booted, ", ")+".")
	}
	if restored := names[result.Restored]; restored != nil {
		text = append(text, "Restored from a snapshot of a booted guest: "+strings.Join(restored, ", ")+". Their memory is in small pages, and their page cache and container engine are warm.")
	}
	return strings.Join(text, " ")
}

// distributed reports whether a run has a metric with a distribution.
func distributed(run result.Run) bool {
	return slices.ContainsFunc(run.Cases, func(c result.Case) bool {
		return slices.ContainsFunc(c.Metrics, func(m result.Metric) bool { return m.Distribution })
	})
}

// samplesOf are samples of a run for the formats of benchmarks. Those of a domain have a key
// of it, and stand apart from the others of their execution.
func samplesOf(run result.Run, samples []result.Sample) document.Samples {
	first := ""
	if len(run.Baselines) > 0 {
		first = run.Baselines[0]
	}
	return document.Samples{Run: run.ID, First: first, All: func(yield func(document.Sample) bool) { eachSample(run, samples, yield) }, Facts: []document.Fact{
		{Name: "accelerator", Value: run.Accelerator}, {Name: "goarch", Value: run.Host.Arch}, {Name: "cpu", Value: run.Host.CPU}, {Name: "kernel", Value: run.Host.Kernel}}}
}

// eachSample yields the samples in their order.
func eachSample(run result.Run, samples []result.Sample, yield func(document.Sample) bool) {
	type part struct {
		execution result.Execution
		domain    string
	}
	cases := map[string]result.Case{}
	for _, c := range run.Cases {
		cases[c.Name] = c
	}
	executions := map[part]int{}
	for _, s := range samples {
		c, p := cases[s.Case], part{s.Execution(), s.Tags[collocation.DomainTag]}
		if _, known := executions[p]; !known {
			executions[p] = len(executions)
		}
		if !yield(document.Sample{
			Run: s.Run, Test: s.Case, Title: naming.Group(c), Keys: sampleKeys(c, s), Metric: s.Metric, Primary: s.Metric == c.Primary, Unit: s.Unit,
			Better: map[result.Order]string{result.HIB: "higher", result.LIB: "lower"}[s.Order], Value: s.Value,
			Execution: executions[p], Start: s.Start, Labels: sampleLabels(run, s),
		}) {
			return
		}
	}
}

// sampleKeys tell the samples of one group of cases apart.
func sampleKeys(c result.Case, s result.Sample) (keys []document.Fact) {
	if c.Size > 0 {
		keys = append(keys, document.Fact{Name: "size", Value: strconv.Itoa(c.Size)})
	}
	if domain := s.Tags[collocation.DomainTag]; domain != "" {
		keys = append(keys, document.Fact{Name: "domain", Value: domain})
	}
	return append(keys, document.Fact{Name: "config", Value: s.Configuration})
}

func sampleLabels(run result.Run, s result.Sample) map[string]string {
	labels := map[string]string{
		"accelerator": run.Accelerator, "block": strconv.Itoa(s.Block), "boot": s.Boot, "configuration": s.Configuration,
		"order": string(s.Order), "repetition": strconv.Itoa(s.Repetition), "suite": s.Suite,
		"duration": strconv.FormatFloat(s.Duration, 'g', -1, 64),
	}
	for k, v := range s.Tags {
		labels["tag_"+k] = v
	}
	return labels
}

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
