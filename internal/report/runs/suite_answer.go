package runs

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
)

// tally counts the verdicts on one configuration against a baseline in the cases of a suite.
type tally struct {
	name                       string
	better, worse, equal, open int
	faster                     bool // all metrics are speeds
}

// tallies counts the verdicts against the main baseline of each configuration.
func (b *builder) tallies(estimates []estimate.Estimate) []tally {
	if len(b.Baselines()) == 0 {
		return nil
	}
	var all []tally
	for _, conf := range b.Run.Configurations {
		t := tally{name: conf.Name, faster: true}
		for _, e := range estimates {
			if e.Configuration != conf.Name {
				continue
			}
			t.faster = t.faster && estimate.Speed(e)
			if c := e.Against(b.Baselines()[0]); c != nil {
				t.count(c.Verdict)
			}
		}
		if t.sum() > 0 {
			all = append(all, t)
		}
	}
	return all
}

// suiteBadges are the verdicts on the primary metrics of a suite, open where less than half of
// them are known.
func (b *builder) suiteBadges(suite string, estimates []estimate.Estimate) func(configuration string) (badge string, open bool) {
	tallies := b.tallies(slices.DeleteFunc(estimate.Primaries(estimates), func(e estimate.Estimate) bool { return e.Suite != suite }))
	return func(configuration string) (string, bool) {
		for _, t := range tallies {
			if t.name == configuration {
				return t.String(), !t.decided()
			}
		}
		return "", false
	}
}

// badges are the verdicts on the primary metrics of each configuration that has any.
func (b *builder) badges(estimates []estimate.Estimate) map[string]string {
	badges := map[string]string{}
	for _, t := range b.tallies(estimate.Primaries(estimates)) {
		badges[t.name] = t.String()
	}
	return badges
}

func (t *tally) count(v stats.Verdict) {
	switch v {
	case stats.Better:
		t.better++
	case stats.Worse:
		t.worse++
	case stats.Equal:
		t.equal++
	case stats.Unknown:
		t.open++
	}
}

func (t tally) sum() int { return t.better + t.worse + t.equal + t.open }

// decided reports whether at least half of the verdicts are known.
func (t tally) decided() bool { return 2*t.open <= t.sum() }

// count is how often a word applies.
type count struct {
	word string
	n    int
}

// String words the counts, the largest first: "not known in 9, slower in 3".
func (t tally) String() string {
	good, bad := "better", "worse"
	if t.faster {
		good, bad = "faster", "slower"
	}
	counts := []count{{bad, t.worse}, {good, t.better}, {"equal", t.equal}, {"not known", t.open}}
	slices.SortStableFunc(counts, func(a, b count) int { return b.n - a.n })
	if counts[0].n == t.sum() {
		return counts[0].word + " in all"
	}
	var parts []string
	for _, c := range counts {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%s in %d", c.word, c.n))
		}
	}
	return strings.Join(parts, ", ")
}

// suiteAnswer says in one sentence in how many cases of a suite each configuration differs
// from the main baseline.
func (b *builder) suiteAnswer(cases []result.Case, estimates []estimate.Estimate) string {
	estimates = estimate.Primaries(estimates)
	if len(b.Baselines()) == 0 || len(estimates) == 0 {
		return ""
	}
	names := map[string][]string{}
	var order []string
	for _, t := range b.tallies(estimates) {
		text := t.String()
		if names[text] == nil {
			order = append(order, text)
		}
		names[text] = append(names[text], t.name)
	}
	if len(order) == 0 {
		return ""
	}
	var parts []string
	for _, text := range order {
		parts = append(parts, document.List(names[text])+map[bool]string{true: " is ", false: " are "}[len(names[text]) == 1]+text)
	}
	return fmt.Sprintf("Suite %s, %s against %s: %s.", cases[0].Suite, document.Plural(len(cases), "case"), b.Baselines()[0], strings.Join(parts, "; "))
}
