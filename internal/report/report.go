// Package report builds documents and prints them as text, CSV, JSON, Markdown, HTML,
// Go benchmark format and PerfKitBenchmarker samples.
//
// Build makes a document of a run, Compare of two runs, CompareMeans of two published
// means, Scores of suites, Plan, Frontier, Replay and Explain of plans. A document holds
// everything that is said; the renderers only print it.
//
// Statistics belong to package stats, scores to package score, costs to package summary.
// The package opens no file and reads no clock.
package report

import (
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// Options says how a document is built. Zero fields take their defaults.
type Options struct {
	Dir         string   // path of the run directory, printed with the figures
	Notes       []string // warnings from reading the run directory
	Confidence  float64  // of the interval of an estimate, default 0.95
	Alpha       float64  // expected share of false ones among the differences found, default 0.05
	Equivalence *Claim   // default: BrFusion within 3.5 % of NoCont; &Claim{}: none

	Papers Papers // printed figures to show next to the run's
}

// Claim is a claim of equivalence: Configuration is within Margin, a fraction, of
// Baseline.
type Claim struct {
	Configuration string  `json:"configuration"`
	Baseline      string  `json:"baseline"`
	Margin        float64 `json:"margin"`
}

// brFusionClaim is from Bacou et al. 2019, §5.2.1: "BrFusion is also within 3.5% of
// NoCont's performance".
var brFusionClaim = Claim{Configuration: "BrFusion", Baseline: "NoCont", Margin: 0.035}

func (o Options) withDefaults() Options {
	if o.Confidence == 0 {
		o.Confidence = stats.DefaultConfidence
	}
	if o.Alpha == 0 {
		o.Alpha = stats.DefaultAlpha
	}
	if o.Equivalence == nil {
		o.Equivalence = &brFusionClaim
	}
	return o
}

// Build makes the report of a run. It depends only on its arguments. Configurations, cases and metrics are in the order of
// the run. Numbers of missing executions are missing.
func Build(run result.Run, samples []result.Sample, o Options) Document {
	b := newBuilder(run, samples, o.withDefaults())
	b.compute()
	doc := Document{
		Title: titleOf(run), Description: run.Description, Run: run.ID, Dir: o.Dir, Setting: settingOf(run, b.samples),
		Baselines: b.baselines(), Series: seriesOf(run), Methods: methods(b.opts, run), File: run.File,
		Samples: b.samples, Source: run, Families: b.families,
	}
	for i, g := range b.sections() {
		group, estimates := b.section(i, g)
		doc.Groups = append(append(doc.Groups, group), b.levels(i, g, estimates)...)
		doc.Estimates = append(doc.Estimates, estimates...)
		if !b.tabled(g) {
			if doc.Answer == "" {
				doc.Answer, doc.Paths = b.answer(g, estimates), b.paths(estimates)
			}
			doc.Headlines = append(doc.Headlines, b.headlines(g, estimates)...)
			doc.Figures = append(doc.Figures, b.keyFigures(g, estimates)...)
		} else if doc.Answer == "" {
			doc.Answer, doc.Paths, doc.pathsOf = b.suiteAnswer(g, estimates), b.layers(estimates), layersUnder
		}
	}
	doc.sayBefore(observe(run, b.samples).verdict())
	unscored := b.addScores(&doc)
	b.addDomains(&doc)
	doc.putSettings()
	if len(doc.Headlines) == 0 {
		doc.Headlines = []string{"This run has no samples to compare."}
	}
	doc.Figures = doc.Figures[:min(len(doc.Figures), maxFigures)]
	doc.Warnings = slices.Concat(runWarnings(run, b.samples), domainWarnings(b.samples), b.unknown, unscored, run.Notes, o.Notes)
	doc.Failures, doc.EstimateWarnings = failureTable(run), warningTable(doc.Estimates)
	doc.Provenance = provenanceTable(facts(o.Dir, run, b.samples))
	return doc
}

// addScores puts the scores of suites before the sections on their cases. The warnings
// name what has no scores.
func (b *builder) addScores(doc *Document) (warnings []string) {
	scores, warnings := b.scores(doc.Estimates)
	var groups []Group
	var headlines []string
	var figures []KeyFigure
	for _, s := range scores {
		doc.Suites = append(doc.Suites, s.said)
		groups, headlines, figures = append(groups, s.group()), append(headlines, s.headlines()...), append(figures, s.figures(b.suiteTallies(s.sum.Name, doc.Estimates))...)
	}
	doc.Groups = append(groups, doc.Groups...)
	doc.Headlines, doc.Figures = append(headlines, doc.Headlines...), append(figures, doc.Figures...)
	return warnings
}
