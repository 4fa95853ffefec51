// Package advice says what a run shows to be worth doing: which domains and workloads to
// put on one host, and what to change first on a machine.
//
// A choice is advised only where its verdict is known, by the one rule of package stats:
// the choices of a run are one family, and the interval of a choice at the level of the
// family is its verdict. Where the data decide nothing, the advice says what to measure.
//
// The package is pure. How advice is worded belongs to package advice of report.
package advice

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

// Subject is what a choice is about.
type Subject string

// The subjects.
const (
	PodNetwork     Subject = "network of the pods"
	LocalNetwork   Subject = "network within a pod"
	Storage        Subject = "storage of the containers"
	Levels         Subject = "levels of virtualization"
	Overcommitment Subject = "over-commitment"
	Neighbours     Subject = "neighbours on a host"
)

// Choice is one thing to do, or to leave, with what it is expected to give.
type Choice struct {
	Subject Subject
	Action  string // "put hvm and pvm on one host"
	Instead string // what is done if the verdict is Worse: "keep hvm and pvm apart"
	From    string // what the ratio is relative to: a configuration, or in words
	To      string
	Suite   string
	Metric  string
	Unit    string
	Order   result.Order
	Cases   int      // over which the ratio is a geometric mean
	Why     []string // what speaks for the cause, with figures of the run
	Command string   // that does it

	// Expected says what the ratio is, with %s for its value: "its throughput is %s of that
	// alone". It is empty if the metric, From and To say it.
	Expected string
	Starved  string      // the domain that keeps less than half of its turn; empty if none does
	Share    float64     // what it keeps of its throughput alone
	Extremes []CaseRatio // where the cases disagree: that with the lowest ratio and that with the highest; else nil
	Limited  bool        // the load generator was at its limit: with faster clients the ratio may be another

	Effect   stats.Effect // of To over From
	Interval stats.Interval
	Verdict  stats.Verdict
	Needs    int      // further blocks that are expected to decide, where the verdict is not known
	Against  []string // metrics by which the same change is a cost where this is a gain, or the reverse
}

// CaseRatio is the ratio of a choice in one case.
type CaseRatio struct {
	Case  result.Case
	Ratio float64
}

// Decided reports whether the data carry advice.
func (c Choice) Decided() bool {
	return c.Verdict == stats.Better || c.Verdict == stats.Worse || c.Verdict == stats.Equal
}

// Sure returns the gain or the cost that is sure at the confidence of the interval: the
// bound nearest to 1, as the logarithm of a ratio. It is 0 unless the verdict is Better or Worse.
func (c Choice) Sure() float64 {
	if c.Verdict != stats.Better && c.Verdict != stats.Worse {
		return 0
	}
	return min(math.Abs(math.Log(c.Interval.Low)), math.Abs(math.Log(c.Interval.High)))
}

// Measurement is what to measure where the data decide nothing.
type Measurement struct {
	Subject Subject
	Why     string
	Command string
}

// Advice is what a run shows.
type Advice struct {
	// Choices are the best first: gains, then costs, then equals, then the undecided; of each
	// those with a load generator at its limit, with a domain that is starved or with cases that disagree last, and else by
	// what is sure of them.
	Choices []Choice
	Measure []Measurement
	Family  stats.Family // of the choices
}

// Of returns the advice of a run.
func Of(run result.Run, samples []result.Sample) Advice {
	s := newStudy(run, samples)
	choices := append(s.neighbours(), s.changes()...)
	var a Advice
	if run.Interleaved {
		a.Choices, a.Family = judge(choices)
		oppose(a.Choices)
		order(a.Choices)
	}
	a.Measure = missing(run, choices, a.Choices)
	return a
}

// maxNeeds limits the number of further blocks that is worth computing.
const maxNeeds = 1000

func judge(choices []Choice) ([]Choice, stats.Family) {
	var ps []float64
	for _, c := range choices {
		ps = append(ps, c.Effect.P())
	}
	family := stats.Judge(ps, stats.DefaultAlpha)
	for i := range choices {
		c := &choices[i]
		c.Interval, c.Verdict = c.Effect.Judge(family, stats.DefaultMargin, c.Order == result.HIB)
		switch c.Verdict {
		case stats.Unknown:
			c.Needs = max(1, c.Effect.BlocksToDecide(family.Level, stats.DefaultMargin, maxNeeds)-c.Effect.N)
		case stats.TooFew:
			c.Needs = max(1, stats.MinRepetitions-c.Effect.N)
		}
	}
	return choices, family
}

// oppose finds the choices that gain by one metric and cost by another.
func oppose(choices []Choice) {
	for i := range choices {
		c := &choices[i]
		for _, o := range choices {
			if o.From == c.From && o.To == c.To && o.Sure() > 0 && c.Sure() > 0 && o.Verdict != c.Verdict {
				c.Against = append(c.Against, o.Metric)
			}
		}
	}
}

// ranks orders the verdicts: what to do comes first.
var ranks = map[stats.Verdict]int{stats.Better: 1, stats.Worse: 2, stats.Equal: 3, stats.Unknown: 4, stats.TooFew: 5}

// doubts counts what makes a gain less of one.
func (c Choice) doubts() (n int) {
	if c.Limited {
		n++
	}
	if c.Extremes != nil {
		n++
	}
	if c.Starved != "" && c.Verdict == stats.Better {
		n++
	}
	return n
}

func order(choices []Choice) {
	slices.SortStableFunc(choices, func(a, b Choice) int {
		return cmp.Or(ranks[a.Verdict]-ranks[b.Verdict], a.doubts()-b.doubts(), cmp.Compare(b.Sure(), a.Sure()))
	})
}

// studies says how each subject is measured.
var studies = []Measurement{
	{PodNetwork, "", "unnest bench network"},
	{LocalNetwork, "", "unnest bench hostlo"},
	{Storage, "", "unnest bench multilevel --suite disk"},
	{Levels, "", "unnest bench levels"},
	{Overcommitment, "", "unnest bench overcommitment"},
	{Neighbours, "", "unnest bench collocation --suite quick"},
}

// missing says what to measure: more blocks where a choice is open, and the subjects of
// which the run shows nothing.
func missing(run result.Run, found, judged []Choice) (all []Measurement) {
	again := func(blocks int) string {
		arguments := cmp.Or(experiments.Command(run.Experiment), run.Experiment)
		for _, c := range run.Chosen {
			arguments += " --case " + c
		}
		return fmt.Sprintf("unnest bench %s --repetitions %d", arguments, blocks)
	}
	if !run.Interleaved && len(found) > 0 {
		all = append(all, Measurement{found[0].Subject, "the configurations were not interleaved: a change of the machine looks like a difference", again(2 * stats.MinRepetitions)})
	}
	for _, s := range studies {
		subject := func(c Choice) bool { return c.Subject == s.Subject }
		if !slices.ContainsFunc(found, subject) {
			all = append(all, Measurement{s.Subject, "this run has nothing on it", s.Command})
		}
		open, blocks := 0, 0
		for _, c := range judged {
			if subject(c) && !c.Decided() && c.Extremes == nil { // where cases disagree, blocks decide nothing
				open, blocks = open+1, max(blocks, c.Effect.N+c.Needs)
			}
		}
		if open > 0 {
			all = append(all, Measurement{s.Subject, fmt.Sprintf("%d of its choices are not decided", open), again(blocks)})
		}
	}
	return all
}
