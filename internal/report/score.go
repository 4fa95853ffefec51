package report

import (
	"fmt"
	"regexp"
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/score"
)

// Score is an Estimate of a primary metric among those of its suite, as Lubomski
// et al., Tables 5 and 6, set it out.
type Score struct {
	Score     Number          `json:"score"`   // the mean over the highest of all configurations, formula (1)
	Counted   bool            `json:"counted"` // in the totals: every configuration with results has the case
	Published *PublishedScore `json:"published,omitempty"`
}

// SuiteScore is what a suite amounts to, see package score.
type SuiteScore struct {
	Suite    string          `json:"suite"`
	Cases    int             `json:"cases"`    // that count
	Baseline string          `json:"baseline"` // what the geometric means are relative to
	Totals   []Total         `json:"totals"`   // one per configuration of the run
	Missing  []score.Missing `json:"missing,omitempty"`
	Warnings []score.Warning `json:"warnings,omitempty"`
}

// Total is what a suite amounts to in one configuration.
type Total struct {
	Configuration string          `json:"configuration"`
	Total         Number          `json:"total"`            // formula (2)
	Rounded       Number          `json:"total_rounded"`    // the same over scores rounded to two decimals, as the paper's
	GeoMean       Number          `json:"geomean"`          // of the ratios to the baseline, above 1 is better
	Interval      Interval        `json:"geomean_interval"` // over cases
	Published     *PublishedTotal `json:"published,omitempty"`
}

// tableOne matches the configurations of Lubomski et al., Table 1.
var tableOne = regexp.MustCompile(`^(metal|vm)\.(local|remote|(aufs|mnt)(\.(nat|host))?)$`)

// ofTableOne reports whether run compares configurations of the paper's.
func ofTableOne(run result.Run) bool {
	return slices.ContainsFunc(run.Configurations, func(c result.Configuration) bool { return tableOne.MatchString(c.Name) })
}

// ofSuites reports whether the cases of run come from the suites: those have a
// profile.
func ofSuites(run result.Run) bool {
	return len(run.Configurations) > 0 && run.Configurations[0].Options["profile"] != ""
}

// scoredSuites returns the cases of each suite that has a score: two cases or
// more, none of them swept over sizes, in two configurations or more. Loads of
// other studies than the paper's are no suite to sum up.
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
		if cases := bySuite[name]; len(cases) > 1 && !swept(cases) {
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

// scored is a suite that has a score, with the estimates it is made of.
type scored struct {
	id    string
	cases []result.Case
	sum   score.Suite
	said  SuiteScore
	cells map[[2]string]*Estimate // by case and configuration
}

// scores sums up every suite of the run by the means of estimates, each of which
// gets its Score.
func (b *builder) scores(estimates []Estimate) (all []scored, warnings []string) {
	var rows []score.Row
	for _, cases := range scoredSuites(b.run) {
		s := scored{id: anchor("scores", cases[0].Suite), cases: cases, cells: map[[2]string]*Estimate{}}
		for i := range estimates {
			e := &estimates[i]
			if e.Suite != cases[0].Suite || !e.Primary {
				continue
			}
			s.cells[[2]string{e.Case, e.Configuration}] = e
			if e.scorable() {
				rows = append(rows, score.Row{Suite: e.Suite, Case: e.Case, Order: score.Order(e.Order), Unit: e.Unit, Configuration: e.Configuration, Value: float64(e.Mean)})
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
		i := slices.IndexFunc(sums, func(sum score.Suite) bool { return sum.Name == s.cases[0].Suite })
		if i < 0 {
			continue // nothing of it was measured
		}
		s.sum = sums[i]
		b.fill(&s)
		summed = append(summed, s)
	}
	return summed, warnings
}

// scorable reports whether e has a mean that a score can be made of.
func (e Estimate) scorable() bool {
	return e.N > 0 && score.Least <= e.Mean && e.Mean <= score.Greatest
}

// scoreBaseline returns the main baseline if it has results; without, ratios are
// taken to the first configuration that has, with a warning.
func (b *builder) scoreBaseline(rows []score.Row) (name string, warnings []string) {
	baselines := b.baselines()
	if len(baselines) == 0 {
		return "", nil
	}
	if slices.ContainsFunc(rows, func(r score.Row) bool { return r.Configuration == baselines[0] }) {
		return baselines[0], nil
	}
	return "", []string{fmt.Sprintf("No case of the suites has results in %s: geometric means are of ratios to another configuration.", baselines[0])}
}

// fill sets out what the sum of s says.
func (b *builder) fill(s *scored) {
	s.said = SuiteScore{Suite: s.sum.Name, Baseline: s.sum.Baseline, Warnings: s.sum.Warnings}
	for _, c := range s.sum.Cases {
		if c.Counted {
			s.said.Cases++
		}
	}
	for _, c := range s.cases {
		for _, conf := range b.run.Configurations {
			if e := s.cells[[2]string{c.Name, conf.Name}]; e != nil {
				e.Score = s.score(*e)
				e.Score.Published = b.opts.publishedScore(*e)
			}
			if cell, has := s.cell(c.Name, conf.Name); !has || cell.N == 0 {
				s.said.Missing = append(s.said.Missing, score.Missing{Case: c.Name, Configuration: conf.Name})
			}
		}
	}
	for _, conf := range b.run.Configurations {
		t := Total{Configuration: conf.Name, Total: missing, Rounded: missing, GeoMean: missing,
			Interval: Interval{missing, missing, missing}, Published: b.opts.publishedTotal(s.sum.Name, conf.Name)}
		if total, has := s.sum.Totals[conf.Name]; has {
			t.Total, t.Rounded = Number(total.Raw), Number(total.Rounded)
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

// score is the Score of e, a missing one when e has no result.
func (s *scored) score(e Estimate) *Score {
	cell, has := s.cell(e.Case, e.Configuration)
	if !has {
		return &Score{Score: missing}
	}
	i := slices.IndexFunc(s.sum.Cases, func(c score.Case) bool { return c.Name == e.Case })
	return &Score{Score: Number(cell.Score), Counted: s.sum.Cases[i].Counted}
}

// cell returns a case in a configuration; there is none where it has no result.
func (s *scored) cell(name, configuration string) (score.Cell, bool) {
	for _, c := range s.sum.Cases {
		if c.Name == name {
			cell, has := c.Cells[configuration]
			return cell, has
		}
	}
	return score.Cell{}, false
}
