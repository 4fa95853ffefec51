// Package comparison builds the report on how one run differs from another.
package comparison

import (
	"fmt"
	"maps"
	"slices"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/record"
)

// separateBlocks warns that the runs were not interleaved.
const separateBlocks = "The two runs were measured at different times: a change of the machine in between looks like a difference between the runs. To choose between two versions, measure both in one run."

// Build reports how run b differs from run a, metric by metric, in the cases and
// configurations that both have, with verdicts if they are asked for. It depends only on its arguments.
func Build(a, b provenance.Source, verdicts bool, notes []string) document.Document {
	d := estimate.Between(a.Run, b.Run, a.Samples, b.Samples, verdicts)
	doc := document.Document{
		Command: "compare", Title: compareTitle(a.Run, b.Run), Run: a.Run.ID + ", " + b.Run.ID, Dir: joinDirs(a.Dir, b.Dir), Setting: settings(a.Run, b.Run),
		Series: naming.Series(a.Run), Methods: estimate.Methods(false, false),
	}
	computed := record.Data{Baselines: []string{estimate.SideA}, Families: d.Families}
	for i, cases := range d.A.Groups() {
		group, estimates := compareGroup(d, i, cases)
		if len(group.Tables) > 0 {
			doc.Groups = append(doc.Groups, group)
			computed.Estimates = append(computed.Estimates, estimates...)
		}
	}
	doc.PutSettings()
	doc.Headlines = compareHeadlines(computed.Estimates)
	doc.AnswerFirst(0)
	doc.SayBefore(attributed(provenance.Observe(a.Run, d.A.Samples).Verdict(), provenance.Observe(b.Run, d.B.Samples).Verdict()))
	differences, facts := compareProvenance(a, b, d.A.Samples, d.B.Samples)
	doc.Warnings = slices.Concat([]string{separateBlocks}, differences, d.Warnings,
		attributed(slices.Concat(provenance.Warnings(a.Run, d.A.Samples), d.A.Unknown), slices.Concat(provenance.Warnings(b.Run, d.B.Samples), d.B.Unknown)),
		onlyOne(a.Run, b.Run, estimate.SideA, estimate.SideB), notes)
	doc.Provenance = facts
	doc.Failures = provenance.FailureTable(result.Run{Failures: slices.Concat(a.Run.Failures, b.Run.Failures)})
	computed.Doubts = estimate.WarningTable(computed.Estimates)
	computed.Put(&doc)
	return doc
}

// compareGroup makes the i-th section, on cases, and the estimates of both sides.
func compareGroup(d *estimate.Difference, i int, cases []result.Case) (document.Group, []estimate.Estimate) {
	g := document.Group{ID: document.Anchor(fmt.Sprint("g", i+1), naming.GroupKey(cases[0])), Title: naming.Group(cases[0])}
	var all []estimate.Estimate
	for _, name := range d.A.MetricNames(cases) {
		as, bs := d.Estimates(cases, name)
		if len(bs) == 0 {
			continue
		}
		all = append(append(all, as...), bs...)
		if bs[0].Primary {
			g.Tables = append(g.Tables, compareTable(d, g, as, bs))
			g.Charts = append(g.Charts, compareChart(d.A.Run, g, bs))
		}
	}
	return g, all
}

func compareTable(d *estimate.Difference, g document.Group, as, bs []estimate.Estimate) document.Table {
	first := bs[0]
	t := document.Table{
		ID:    g.ID + "-main",
		Title: fmt.Sprintf("%s: %s %s", g.Title, first.Metric, naming.Scale(first.Unit, first.Order)),
	}
	estimate.LabelRows(&t, bs)
	few := estimate.TooFewAgainst([]string{estimate.SideA}, bs)
	t.Notes = estimate.TooFewNotes(few)
	estimate.CountColumn(&t, "n A", as, d.A.Run.Repetitions)
	estimate.CountColumn(&t, "n B", bs, d.B.Run.Repetitions)
	estimate.CenterColumn(&t, "A", as)
	estimate.CenterColumn(&t, "B", bs)
	estimate.RatioColumn(&t, "B / A", bs, estimate.SideA)
	t.Column(document.Column{Name: "verdict", Console: true}, func(i int) document.Cell { return compareVerdict(as[i], bs[i], few) })
	estimate.DoubtColumn(&t, as, bs)
	return t
}

// compareVerdict is the verdict on b against a, or which of them is missing.
func compareVerdict(a, b estimate.Estimate, few []string) document.Cell {
	for _, side := range []estimate.Estimate{a, b} {
		if side.N == 0 {
			return document.Cell{Text: side.Run + " missing", Missing: true}
		}
	}
	return estimate.VerdictCell(b, few)
}

func compareChart(run result.Run, g document.Group, bs []estimate.Estimate) document.Chart {
	chart := document.Chart{
		ID: g.ID + "-ratio", Kind: document.Ratios, Categories: estimate.Labels(bs),
		Title: fmt.Sprintf("%s: %s of B over that of A%s", g.Title, naming.Quantity(bs[0].Metric), estimate.WithLevel(bs, estimate.SideA)),
		Axis:  fmt.Sprintf("ratio of B to A (%s)", naming.Better(bs[0].Order)),
	}
	estimate.AddRatios(&chart, run, bs, estimate.SideA, estimate.PlainRatio)
	return chart
}

// onlyOne warns of cases and configurations that only one of two sides has, by their names.
func onlyOne(a, b result.Run, nameA, nameB string) []string {
	var warnings []string
	warn := func(what string, a, b []string) {
		for _, side := range []struct {
			name string
			only []string
		}{{nameA, document.Without(a, b)}, {nameB, document.Without(b, a)}} {
			if len(side.only) > 0 {
				warnings = append(warnings, fmt.Sprintf("Left out: %s %s, only in %s.", what, document.List(side.only), side.name))
			}
		}
	}
	ofCase, ofConfiguration := func(c result.Case) string { return c.Name }, func(c result.Configuration) string { return c.Name }
	warn("case", names(a.Cases, ofCase), names(b.Cases, ofCase))
	warn("configuration", names(a.Configurations, ofConfiguration), names(b.Configurations, ofConfiguration))
	return warnings
}

// names returns the name of each, once.
func names[T any](all []T, name func(T) string) (once []string) {
	for _, one := range all {
		if n := name(one); !slices.Contains(once, n) {
			once = append(once, n)
		}
	}
	return once
}

// SizeDifference says in what size two runs differ, so that their figures are not of the
// same work: the profile, the vCPUs or the memory of a configuration, or the title of a
// case. It is empty if they do not.
func SizeDifference(a, b result.Run) string {
	return firstDifference(a, b, func(property string) bool { return slices.Contains([]string{"profile", "vcpus", "memory"}, property) })
}

// SetupDifference says in what two runs differ that do not measure the same: the stack or an option of a configuration, or
// the title of a case. It is empty if they do not.
func SetupDifference(a, b result.Run) string {
	return firstDifference(a, b, func(string) bool { return true })
}

// firstDifference looks at those properties of configurations that count, and at titles.
func firstDifference(a, b result.Run, counts func(property string) bool) string {
	for _, ca := range a.Configurations {
		for _, cb := range b.Configurations {
			of, other := properties(ca), properties(cb)
			both := maps.Clone(of)
			maps.Copy(both, other)
			for _, name := range slices.Sorted(maps.Keys(both)) {
				if ca.Name == cb.Name && counts(name) && of[name] != other[name] {
					return fmt.Sprintf("%s of %s is %q in A and %q in B", name, ca.Name, of[name], other[name])
				}
			}
		}
	}
	for _, ca := range a.Cases {
		for _, cb := range b.Cases {
			if ca.Suite == cb.Suite && ca.Name == cb.Name && ca.Title != cb.Title {
				return fmt.Sprintf("case %s is %q in A and %q in B", ca.Name, ca.Title, cb.Title)
			}
		}
	}
	return ""
}

// properties are the options of a configuration and its stack.
func properties(c result.Configuration) map[string]string {
	all := map[string]string{"stack": c.Stack}
	maps.Copy(all, c.Options)
	return all
}
