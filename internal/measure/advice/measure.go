package advice

import (
	"cmp"
	"fmt"
	"slices"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

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
