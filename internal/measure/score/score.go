// Package score computes total scores of suites as Lubomski, Kalinowski and Krawczyk
// do (Multi-level virtualization and its impact on system performance in cloud
// computing, §3.6), and warns where a total is misleading.
//
// A score is a mean result over the best of all configurations in its case, formula (1).
// The total of a configuration is the sum of its scores, minus those where lower is
// better, formula (2). Totals depend on the other configurations and on the cases: a
// further configuration can reverse the order of two others, and a benchmark with four
// variants counts four times. The geometric mean of ratios to a baseline does not depend
// on other configurations. A Warning reports where leaving something out reverses the
// order by total.
//
// The package is pure. Reading files and formatting tables does not belong here.
package score

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

// Row is one result. Rows of the same case and configuration are repetitions, whose mean
// counts (§3.3).
type Row struct {
	Suite, Case   string
	Order         result.Order
	Unit          string // of Value; the same in all rows of a case; may be empty
	Configuration string
	Value         float64 // positive, see Least and Greatest
	StdErr        float64 // standard error of Value, if it is a mean; 0: not known
}

// The bounds of values, so that no ratio overflows.
const (
	Least    = 1e-100
	Greatest = 1e100
)

// RowError is an error in one row.
type RowError struct {
	Row    int    // index of the row
	Column string // suite, case, order, unit, configuration or value
	Text   string // the error and its fix
}

// Error gives the row, counted from 1, and its column.
func (e *RowError) Error() string {
	return fmt.Sprintf("row %d, %s: %s", e.Row+1, e.Column, e.Text)
}

// Options are the options of Suites.
type Options struct {
	// Baseline is the configuration that geometric means are relative to. Empty: the first
	// one of each suite.
	Baseline string
	// Partial includes cases that some configurations lack: such a case counts for the
	// configurations that have it, and the totals of the others are marked partial.
	// Otherwise it is left out of all totals.
	Partial bool
}

// Suite is the result of one suite. Configurations and cases are in the order of their
// first rows.
type Suite struct {
	Name           string
	Configurations []string
	Cases          []Case
	Baseline       string             // empty: the suite lacks Options.Baseline
	Totals         map[string]Total   // by configuration; empty if no case counts
	GeoMeans       map[string]GeoMean // by configuration; without those that have no ratio
	Missing        []Missing
	Warnings       []Warning
}

// Case is one case of a suite.
type Case struct {
	Name    string
	Order   result.Order
	Unit    string
	Cells   map[string]Cell // by configuration
	Counted bool            // every configuration has it, or Options.Partial is set
}

// Cell is a case in a configuration.
type Cell struct {
	Mean  float64 // of the repetitions, in the unit of the case
	N     int     // repetitions
	Score float64 // formula (1), in (0, 1]; 1 is the highest result, even if lower is better
	// StdErr is the standard error of Mean, between repetitions or as its only row says;
	// 0: not known.
	StdErr float64
}

func (c Cell) add(row Row) Cell {
	n := float64(c.N)
	squares := c.StdErr * c.StdErr * n * (n - 1) // of the distances from the mean, summed
	distance := row.Value - c.Mean
	c.N++
	c.Mean += distance / float64(c.N)
	squares += distance * (row.Value - c.Mean)
	if c.StdErr = row.StdErr; c.N > 1 {
		c.StdErr = math.Sqrt(squares / n / float64(c.N))
	}
	return c
}

// Total is a total score. Higher is better.
type Total struct {
	Raw     float64 // formula (2)
	Rounded float64 // formula (2) over scores rounded to two decimals, as in the paper
	Cases   int     // number of cases that count
	Partial bool    // the configuration lacks cases that count for others: do not compare
}

// Missing is a case that a configuration lacks.
type Missing struct {
	Case          string `json:"case"`
	Configuration string `json:"configuration"`
}

// Suites returns the result of every suite, in the order of their first rows. It fails
// with a *RowError if a row is invalid or contradicts an earlier row of its case, and if
// no suite has the baseline.
func Suites(rows []Row, opts Options) ([]Suite, error) {
	if len(rows) == 0 {
		return nil, errors.New("no results: give at least one row")
	}
	c := collection{cases: map[[2]string]int{}, configurations: map[[2]string]bool{}, suites: map[string]int{}}
	for i, row := range rows {
		if err := check(i, row); err != nil {
			return nil, err
		}
		if err := c.add(i, row); err != nil {
			return nil, err
		}
	}
	if err := checkBaseline(c.list, opts.Baseline); err != nil {
		return nil, err
	}
	for i := range c.list {
		c.list[i].sumUp(opts)
	}
	return c.list, nil
}

func check(i int, row Row) error {
	for _, f := range []struct {
		column, text string
		optional     bool
	}{{"suite", row.Suite, false}, {"case", row.Case, false}, {"configuration", row.Configuration, false}, {"unit", row.Unit, true}} {
		if f.text == "" && !f.optional {
			return &RowError{i, f.column, "is empty: give it a name"}
		}
		if strings.ContainsFunc(f.text, unicode.IsControl) {
			return &RowError{i, f.column, fmt.Sprintf("%q has a control character: remove it", f.text)}
		}
	}
	if err := row.Order.Validate(); err != nil {
		return &RowError{i, "order", strings.TrimPrefix(err.Error(), "order ")}
	}
	if !(Least <= row.Value && row.Value <= Greatest) { // also NaN
		return &RowError{i, "value", fmt.Sprintf("%v: want a positive number, from %v to %v", row.Value, Least, Greatest)}
	}
	return nil
}

func checkBaseline(suites []Suite, baseline string) error {
	var known []string
	for _, s := range suites {
		for _, c := range s.Configurations {
			if !slices.Contains(known, c) {
				known = append(known, c)
			}
		}
	}
	if baseline == "" || slices.Contains(known, baseline) {
		return nil
	}
	return fmt.Errorf("no results of baseline %q: choose one of %s", baseline, strings.Join(known, ", "))
}

// collection is the suites of the rows so far, and the indices of what they contain. The
// keys of cases and configurations begin with their suite.
type collection struct {
	list           []Suite
	suites         map[string]int
	cases          map[[2]string]int
	configurations map[[2]string]bool
}

// add adds row, which has index i.
func (c *collection) add(i int, row Row) error {
	if _, known := c.suites[row.Suite]; !known {
		c.suites[row.Suite] = len(c.list)
		c.list = append(c.list, Suite{Name: row.Suite, Totals: map[string]Total{}, GeoMeans: map[string]GeoMean{}})
	}
	s := &c.list[c.suites[row.Suite]]
	if key := [2]string{row.Suite, row.Configuration}; !c.configurations[key] {
		c.configurations[key] = true
		s.Configurations = append(s.Configurations, row.Configuration)
	}
	key := [2]string{row.Suite, row.Case}
	if _, known := c.cases[key]; !known {
		c.cases[key] = len(s.Cases)
		s.Cases = append(s.Cases, Case{Name: row.Case, Order: row.Order, Unit: row.Unit, Cells: map[string]Cell{}})
	}
	return s.Cases[c.cases[key]].add(i, row)
}

func (c Case) add(i int, row Row) error {
	if c.Order != row.Order {
		return &RowError{i, "order", fmt.Sprintf("%s, but case %q was %s before: give a case one order", row.Order, c.Name, c.Order)}
	}
	if c.Unit != row.Unit {
		return &RowError{i, "unit", fmt.Sprintf("%q, but case %q was in %q before: give a case one unit", row.Unit, c.Name, c.Unit)}
	}
	c.Cells[row.Configuration] = c.Cells[row.Configuration].add(row)
	return nil
}

// sumUp computes the scores and everything that follows from them.
func (s *Suite) sumUp(opts Options) {
	for i, c := range s.Cases {
		best := highest(c, s.Configurations)
		for name, cell := range c.Cells {
			cell.Score = cell.Mean / best
			c.Cells[name] = cell
		}
		s.Cases[i].Counted = opts.Partial || len(c.Cells) == len(s.Configurations)
		for _, name := range s.Configurations {
			if _, has := c.Cells[name]; !has {
				s.Missing = append(s.Missing, Missing{c.Name, name})
			}
		}
	}
	s.total()
	if s.Baseline = cmp.Or(opts.Baseline, s.Configurations[0]); !slices.Contains(s.Configurations, s.Baseline) {
		s.Baseline = ""
	}
	s.compare()
	s.warn(opts)
}

// highest returns the highest mean of c among the configurations, 0 if none has the case.
func highest(c Case, configurations []string) float64 {
	best := 0.0
	for _, name := range configurations {
		best = max(best, c.Cells[name].Mean)
	}
	return best
}

// total computes Totals from the scores of the cases that count.
func (s *Suite) total() {
	counted := 0
	for _, c := range s.Cases {
		if !c.Counted {
			continue
		}
		counted++
		for name, cell := range c.Cells {
			t := s.Totals[name]
			t.Cases++
			t.Raw += sign(c.Order) * cell.Score
			t.Rounded += sign(c.Order) * cents(cell.Score)
			s.Totals[name] = t
		}
	}
	for name, t := range s.Totals {
		t.Rounded = cents(t.Rounded) // remove the rounding errors of the sum
		t.Partial = t.Cases < counted
		s.Totals[name] = t
	}
}

// sign is sgn in formula (2).
func sign(o result.Order) float64 {
	if o == result.LIB {
		return -1
	}
	return 1
}

// cents rounds x to two decimals.
func cents(x float64) float64 { return math.Round(x*100) / 100 }

// Confidence is the level of the intervals of geometric means.
const Confidence = 0.95

// GeoMean is the geometric mean, over cases, of the ratio of a configuration to the
// baseline. Ratios of cases where lower is better are inverted, so above 1 is always
// better than the baseline.
//
// Low and High are Student's t interval of the mean of the logarithms. It shows how much
// the ratio varies between cases, not how well each case was measured. It treats the
// cases as an independent sample, so variants of one benchmark make it too narrow. It
// needs stats.MinRepetitions cases, because an interval of two may begin at a millionth.
// Without an interval, as for the baseline, both are 0.
type GeoMean struct {
	Ratio     float64
	Low, High float64
	Cases     int // number of cases that count and that both have
}

// HasInterval reports whether there is an interval.
func (g GeoMean) HasInterval() bool { return g.High > 0 }

// compare computes GeoMeans.
func (s *Suite) compare() {
	if s.Baseline == "" {
		return
	}
	for _, name := range s.Configurations {
		if logs := s.logRatios(name); len(logs) > 0 {
			s.GeoMeans[name] = geoMean(logs, name == s.Baseline)
		}
	}
}

// logRatios returns the logarithms of the ratios of a configuration to the baseline, in
// the cases that count and that both have.
func (s *Suite) logRatios(configuration string) []float64 {
	var logs []float64
	for _, c := range s.Cases {
		cell, has := c.Cells[configuration]
		base, hasBase := c.Cells[s.Baseline]
		if c.Counted && has && hasBase {
			logs = append(logs, sign(c.Order)*(math.Log(cell.Mean)-math.Log(base.Mean)))
		}
	}
	return logs
}

func geoMean(logs []float64, baseline bool) GeoMean {
	sum := 0.0
	for _, l := range logs {
		sum += l
	}
	g := GeoMean{Ratio: math.Exp(sum / float64(len(logs))), Cases: len(logs)}
	if baseline || len(logs) < stats.MinRepetitions {
		return g
	}
	i, err := stats.MeanInterval(logs, Confidence)
	if err != nil {
		return g
	}
	if low, high := math.Exp(i.Low), math.Exp(i.High); low > 0 && !math.IsInf(high, 1) {
		g.Low, g.High = low, high
	}
	return g
}
