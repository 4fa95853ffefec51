// Package runs builds the report of a run. Sections on levels of virtualization, scores and
// domains come from the packages of these names.
package runs

import (
	"cmp"
	"fmt"
	"slices"

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

// Options says how a report is built. Zero fields take their defaults.
type Options struct {
	Dir         string          // path of the run directory, printed with the figures
	Notes       []string        // warnings from reading the run directory
	Equivalence *estimate.Claim // default: BrFusion within 3.5 % of NoCont; &Claim{}: none
	Papers      papers.Figures  // printed figures to show next to the run's
}

// brFusionClaim is from Bacou et al. 2019, §5.2.1: "BrFusion is also within 3.5% of
// NoCont's performance".
var brFusionClaim = estimate.Claim{Configuration: "BrFusion", Baseline: "NoCont", Margin: 0.035}

// builder is the run that a report is built from.
type builder struct {
	*estimate.Set
	claim  estimate.Claim
	papers papers.Figures
}

// Build makes the report of a run. It depends only on its arguments. Configurations, cases and
// metrics are in the order of the run. Numbers of missing executions are missing.
func Build(run result.Run, samples []result.Sample, o Options) document.Document {
	b := &builder{claim: *cmp.Or(o.Equivalence, &brFusionClaim), papers: o.Papers}
	b.Set = estimate.New(run, samples, b.claim, levels.Pairs(run))
	doc := document.Document{
		Title: naming.Run(run), Description: run.Description, Run: run.ID, Dir: o.Dir, Setting: provenance.Setting(run, b.Samples),
		Series: naming.Series(run), Methods: methods(run, b.claim), File: run.File, Samples: samplesOf(run, b.Samples),
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
	together := b.tabled(cases)
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
		headlines, notKnown := b.headlines(cases, estimates)
		if doc.Headlines = append(doc.Headlines, headlines...); notKnown != "" {
			doc.NotKnown = append(doc.NotKnown, notKnown)
		}
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
