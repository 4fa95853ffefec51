// Package scores builds reports of the scores of suites, and the sections on the suites of a
// run, as Lubomski et al. Scores themselves belong to package score.
package scores

import (
	"fmt"
	"regexp"
	"slices"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/score"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/papers"
)

// tableOne matches the configurations of Lubomski et al., Table 1.
var tableOne = regexp.MustCompile(`^(metal|vm)\.(local|remote|(aufs|mnt)(\.(nat|host))?)$`)

// OfTableOne reports whether run compares configurations of the paper.
func OfTableOne(run result.Run) bool {
	return slices.ContainsFunc(run.Configurations, func(c result.Configuration) bool { return tableOne.MatchString(c.Name) })
}

// OfSuites reports whether the cases of run come from the suites: those have a
// profile.
func OfSuites(run result.Run) bool {
	return len(run.Configurations) > 0 && run.Configurations[0].Options["profile"] != ""
}

// applicationSuite is the suite of the paper that has one case (§3.5, Table 7).
const applicationSuite = "application"

// Suites returns the cases of each suite that has a score: two or more cases that
// differ in more than size, in two or more configurations, or the only one of
// applicationSuite. The loads of studies other than the paper's are not a suite.
func Suites(run result.Run) [][]result.Case {
	if len(run.Configurations) < 2 || !OfSuites(run) && !OfTableOne(run) {
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
		if cases := bySuite[name]; (len(cases) > 1 || name == applicationSuite) && !Swept(cases) {
			suites = append(suites, cases)
		}
	}
	return suites
}

// Swept reports whether two of cases are the same at another size.
func Swept(cases []result.Case) bool {
	groups := map[string]bool{}
	for _, c := range cases {
		groups[naming.GroupKey(c)] = true
	}
	return len(groups) < len(cases)
}

// Suite is a suite with its scores and, if it is of a run, its estimates.
type Suite struct {
	id             string
	configurations []result.Configuration // only their names where the suite is not of a run
	slots          []int                  // their colours
	cases          []scoredCase
	sum            score.Suite
	Values         estimate.SuiteScore
	cells          map[[2]string]*estimate.Estimate // by case and configuration
}

// scoredCase names a case, and says how to read its results.
type scoredCase struct{ name, unitAndOrder string }

// Version is the version of the JSON of scores. Keys are added without a new version; it changes
// when one is removed or gets another meaning.
const Version = 1

// Build reports the scores of suites that were not measured here.
func Build(suites []score.Suite) document.Document {
	doc := document.Document{
		Command: "score", Title: "Scores of suites", SchemaVersion: Version, Data: suitesJSON(suites), Records: scoreRecords(suites), Methods: Methods(),
	}
	for _, sum := range suites {
		s := Suite{id: document.Anchor("scores", sum.Name), sum: sum, cells: map[[2]string]*estimate.Estimate{}}
		for _, name := range sum.Configurations {
			s.configurations = append(s.configurations, result.Configuration{Name: name})
		}
		for _, series := range naming.Series(result.Run{Configurations: s.configurations}) {
			s.slots, doc.Series = append(s.slots, series.Slot), append(doc.Series, series)
		}
		for _, c := range sum.Cases {
			s.cases = append(s.cases, scoredCase{c.Name, naming.UnitAndOrder(c.Unit, c.Order)})
		}
		s.fill(papers.Figures{})
		doc.Groups = append(doc.Groups, s.Group())
		doc.Headlines, doc.Figures = append(doc.Headlines, s.Headlines()...), append(doc.Figures, s.Figures(noBadges)...)
	}
	doc.Figures = doc.Figures[:min(len(doc.Figures), document.MaxFigures)]
	doc.AnswerFirst(0)
	return doc
}

// OfRun sums up every suite of the run by the means of estimates, each of which
// gets its Score.
func OfRun(set *estimate.Set, printed papers.Figures, estimates []estimate.Estimate) (all []Suite, warnings []string) {
	var rows []score.Row
	for _, cases := range Suites(set.Run) {
		s, ofSuite := suiteOf(set, cases, estimates)
		all, rows = append(all, s), append(rows, ofSuite...)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	baseline, warnings := scoreBaseline(set, rows)
	sums, err := score.Suites(rows, score.Options{Baseline: baseline})
	if err != nil { // names that cannot stand in a table
		return nil, append(warnings, fmt.Sprintf("The suites have no scores: %v.", err))
	}
	var summed []Suite
	for _, s := range all {
		i := slices.IndexFunc(sums, func(sum score.Suite) bool { return sum.Name == s.sum.Name })
		if i < 0 {
			continue // nothing of it was measured
		}
		s.sum = sums[i]
		s.fill(printed)
		summed = append(summed, s)
	}
	return summed, warnings
}

// suiteOf is a suite of a run before it is summed up, with the rows that it is the sum of.
func suiteOf(set *estimate.Set, cases []result.Case, estimates []estimate.Estimate) (s Suite, rows []score.Row) {
	s = Suite{id: document.Anchor("scores", cases[0].Suite), configurations: set.Run.Configurations, cells: map[[2]string]*estimate.Estimate{}}
	s.sum.Name = cases[0].Suite
	for _, series := range naming.Series(set.Run) {
		s.slots = append(s.slots, series.Slot)
	}
	for _, c := range cases {
		s.cases = append(s.cases, scoredCase{c.Name, caseUnitAndOrder(set, c)})
	}
	for i := range estimates {
		e := &estimates[i]
		if e.Suite != s.sum.Name || !e.Primary {
			continue
		}
		s.cells[[2]string{e.Case, e.Configuration}] = e
		if e.N > 0 && score.Least <= e.Mean && e.Mean <= score.Greatest { // a mean that has a score
			rows = append(rows, score.Row{Suite: e.Suite, Case: e.Case, Order: e.Order, Unit: e.Unit, Configuration: e.Configuration, Value: float64(e.Mean), StdErr: errorOfMean(*e)})
		}
	}
	return s, rows
}

// caseUnitAndOrder says how to read the results of c.
func caseUnitAndOrder(set *estimate.Set, c result.Case) string {
	m := estimate.MetricNamed(set.Metrics[c.Name], c.Primary)
	if m == nil {
		return document.None
	}
	return naming.UnitAndOrder(m.Unit, m.Order)
}

// errorOfMean is the standard error, 0 if it is not known.
func errorOfMean(e estimate.Estimate) float64 {
	if !e.StdErr.Defined() {
		return 0
	}
	return float64(e.StdErr)
}

// scoreBaseline returns the main baseline if it has results. Otherwise ratios are
// relative to the first configuration that has results, with a warning.
func scoreBaseline(set *estimate.Set, rows []score.Row) (name string, warnings []string) {
	baselines := set.Baselines()
	if len(baselines) == 0 {
		return "", nil
	}
	if slices.ContainsFunc(rows, func(r score.Row) bool { return r.Configuration == baselines[0] }) {
		return baselines[0], nil
	}
	return "", []string{fmt.Sprintf("%s has no results in the suites: geometric means are relative to another configuration.", baselines[0])}
}

// fill sets out the sum of s.
func (s *Suite) fill(printed papers.Figures) {
	s.Values = estimate.SuiteScore{Suite: s.sum.Name, Baseline: s.sum.Baseline, Warnings: s.sum.Warnings}
	for _, c := range s.sum.Cases {
		if c.Counted {
			s.Values.Cases++
		}
	}
	for _, c := range s.cases {
		for _, conf := range s.configurations {
			cell, counted, has := s.cell(c.name, conf.Name)
			if e := s.cells[[2]string{c.name, conf.Name}]; e != nil {
				e.Score = &estimate.Score{Score: document.Missing, Counted: counted, Published: printed.Score(e.Suite, e.Case, e.Configuration)}
				if has {
					e.Score.Score = document.Number(cell.Score)
				}
			}
			if !has || cell.N == 0 {
				s.Values.Missing = append(s.Values.Missing, score.Missing{Case: c.name, Configuration: conf.Name})
			}
		}
	}
	for _, conf := range s.configurations {
		t := estimate.Total{Configuration: conf.Name, Total: document.Missing, Rounded: document.Missing, GeoMean: document.Missing,
			Interval: document.NoInterval, Published: printed.Total(s.sum.Name, conf.Name)}
		if total, has := s.sum.Totals[conf.Name]; has {
			t.Total, t.Rounded = document.Number(total.Raw), document.Number(total.Rounded)
			if total.Partial {
				t.Partial = total.Cases
			}
		}
		if g, has := s.sum.GeoMeans[conf.Name]; has {
			t.GeoMean = document.Number(g.Ratio)
			if g.HasInterval() {
				t.Interval = document.Interval{Low: document.Number(g.Low), High: document.Number(g.High), Confidence: score.Confidence}
			}
		}
		s.Values.Totals = append(s.Values.Totals, t)
	}
}

// cell returns a case in a configuration, and whether the case counts. It has none
// where there is no result.
func (s *Suite) cell(name, configuration string) (cell score.Cell, counted, has bool) {
	for _, c := range s.sum.Cases {
		if c.Name == name {
			cell, has = c.Cells[configuration]
			return cell, c.Counted && has, has
		}
	}
	return score.Cell{}, false, false
}

// Methods explain scores and geometric means.
func Methods() []document.Method {
	return []document.Method{
		{Term: "score, total", Text: "After Lubomski et al., Multi-level virtualization and its impact on system performance in cloud computing, §3.6. A score is the mean over the highest mean of all configurations in its case, so 1 is the best where higher is better (HIB) and the worst where lower is better (LIB). A total is the sum of the scores less those of LIB cases: higher is better. Totals depend on which configurations and cases are in the table: adding one of either can reverse the order of two others, and a warning says where it does. The paper sums scores rounded to two decimals. A case without results in some configuration counts in no total."},
		{Term: "geometric mean", Text: "The geometric mean, over cases, of the ratio of the mean to that of a baseline. It does not depend on the other configurations, nor on the order of the case. Its interval treats the cases as a sample of all possible cases; variants of one benchmark make it too narrow."},
	}
}

func noBadges(string) (string, bool) { return "", false }

// publishedTable lists our scores with the paper's, in the configurations of which the
// paper has any; it is empty when nothing matches.
func (s *Suite) publishedTable() document.Table {
	t := document.Table{ID: s.id + "-published",
		Title:   fmt.Sprintf("Suite %s: scores of this run and of the paper", s.sum.Name),
		Columns: []document.Column{{Name: "case", Header: true}}}
	var configurations []string
	var tables []int
	for _, total := range s.Values.Totals {
		if total.Published != nil {
			configurations, tables = append(configurations, total.Configuration), append(tables, total.Published.Table)
			t.Columns = append(t.Columns, document.Column{Name: total.Configuration, Numeric: true})
		}
	}
	if len(configurations) == 0 {
		return document.Table{}
	}
	for _, c := range s.cases {
		row, some := []document.Cell{{Text: c.name}}, false
		for _, name := range configurations {
			e := s.cells[[2]string{c.name, name}]
			if e == nil || e.Score.Published == nil {
				row = append(row, document.NoValue)
				continue
			}
			some = true
			row = append(row, withPaper(document.Decimal(e.Score.Score, 2), e.Score.Published.Score))
		}
		if some {
			t.Rows = append(t.Rows, row)
		}
	}
	totals, counts := []document.Cell{{Text: "total"}}, []document.Cell{{Text: "cases in it"}}
	for _, total := range s.Values.Totals {
		if p := total.Published; p != nil {
			totals = append(totals, withPaper(document.Decimal(total.Rounded, 2), p.Total))
			counts = append(counts, withPaper(fmt.Sprint(s.Values.Cases), papers.Number(fmt.Sprint(p.Cases))))
		}
	}
	t.Rows = append(t.Rows, totals, counts)
	t.Sums = 2
	t.Notes = publishedScoreNotes(tables)
	return t
}

// withPaper is a cell of our figure and the paper's.
func withPaper(ours string, printed papers.Number) document.Cell {
	paper := "paper " + string(printed)
	return document.Cell{Text: ours, Short: ours + ", " + paper, Remark: paper}
}

// publishedScoreNotes name the source of the paper's figures and the limits of the
// comparison.
func publishedScoreNotes(tables []int) []string {
	slices.Sort(tables)
	var names []string
	for _, t := range slices.Compact(tables) {
		names = append(names, fmt.Sprint(t))
	}
	tableWord := "Table "
	if len(names) > 1 {
		tableWord = "Tables "
	}
	return []string{
		"Paper: Lubomski, Kalinowski, Krawczyk, Multi-level virtualization and its impact on system performance in cloud computing, " + tableWord + document.List(names) +
			", as printed. The paper used another machine, VMware ESXi, Docker on AUFS, and the programs and sizes of the Phoronix Test Suite.",
		"Scores and totals depend on the configurations and cases that were measured together. Those of the paper are over its own configurations and cases: compare the ranking of the configurations rather than the figures.",
	}
}
