package report

import (
	"fmt"
	"slices"

	"unnest/internal/measure/result"
)

// Input is a run to compare, with its samples and the path of its directory.
type Input struct {
	Dir     string
	Run     result.Run
	Samples []result.Sample
}

// Names of the two sides of a comparison of runs.
const (
	sideA = "A"
	sideB = "B"
)

// separateBlocks warns that the runs were not interleaved.
const separateBlocks = "The two runs were measured at different times: a change of the machine in between looks like a difference between the runs. To choose between two versions, measure both in one run."

// Compare reports how run b differs from run a, metric by metric, in the cases and
// configurations that both have. It depends only on its arguments.
func Compare(a, b Input, o Options) Document {
	o = o.withDefaults()
	o.Equivalence = &Claim{} // a claim about two configurations, not about two runs
	c := comparer{a: newBuilder(a.Run, a.Samples, o), b: newBuilder(b.Run, b.Samples, o), opts: o}
	doc := Document{
		Command: "compare", Title: compareTitle(a.Run, b.Run), Run: a.Run.ID + ", " + b.Run.ID, Dir: joinDirs(a.Dir, b.Dir), Setting: settings(a.Run, b.Run),
		Baselines: []string{sideA}, Series: seriesOf(a.Run), Methods: methods(o, result.Run{Interleaved: false}),
	}
	c.compute()
	doc.Families = c.families
	for i, g := range c.a.groups() {
		group, estimates := c.group(i, g)
		if len(group.Tables) > 0 {
			doc.Groups = append(doc.Groups, group)
			doc.Estimates = append(doc.Estimates, estimates...)
		}
	}
	doc.putSettings()
	doc.Headlines = compareHeadlines(doc.Estimates)
	doc.answerFirst(0)
	doc.sayBefore(attributed(observe(a.Run, c.a.samples).verdict(), observe(b.Run, c.b.samples).verdict()))
	differences, provenance := compareProvenance(a, b, c.a.samples, c.b.samples)
	doc.Warnings = slices.Concat([]string{separateBlocks}, differences, c.warnings,
		attributed(slices.Concat(runWarnings(a.Run, c.a.samples), c.a.unknown), slices.Concat(runWarnings(b.Run, c.b.samples), c.b.unknown)),
		c.onlyOne(), o.Notes)
	doc.Provenance = provenance
	doc.Failures = failureTable(result.Run{Failures: slices.Concat(a.Run.Failures, b.Run.Failures)})
	doc.EstimateWarnings = warningTable(doc.Estimates)
	return doc
}

// SizeDifference says in what size two runs differ, so that their figures are not of the
// same work: the profile, the vCPUs or the memory of a configuration, or the title of a
// case. It is empty if they do not.
func SizeDifference(a, b result.Run) string {
	for _, ca := range a.Configurations {
		i := slices.IndexFunc(b.Configurations, func(c result.Configuration) bool { return c.Name == ca.Name })
		for _, option := range []string{"profile", "vcpus", "memory"} {
			if i >= 0 && ca.Options[option] != b.Configurations[i].Options[option] {
				return fmt.Sprintf("%s of %s is %q in A and %q in B", option, ca.Name, ca.Options[option], b.Configurations[i].Options[option])
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

// comparer holds the two sides.
type comparer struct {
	a, b     *builder
	opts     Options
	computed map[cellKey][2]*Estimate // of A and of B
	families []Family
	warnings []string
}

// compute estimates every metric on both sides, compares B with A, and judges the
// comparisons.
func (c *comparer) compute() {
	c.computed = map[cellKey][2]*Estimate{}
	var all []judged
	for _, cs := range c.a.run.Cases {
		for _, ma := range c.a.metrics[cs.Name] {
			mb := metricNamed(c.b.metrics[cs.Name], ma.Name)
			if mb == nil {
				continue
			}
			if ma.Unit != mb.Unit || ma.Order != mb.Order {
				c.warnings = append(c.warnings, fmt.Sprintf("Left out: %s of %s, in %s (%s) in A but in %s (%s) in B.", ma.Name, cs.Name, ma.Unit, ma.Order, mb.Unit, mb.Order))
				continue
			}
			for _, conf := range c.common() {
				a, b := c.pair(cs, conf, ma)
				c.computed[cellKey{cs.Suite, cs.Name, conf.Name, ma.Name}] = [2]*Estimate{a, b}
				all = append(all, judged{b, &b.Comparisons[0], familyOf(*b, sideA)})
			}
		}
	}
	c.families = judge(all, c.opts)
}

func (c *comparer) group(i int, cases []result.Case) (Group, []Estimate) {
	g := Group{ID: anchor(fmt.Sprint("g", i+1), groupKey(cases[0])), Title: groupTitle(cases[0])}
	var all []Estimate
	for _, name := range c.a.metricNames(cases) {
		as, bs := c.family(cases, name)
		if len(bs) == 0 {
			continue
		}
		all = append(append(all, as...), bs...)
		if bs[0].Primary {
			g.Tables = append(g.Tables, c.table(g, as, bs))
			g.Charts = append(g.Charts, c.chart(g, bs))
		}
	}
	return g, all
}

// family returns the estimates of one metric on both sides. Equal indices are of the same
// case and configuration.
func (c *comparer) family(cases []result.Case, metric string) (as, bs []Estimate) {
	for _, cs := range cases {
		for _, conf := range c.common() {
			if pair, has := c.computed[cellKey{cs.Suite, cs.Name, conf.Name, metric}]; has {
				as, bs = append(as, *pair[0]), append(bs, *pair[1])
			}
		}
	}
	return as, bs
}

func metricNamed(metrics []result.Metric, name string) *result.Metric {
	if i := slices.IndexFunc(metrics, func(m result.Metric) bool { return m.Name == name }); i >= 0 {
		return &metrics[i]
	}
	return nil
}

// common are the configurations that both runs have.
func (c *comparer) common() []result.Configuration {
	return slices.DeleteFunc(slices.Clone(c.a.run.Configurations), func(conf result.Configuration) bool {
		return !hasConfiguration(c.b.run, conf.Name)
	})
}

// pair estimates one cell on both sides, and compares B with A, which share no block.
func (c *comparer) pair(cs result.Case, conf result.Configuration, m result.Metric) (a, b *Estimate) {
	of := func(side *builder, name string) *Estimate {
		e := side.describe(cs, conf, m)
		e.Run = name
		return &e
	}
	a, b = of(c.a, sideA), of(c.b, sideB)
	obsA, obsB := c.a.side(cs, conf.Name, m).obs, c.b.side(cs, conf.Name, m).obs
	b.Comparisons = []Comparison{compare(side{obsB, sideB}, side{obsA, sideA}, false)}
	return a, b
}

func (c *comparer) table(g Group, as, bs []Estimate) Table {
	first := bs[0]
	t := Table{
		ID:    g.ID + "-main",
		Title: fmt.Sprintf("%s: %s (%s, %s)", g.Title, first.Metric, shown(first.Unit), better(first.Order)),
	}
	t.labels(bs)
	few := tooFewAgainst([]string{sideA}, bs)
	t.Notes = tooFewNotes(few)
	t.counts("n A", as, c.a.run.Repetitions)
	t.counts("n B", bs, c.b.run.Repetitions)
	t.centers("A", as)
	t.centers("B", bs)
	t.ratios("B / A", bs, sideA)
	t.column(Column{Name: "verdict", Console: true}, func(i int) Cell { return compareVerdict(as[i], bs[i], few) })
	t.doubts(as, bs)
	return t
}

// compareVerdict is the verdict on b against a, or which of them is missing.
func compareVerdict(a, b Estimate, few []string) Cell {
	for _, side := range []Estimate{a, b} {
		if side.N == 0 {
			return Cell{Text: side.Run + " missing", Missing: true}
		}
	}
	return verdictCell(b, few)
}

func (c *comparer) chart(g Group, bs []Estimate) Chart {
	chart := Chart{
		ID: g.ID + "-ratio", Kind: Ratios, Categories: labels(bs),
		Title: fmt.Sprintf("%s: %s of B over that of A%s", g.Title, quantity(bs[0].Metric), withLevel(bs, sideA)),
		Axis:  fmt.Sprintf("ratio of B to A (%s)", better(bs[0].Order)),
	}
	c.a.addRatios(&chart, bs, sideA, plainRatio)
	return chart
}

// onlyOne warns of cases and configurations that only one run has.
func (c *comparer) onlyOne() []string {
	var warnings []string
	warn := func(what string, a, b []string) {
		for _, side := range []struct {
			name string
			only []string
		}{{sideA, without(a, b)}, {sideB, without(b, a)}} {
			if len(side.only) > 0 {
				warnings = append(warnings, fmt.Sprintf("Left out: %s %s, only in %s.", what, list(side.only), side.name))
			}
		}
	}
	warn("case", caseNames(c.a.run), caseNames(c.b.run))
	warn("configuration", configurationNames(c.a.run), configurationNames(c.b.run))
	return warnings
}

func caseNames(run result.Run) (names []string) {
	for _, c := range run.Cases {
		names = append(names, c.Name)
	}
	return names
}

func configurationNames(run result.Run) (names []string) {
	for _, c := range run.Configurations {
		names = append(names, c.Name)
	}
	return names
}

// without returns the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(others, n) })
}
