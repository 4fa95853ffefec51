package score

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind names a warning for programs.
type Kind string

// The kinds of warnings.
const (
	NoBaseline      Kind = "no-baseline"      // the suite lacks the baseline: no geometric means
	NoTotal         Kind = "no-total"         // no case counts
	CaseTurns       Kind = "case-turns"       // the order by total turns without one case
	FamilyTurns     Kind = "family-turns"     // … without the variants of one benchmark, and without none of them alone
	ConfigTurns     Kind = "config-turns"     // … without one configuration
	GeoMeanDisagree Kind = "geomean-disagree" // … by the geometric mean
)

// Warning is a reason to trust a total less. It is data and never a failure.
type Warning struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"` // one sentence without a full stop
}

// The bounds of what is told. What is beyond is counted.
const (
	maxWarnings = 5 // of a kind and suite
	maxTurns    = 3 // in a warning
)

// warn fills in Warnings.
func (s *Suite) warn(opts Options) {
	if opts.Baseline != "" && s.Baseline == "" {
		s.Warnings = append(s.Warnings, Warning{NoBaseline, "no results of " + opts.Baseline + ": no geometric means"})
	}
	if len(s.Totals) == 0 {
		s.Warnings = append(s.Warnings, Warning{NoTotal, "no case has results in all configurations: no totals"})
		return
	}
	totals := s.comparable()
	alone := s.warnCases(totals)
	s.warnFamilies(totals, alone)
	s.warnConfigurations(totals, opts)
	s.warnGeoMeans(totals)
}

// comparable returns the raw totals of the configurations that lack no case that
// counts.
func (s *Suite) comparable() map[string]float64 {
	totals := map[string]float64{}
	for name, t := range s.Totals {
		if !t.Partial {
			totals[name] = t.Raw
		}
	}
	return totals
}

// turn is a pair of configurations whose order has turned: up was behind down.
type turn struct{ up, down string }

// turns returns the pairs whose order differs between before and after, by the
// order of configurations. Ties turn nothing.
func (s *Suite) turns(before, after map[string]float64) []turn {
	const tie = 1e-9 // more than sums of scores are off by, less than a score resolves
	var found []turn
	for _, up := range s.Configurations {
		for _, down := range s.Configurations {
			_, hasUp := before[up]
			_, hasDown := before[down]
			if hasUp && hasDown && before[down]-before[up] > tie && after[up]-after[down] > tie {
				found = append(found, turn{up, down})
			}
		}
	}
	return found
}

// warnCases warns of the cases without which the order turns, and returns for
// each the pairs that it turns.
func (s *Suite) warnCases(totals map[string]float64) map[string][]turn {
	alone := map[string][]turn{}
	var texts []string
	for _, c := range s.Cases {
		after := less(totals, c)
		if turned := s.turns(totals, after); len(turned) > 0 {
			alone[c.Name] = turned
			texts = append(texts, fmt.Sprintf("without case %s %s", c.Name, told(turned, after)))
		}
	}
	s.addBounded(CaseTurns, texts, "cases")
	return alone
}

// less returns totals without what cases add to them.
func less(totals map[string]float64, cases ...Case) map[string]float64 {
	after := maps.Clone(totals)
	for _, c := range cases {
		for name := range after {
			if c.Counted {
				after[name] -= sign(c.Order) * c.Cells[name].Score
			}
		}
	}
	return after
}

// warnFamilies warns of the families without which the order turns. A pair that
// one case of the family turns alone is told of there.
func (s *Suite) warnFamilies(totals map[string]float64, alone map[string][]turn) {
	var texts []string
	for _, family := range families(s.Cases) {
		known := map[turn]bool{}
		var names []string
		for _, c := range family {
			names = append(names, c.Name)
			for _, t := range alone[c.Name] {
				known[t] = true
			}
		}
		after := less(totals, family...)
		turned := slices.DeleteFunc(s.turns(totals, after), func(t turn) bool { return known[t] })
		if len(turned) > 0 {
			texts = append(texts, fmt.Sprintf("without the %d variants %s %s", len(names), span(names), told(turned, after)))
		}
	}
	s.addBounded(FamilyTurns, texts, "families of variants")
}

// families returns the cases that are variants of one benchmark, two or more
// each: those whose names differ in a number at the end only.
func families(cases []Case) [][]Case {
	members := map[string][]Case{}
	var stems []string
	for _, c := range cases {
		stem := strings.TrimRight(c.Name, "0123456789")
		if stem == "" || stem == c.Name {
			continue
		}
		if members[stem] == nil {
			stems = append(stems, stem)
		}
		members[stem] = append(members[stem], c)
	}
	var found [][]Case
	for _, stem := range stems {
		if len(members[stem]) > 1 {
			found = append(found, members[stem])
		}
	}
	return found
}

// span names a family by its first and last member.
func span(names []string) string {
	if len(names) == 2 {
		return names[0] + " and " + names[1]
	}
	return names[0] + " to " + names[len(names)-1]
}

// warnConfigurations warns of the configurations without which the order of the
// others turns.
func (s *Suite) warnConfigurations(totals map[string]float64, opts Options) {
	var texts []string
	for _, name := range s.Configurations {
		after := s.totalsWithout(name, opts.Partial)
		before := maps.Clone(totals)
		delete(before, name)
		if turned := s.turns(before, after); len(turned) > 0 {
			texts = append(texts, fmt.Sprintf("without configuration %s %s", name, told(turned, after)))
		}
	}
	s.addBounded(ConfigTurns, texts, "configurations")
}

// totalsWithout returns the raw totals as if a configuration had never been
// measured: scores are over the best of the others, and cases count that only
// this one lacks.
func (s *Suite) totalsWithout(configuration string, partial bool) map[string]float64 {
	others := slices.DeleteFunc(slices.Clone(s.Configurations), func(name string) bool { return name == configuration })
	totals := map[string]float64{}
	for _, c := range s.Cases {
		lacks := func(name string) bool { _, has := c.Cells[name]; return !has }
		if !partial && slices.ContainsFunc(others, lacks) {
			continue
		}
		best := highest(c, others)
		for _, name := range others {
			if !lacks(name) {
				totals[name] += sign(c.Order) * c.Cells[name].Mean / best
			}
		}
	}
	return totals
}

// warnGeoMeans warns where the geometric mean orders configurations otherwise.
func (s *Suite) warnGeoMeans(totals map[string]float64) {
	ratios := map[string]float64{}
	for name, g := range s.GeoMeans {
		ratios[name] = g.Ratio
	}
	if turned := s.turns(totals, ratios); len(turned) > 0 {
		s.addBounded(GeoMeanDisagree, []string{"by the geometric mean " + told(turned, ratios)}, "")
	}
}

// told words turned with the figures that decide, at most maxTurns of them.
func told(turned []turn, after map[string]float64) string {
	var parts []string
	for _, t := range turned[:min(len(turned), maxTurns)] {
		parts = append(parts, fmt.Sprintf("%s (%.3f) overtakes %s (%.3f)", t.up, after[t.up], t.down, after[t.down]))
	}
	if more := len(turned) - maxTurns; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more pairs turn", more))
	}
	return strings.Join(parts, ", ")
}

// addBounded adds texts as warnings, at most maxWarnings, and says how many more
// things of that name there are.
func (s *Suite) addBounded(kind Kind, texts []string, things string) {
	for _, text := range texts[:min(len(texts), maxWarnings)] {
		s.Warnings = append(s.Warnings, Warning{kind, text})
	}
	if more := len(texts) - maxWarnings; more > 0 {
		s.Warnings = append(s.Warnings, Warning{kind, fmt.Sprintf("%d more %s turn the order when left out", more, things)})
	}
}
