package report

import (
	"fmt"
	"regexp"
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/score"
	"unnest/internal/measure/stats"
	"unnest/internal/report/papers"
)

// Score is an Estimate of a primary metric in the suite of its case, as in Lubomski et
// al., Tables 5 and 6.
type Score struct {
	Score     Number        `json:"score"`   // the mean over the highest of all configurations, formula (1)
	Counted   bool          `json:"counted"` // in the totals: every configuration with results has the case
	Published *papers.Score `json:"published,omitempty"`
}

// SuiteScore is the sum of a suite, see package score.
type SuiteScore struct {
	Suite    string          `json:"suite"`
	Cases    int             `json:"cases"`    // counted
	Baseline string          `json:"baseline"` // of the geometric means
	Totals   []Total         `json:"totals"`   // one per configuration of the run
	Missing  []score.Missing `json:"missing,omitempty"`
	Warnings []score.Warning `json:"warnings,omitempty"`
}

// Total is the sum of a suite in one configuration.
type Total struct {
	Configuration string        `json:"configuration"`
	Total         Number        `json:"total"`            // formula (2)
	Rounded       Number        `json:"total_rounded"`    // the same over scores rounded to two decimals, as the paper's
	GeoMean       Number        `json:"geomean"`          // of the ratios to the baseline, above 1 is better
	Interval      Interval      `json:"geomean_interval"` // over cases
	Published     *papers.Total `json:"published,omitempty"`
	partial       int           // 0, or the number of counted cases that the configuration has when it lacks some
}

// tableOne matches the configurations of Lubomski et al., Table 1.
var tableOne = regexp.MustCompile(`^(metal|vm)\.(local|remote|(aufs|mnt)(\.(nat|host))?)$`)

// ofTableOne reports whether run compares configurations of the paper.
func ofTableOne(run result.Run) bool {
	return slices.ContainsFunc(run.Configurations, func(c result.Configuration) bool { return tableOne.MatchString(c.Name) })
}

// ofSuites reports whether the cases of run come from the suites: those have a
// profile.
func ofSuites(run result.Run) bool {
	return len(run.Configurations) > 0 && run.Configurations[0].Options["profile"] != ""
}

// applicationSuite is the suite of the paper that has one case (§3.5, Table 7).
const applicationSuite = "application"

// scoredSuites returns the cases of each suite that has a score: two or more cases that
// differ in more than size, in two or more configurations, or the only one of
// applicationSuite. The loads of studies other than the paper's are not a suite.
func scoredSuites(run result.Run) [][]result.Case {
	if len(run.Configurations) < 2 || !ofSuites(run) && !ofTableOne(run) {
		return nil
	}
	var order []string
	bySuite := map[string][]result.Case{}
	for _, c := range run.Cases {
		if bySuite[c.Suite] == nil {
			order = append(order, c.Suite)
		}
		bySuite[c.Suite] = append(bySuite[c.Suite], c)
	}
	var suites [][]result.Case
	for _, name := range order {
		if cases := bySuite[name]; (len(cases) > 1 || name == applicationSuite) && !swept(cases) {
			suites = append(suites, cases)
		}
	}
	return suites
}

// swept reports whether two of cases are the same at another size.
func swept(cases []result.Case) bool {
	groups := map[string]bool{}
	for _, c := range cases {
		groups[groupKey(c)] = true
	}
	return len(groups) < len(cases)
}

// scored is a suite with its scores and, if it is of a run, its estimates.
type scored struct {
	id             string
	configurations []result.Configuration // only their names where the suite is not of a run
	slots          []int                  // their colours
	cases          []scoredCase
	sum            score.Suite
	said           SuiteScore
	cells          map[[2]string]*Estimate // by case and configuration
}

// scoredCase names a case, and says how to read its results.
type scoredCase struct{ name, unitAndOrder string }

// Scores reports the scores of suites that were not measured here.
func Scores(suites []score.Suite) Document {
	doc := Document{
		Command: "score", Title: "Scores of suites", Data: suitesJSON(suites), Records: scoreRecords(suites), Methods: scoreMethods(),
	}
	for _, sum := range suites {
		s := scored{id: anchor("scores", sum.Name), sum: sum, cells: map[[2]string]*Estimate{}}
		for _, name := range sum.Configurations {
			s.configurations = append(s.configurations, result.Configuration{Name: name})
		}
		for _, series := range seriesOf(result.Run{Configurations: s.configurations}) {
			s.slots, doc.Series = append(s.slots, series.Slot), append(doc.Series, series)
		}
		for _, c := range sum.Cases {
			s.cases = append(s.cases, scoredCase{c.Name, unitAndOrder(c.Unit, c.Order)})
		}
		s.fill(Papers{})
		doc.Suites = append(doc.Suites, s.said)
		doc.Groups = append(doc.Groups, s.group())
		doc.Headlines, doc.Figures = append(doc.Headlines, s.headlines()...), append(doc.Figures, s.figures(nil)...)
	}
	doc.Figures = doc.Figures[:min(len(doc.Figures), maxFigures)]
	doc.answerFirst(0)
	return doc
}

// scores sums up every suite of the run by the means of estimates, each of which
// gets its Score.
func (b *builder) scores(estimates []Estimate) (all []scored, warnings []string) {
	var rows []score.Row
	for _, cases := range scoredSuites(b.run) {
		s := scored{id: anchor("scores", cases[0].Suite), configurations: b.run.Configurations, cells: map[[2]string]*Estimate{}}
		s.sum.Name = cases[0].Suite
		for _, series := range seriesOf(b.run) {
			s.slots = append(s.slots, series.Slot)
		}
		for _, c := range cases {
			s.cases = append(s.cases, scoredCase{c.Name, b.unitAndOrder(c)})
		}
		for i := range estimates {
			e := &estimates[i]
			if e.Suite != s.sum.Name || !e.Primary {
				continue
			}
			s.cells[[2]string{e.Case, e.Configuration}] = e
			if e.scorable() {
				rows = append(rows, score.Row{Suite: e.Suite, Case: e.Case, Order: e.Order, Unit: e.Unit, Configuration: e.Configuration, Value: float64(e.Mean), StdErr: e.errorOfMean()})
			}
		}
		all = append(all, s)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	baseline, warnings := b.scoreBaseline(rows)
	sums, err := score.Suites(rows, score.Options{Baseline: baseline})
	if err != nil { // names that cannot stand in a table
		return nil, append(warnings, fmt.Sprintf("The suites have no scores: %v.", err))
	}
	var summed []scored
	for _, s := range all {
		i := slices.IndexFunc(sums, func(sum score.Suite) bool { return sum.Name == s.sum.Name })
		if i < 0 {
			continue // nothing of it was measured
		}
		s.sum = sums[i]
		s.fill(b.opts.Papers)
		summed = append(summed, s)
	}
	return summed, warnings
}

// unitAndOrder says how to read the results of c.
func (b *builder) unitAndOrder(c result.Case) string {
	m := metricNamed(b.metrics[c.Name], c.Primary)
	if m == nil {
		return none
	}
	return unitAndOrder(m.Unit, m.Order)
}

// scorable reports whether e has a mean that a score can be made of.
func (e Estimate) scorable() bool {
	return e.N > 0 && score.Least <= e.Mean && e.Mean <= score.Greatest
}

// errorOfMean is the standard error, 0 if it is not known.
func (e Estimate) errorOfMean() float64 {
	if !e.StdErr.Defined() {
		return 0
	}
	return float64(e.StdErr)
}

// scoreBaseline returns the main baseline if it has results. Otherwise ratios are
// relative to the first configuration that has results, with a warning.
func (b *builder) scoreBaseline(rows []score.Row) (name string, warnings []string) {
	baselines := b.baselines()
	if len(baselines) == 0 {
		return "", nil
	}
	if slices.ContainsFunc(rows, func(r score.Row) bool { return r.Configuration == baselines[0] }) {
		return baselines[0], nil
	}
	return "", []string{fmt.Sprintf("%s has no results in the suites: geometric means are relative to another configuration.", baselines[0])}
}

// fill sets out the sum of s.
func (s *scored) fill(printed Papers) {
	s.said = SuiteScore{Suite: s.sum.Name, Baseline: s.sum.Baseline, Warnings: s.sum.Warnings}
	for _, c := range s.sum.Cases {
		if c.Counted {
			s.said.Cases++
		}
	}
	for _, c := range s.cases {
		for _, conf := range s.configurations {
			cell, counted, has := s.cell(c.name, conf.Name)
			if e := s.cells[[2]string{c.name, conf.Name}]; e != nil {
				e.Score = &Score{Score: missing, Counted: counted, Published: printed.score(*e)}
				if has {
					e.Score.Score = Number(cell.Score)
				}
			}
			if !has || cell.N == 0 {
				s.said.Missing = append(s.said.Missing, score.Missing{Case: c.name, Configuration: conf.Name})
			}
		}
	}
	for _, conf := range s.configurations {
		t := Total{Configuration: conf.Name, Total: missing, Rounded: missing, GeoMean: missing,
			Interval: interval(stats.Interval{}), Published: printed.total(s.sum.Name, conf.Name)}
		if total, has := s.sum.Totals[conf.Name]; has {
			t.Total, t.Rounded = Number(total.Raw), Number(total.Rounded)
			if total.Partial {
				t.partial = total.Cases
			}
		}
		if g, has := s.sum.GeoMeans[conf.Name]; has {
			t.GeoMean = Number(g.Ratio)
			if g.HasInterval() {
				t.Interval = Interval{Number(g.Low), Number(g.High), score.Confidence}
			}
		}
		s.said.Totals = append(s.said.Totals, t)
	}
}

// cell returns a case in a configuration, and whether the case counts. It has none
// where there is no result.
func (s *scored) cell(name, configuration string) (cell score.Cell, counted, has bool) {
	for _, c := range s.sum.Cases {
		if c.Name == name {
			cell, has = c.Cells[configuration]
			return cell, c.Counted && has, has
		}
	}
	return score.Cell{}, false, false
}
