package comparison

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/provenance"
)

// CombinedVersion is the version of the JSON and CSV of combined runs.
const CombinedVersion = 1

// combined is a ratio over several runs.
type combined struct {
	Case          string            `json:"case"`
	Configuration string            `json:"configuration"`
	Baseline      string            `json:"baseline"`
	Metric        string            `json:"metric"`
	Order         result.Order      `json:"order"`
	Runs          int               `json:"runs"`
	Ratio         document.Number   `json:"ratio"`
	Interval      document.Interval `json:"interval"` // of the mean over runs, at the level of the family
	NextRun       document.Interval `json:"next_run"` // in which a further run reports its ratio
	Between       document.Number   `json:"between"`  // standard deviation between runs, of logarithms
	Within        document.Number   `json:"within"`   // standard error of one run, of logarithms
	Q             document.Number   `json:"q"`
	I2            document.Number   `json:"i2"` // share of the variance that is between runs
	P             document.Number   `json:"p"`
	Verdict       stats.Verdict     `json:"verdict"`
	Each          []document.Number `json:"each"` // ratio of each run, in their order

	of     estimate.Estimate
	effect stats.Combined
}

// Combinable returns why runs cannot be combined: they do not measure the same in the same way, or one is given twice.
func Combinable(runs []result.Run) error {
	for i, run := range runs {
		if run.Experiment != runs[0].Experiment {
			return fmt.Errorf("combine %s with %s: they are runs of %s and %s; name runs of one experiment", run.ID, runs[0].ID, run.Experiment, runs[0].Experiment)
		}
		difference := cmp.Or(SetupDifference(runs[0], run), primaryDifference(runs[0], run))
		switch {
		case difference != "":
		case run.Accelerator != runs[0].Accelerator:
			difference = fmt.Sprintf("the accelerator is %q in A and %q in B", runs[0].Accelerator, run.Accelerator)
		case run.Fresh != runs[0].Fresh:
			difference = fmt.Sprintf("each block has machines of its own (fresh) in %s only", map[bool]string{true: "B", false: "A"}[run.Fresh])
		}
		if difference != "" {
			return fmt.Errorf("combine %s (B) with %s (A): %s; name runs that measure the same", run.ID, runs[0].ID, difference)
		}
		if slices.ContainsFunc(runs[:i], func(other result.Run) bool {
			return other.ID == run.ID && other.Seed == run.Seed && other.Started.Equal(run.Started)
		}) {
			return fmt.Errorf("combine %s: it is given twice; name each run once", run.ID)
		}
	}
	return nil
}

// primaryDifference says which primary metric of a has another unit or order in b; it is empty if none has.
func primaryDifference(a, b result.Run) string {
	for _, ca := range a.Cases {
		for _, cb := range b.Cases {
			of, other := estimate.MetricNamed(ca.Metrics, ca.Primary), estimate.MetricNamed(cb.Metrics, ca.Primary)
			if ca.Name == cb.Name && of != nil && other != nil && (of.Unit != other.Unit || of.Order != other.Order) {
				return fmt.Sprintf("%s of %s is in %s (%s) in A and in %s (%s) in B", of.Name, ca.Name, of.Unit, of.Order, other.Unit, other.Order)
			}
		}
	}
	return ""
}

// Combine reports the ratios of the primary metrics over several runs of one experiment, which Combinable accepts: of the cases
// and configurations that the first one and another have. It depends only on its arguments.
func Combine(inputs []provenance.Source, notes []string) document.Document {
	var sets []*estimate.Set
	var ids, dirs, noisy, warnings []string
	for _, input := range inputs {
		sets = append(sets, estimate.New(input.Run, input.Samples, estimate.Claim{}, nil))
		ids, dirs = append(ids, input.Run.ID), append(dirs, input.Dir)
		if len(provenance.Observe(input.Run, input.Samples).Verdict()) > 0 {
			noisy = append(noisy, input.Run.ID)
		}
		for _, w := range provenance.Warnings(input.Run, input.Samples) {
			warnings = append(warnings, input.Run.ID+": "+w)
		}
	}
	first, others := inputs[0].Run, result.Run{} // others: what the runs after the first one have
	for _, input := range inputs[1:] {
		others.Cases, others.Configurations = append(others.Cases, input.Run.Cases...), append(others.Configurations, input.Run.Configurations...)
	}
	doc := document.Document{
		Command: "report", Title: fmt.Sprintf("%s: %d runs combined", naming.Run(first), len(inputs)), Run: strings.Join(ids, ", "), Dir: strings.Join(dirs, ", "),
		Setting: fmt.Sprintf("%d runs, %s", len(inputs), first.Accelerator), Series: naming.Series(first), Methods: combinedMethods(),
		Warnings: slices.Concat(different(inputs), onlyOne(first, others, "the first run", "later runs"), warnings, notes), SchemaVersion: CombinedVersion,
	}
	all, families := combine(sets)
	for i, cases := range sets[0].Groups() {
		rows := slices.DeleteFunc(slices.Clone(all), func(r *combined) bool {
			return !slices.ContainsFunc(cases, func(c result.Case) bool { return c.Name == r.Case })
		})
		if len(rows) > 0 {
			doc.Groups = append(doc.Groups, combinedGroup(fmt.Sprint("g", i+1), naming.Group(cases[0]), rows, sets[0].Baselines()))
			doc.Headlines = append(doc.Headlines, combinedHeadline(naming.Group(cases[0]), rows, sets[0].Baselines())...)
		}
	}
	doc.PutSettings()
	if doc.AnswerFirst(0); doc.Answer == "" {
		doc.Answer = "The runs have no comparison with the main baseline in common."
	}
	if len(noisy) > 0 {
		doc.SayBefore([]string{fmt.Sprintf("Too noisy to conclude: %s.", document.List(noisy))})
	}
	doc.Data = struct {
		Runs     []string                `json:"runs"`
		Caution  string                  `json:"caution,omitempty"` // why the runs decide nothing
		Warnings []string                `json:"warnings,omitempty"`
		Families map[string]stats.Family `json:"families"`
		Ratios   []*combined             `json:"ratios"`
	}{ids, doc.Caution, doc.Warnings, families, all}
	doc.Records = combinedRecords(all, doc.Caution)
	return doc
}

// different warns of runs on another machine than the first one, of another file, image or revision.
func different(inputs []provenance.Source) (warnings []string) {
	machine := func(run result.Run) string { return fmt.Sprintf("%s with %d processors", run.Host.CPU, run.Host.VCPUs) }
	a := inputs[0].Run
	for _, input := range inputs[1:] {
		b := input.Run
		var what []string
		for _, p := range [][3]string{
			{fmt.Sprintf("machine (%s; %s)", machine(a), machine(b)), machine(a), machine(b)}, {"experiment file", a.File, b.File}, {"guest image", a.Image, b.Image}, {"revision of unnest", a.Revision, b.Revision},
		} {
			if p[1] != p[2] {
				what = append(what, p[0])
			}
		}
		if len(what) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s and %s differ in their %s. What differs between runs is then also what that changes.", a.ID, b.ID, document.List(what)))
		}
	}
	return warnings
}

// combine compares the primary metric of each case with each baseline, over the runs that have both. The comparisons with a
// baseline are judged together.
func combine(sets []*estimate.Set) ([]*combined, map[string]stats.Family) {
	var all []*combined
	families, ps := map[string]stats.Family{}, map[string][]float64{}
	for _, c := range sets[0].Run.Cases {
		m := estimate.MetricNamed(sets[0].Metrics[c.Name], c.Primary)
		if m == nil {
			continue
		}
		for i, baseline := range sets[0].Baselines() {
			for _, conf := range sets[0].Run.Configurations {
				if slices.Contains(sets[0].Baselines()[:i+1], conf.Name) {
					continue
				}
				r := &combined{Case: c.Name, Configuration: conf.Name, Baseline: baseline, Metric: m.Name, Order: m.Order, of: sets[0].Describe(c, conf, *m)}
				if !r.over(sets, c, *m) {
					continue
				}
				all, ps[baseline] = append(all, r), append(ps[baseline], float64(r.P))
			}
		}
	}
	for baseline, p := range ps {
		families[baseline] = stats.Judge(p, stats.DefaultAlpha)
	}
	for _, r := range all {
		r.judge(families[r.Baseline])
	}
	return all, families
}

// over fills in the effect over the runs; it reports whether there is one.
func (r *combined) over(sets []*estimate.Set, c result.Case, m result.Metric) bool {
	var effects []stats.Effect
	for _, s := range sets {
		e, err := s.Effect(c, r.Configuration, r.Baseline, m.Name)
		if err != nil {
			r.Each = append(r.Each, document.Missing)
			continue
		}
		effects, r.Each = append(effects, e), append(r.Each, document.Number(e.Ratio()))
	}
	var err error
	if r.effect, err = stats.Combine(effects); err != nil {
		return false
	}
	r.Runs, r.Ratio, r.P = r.effect.Runs, document.Number(r.effect.Ratio()), document.Number(r.effect.P())
	r.Between, r.Within, r.Q, r.I2 = document.Number(r.effect.Tau), document.Number(r.effect.Within), document.Number(r.effect.Q), document.Number(r.effect.I2())
	return true
}

// judge gives r its intervals and its verdict, by the rule of all reports.
func (r *combined) judge(f stats.Family) {
	i := r.effect.Interval(f.Confidence())
	r.Interval, r.NextRun = estimate.ConfidenceInterval(i), estimate.ConfidenceInterval(r.effect.NextRun(f.Confidence()))
	switch {
	case !i.Contains(1) && (i.Low > 1) == (r.Order == result.HIB):
		r.Verdict = stats.Better
	case !i.Contains(1):
		r.Verdict = stats.Worse
	case stats.Within(i, stats.DefaultMargin) == stats.Yes:
		r.Verdict = stats.Equal
	default:
		r.Verdict = stats.Unknown
	}
}

// badge is the verdict in a word or two.
func (r *combined) badge() string {
	switch r.Verdict {
	case stats.Better:
		return map[bool]string{true: "faster", false: "better"}[estimate.Speed(r.of)]
	case stats.Worse:
		return map[bool]string{true: "slower", false: "worse"}[estimate.Speed(r.of)]
	case stats.Equal:
		return "equal within " + document.Percent(stats.DefaultMargin)
	}
	return "not known"
}

// combinedGroup is the section of a group of cases: a table and a chart for each baseline.
func combinedGroup(id, title string, rows []*combined, baselines []string) document.Group {
	g := document.Group{ID: id, Title: title}
	for _, baseline := range baselines {
		of := slices.DeleteFunc(slices.Clone(rows), func(r *combined) bool { return r.Baseline != baseline })
		if len(of) == 0 {
			continue
		}
		t := document.Table{ID: document.Anchor(id, baseline), Title: fmt.Sprintf("%s: %s against %s", title, naming.Quantity(of[0].Metric), baseline), Rows: make([][]document.Cell, len(of))}
		t.Column(document.Column{Name: "case", Header: true}, func(i int) document.Cell {
			return document.Cell{Text: of[i].of.Label, Repeat: i > 0 && of[i].Case == of[i-1].Case}
		})
		t.Column(document.Column{Name: "configuration", Header: true}, func(i int) document.Cell {
			return document.Cell{Text: of[i].Configuration, Series: of[i].Configuration}
		})
		t.Column(document.Column{Name: "runs", Numeric: true}, func(i int) document.Cell { return document.Cell{Text: strconv.Itoa(of[i].Runs)} })
		t.Column(document.Column{Name: "over the runs, " + document.Level(of[0].Interval.Confidence), Numeric: true}, func(i int) document.Cell {
			return document.Cell{Text: document.RatioWithInterval(of[i].Ratio, of[i].Interval), Badge: of[i].badge()}
		})
		t.Column(document.Column{Name: "a next run", Numeric: true}, func(i int) document.Cell {
			return document.Cell{Text: document.Bracket(of[i].NextRun, 2)}
		})
		t.Column(document.Column{Name: "between runs", Numeric: true}, func(i int) document.Cell {
			return document.Cell{Text: fmt.Sprintf("%s (%.0f %% of the variance)", document.Percent(float64(of[i].Between)), 100*of[i].I2)}
		})
		t.Column(document.Column{Name: "verdict", Console: true}, func(i int) document.Cell { return document.Cell{Text: of[i].badge()} })
		g.Tables = append(g.Tables, t)
		chart := document.Chart{ID: document.Anchor(id, baseline, "chart"), Kind: document.Forest, Title: t.Title + ", over the runs", Axis: "ratio", Margin: stats.DefaultMargin}
		series := document.ChartSeries{Name: "over the runs", Slot: 0}
		for _, r := range of {
			chart.Categories = append(chart.Categories, r.of.Label+", "+r.Configuration)
			series.Add(r.Ratio, r.Interval)
		}
		chart.Series = []document.ChartSeries{series}
		chart.Complete()
		g.Charts = append(g.Charts, chart)
	}
	return g
}

// combinedHeadline says what the reference case of a group has against the main baseline; nothing if there is no ratio.
func combinedHeadline(title string, rows []*combined, baselines []string) []string {
	var estimates []estimate.Estimate
	for _, r := range rows {
		estimates = append(estimates, r.of)
	}
	reference := estimate.Reference(estimates)
	var parts []string
	for _, r := range rows {
		if r.Case == reference.Case && r.Baseline == baselines[0] {
			parts = append(parts, fmt.Sprintf("%s with %s (%s; a next run reports %s)", document.TimesWithInterval(r.Ratio, r.Interval), r.Configuration, r.badge(), document.Bracket(r.NextRun, 2)))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s, %s: %s against %s is %s.", title, reference.Label, naming.Quantity(reference.Metric), baselines[0], document.List(parts))}
}

// combinedRecords are the rows of the CSV.
func combinedRecords(all []*combined, caution string) [][]string {
	rows := [][]string{{"schema_version", "case", "configuration", "baseline", "metric", "order", "runs", "ratio", "low", "high", "confidence", "next_low", "next_high", "next_confidence", "between", "within", "q", "i2", "p", "verdict", "caution"}}
	for _, r := range all {
		rows = append(rows, slices.Concat([]string{strconv.Itoa(CombinedVersion), r.Case, r.Configuration, r.Baseline, r.Metric, string(r.Order), strconv.Itoa(r.Runs)},
			document.Exacts(r.Ratio, r.Interval.Low, r.Interval.High, r.Interval.Confidence, r.NextRun.Low, r.NextRun.High, r.NextRun.Confidence, r.Between, r.Within, r.Q, r.I2, r.P), []string{string(r.Verdict), caution}))
	}
	return rows
}

func combinedMethods() []document.Method {
	return []document.Method{
		{Term: "over the runs", Text: "The ratio of a run is the geometric mean of the ratios within its blocks. Over runs it is their mean by a random-effects model (Paule and Mandel's variance between runs, interval of Hartung and Knapp): each run has a ratio of its own, because what its boot draws once is in all of its blocks. The interval covers the mean of runs like these on this machine. The verdict follows from it; the primary metrics against one baseline are one family."},
		{Term: "a next run", Text: "The interval in which one further run of this experiment on this machine is expected to report its ratio, at the same level: it has the scatter between and within runs. With two runs both intervals are very wide, because two say little about how much runs differ."},
		{Term: "between runs", Text: "The standard deviation of the ratio between runs, and its share of the variance of the runs' ratios (I²). 0 % means that the runs differ by no more than their own intervals say."},
	}
}
