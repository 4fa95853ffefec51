package score

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Kind is the kind of a warning.
type Kind string

// The kinds of warnings.
const (
	NoBaseline      Kind = "no-baseline"      // the suite lacks the baseline: no geometric means
	NoTotal         Kind = "no-total"         // no case counts
	CaseTurns       Kind = "case-turns"       // the order by total reverses without one case
	FamilyTurns     Kind = "family-turns"     // … without the variants of one benchmark, but without none of them alone
	ConfigTurns     Kind = "config-turns"     // … without one configuration
	GeoMeanDisagree Kind = "geomean-disagree" // … by the geometric mean
)

// Warning is a reason to trust a total less.
type Warning struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"` // one sentence without a period
}

// Limits of warnings. Further ones are counted.
const (
	maxWarnings = 5 // of a kind and suite
	maxSwaps    = 3 // in a warning
)

// warn sets Warnings.
func (s *Suite) warn(opts Options) {
	if opts.Baseline != "" && s.Baseline == "" {
		s.Warnings = append(s.Warnings, Warning{NoBaseline, "no results of " + opts.Baseline + ": no geometric means"})
	}
	if len(s.Totals) == 0 {
		s.Warnings = append(s.Warnings, Warning{NoTotal, "no case has results in all configurations: no totals"})
		return
	}
	totals := map[string]float64{} // of the configurations with all cases that count
	for name, t := range s.Totals {
		if !t.Partial {
			totals[name] = t.Raw
		}
	}
	noise := s.variances()
	alone := s.warnCases(totals, noise)
	s.warnFamilies(totals, noise, alone)
	s.warnConfigurations(totals, noise, opts)
	ratios := map[string]float64{}
	for name, g := range s.GeoMeans {
		ratios[name] = g.Ratio
	}
	var texts []string
	if swapped := s.swaps(totals, ratios, noise); len(swapped) > 0 {
		texts = []string{"by the geometric mean " + describe(swapped, ratios)}
	}
	s.addBounded(GeoMeanDisagree, texts, "")
}

// swap is a pair of configurations whose order is reversed: up was behind down.
type swap struct{ up, down string }

// swaps returns the pairs whose order differs between before and after, by the order of
// configurations. A tie is not a swap, and neither is an order that noise alone can
// reverse: noise are the variances of the totals.
func (s *Suite) swaps(before, after, noise map[string]float64) []swap {
	var found []swap
	for _, up := range s.Configurations {
		for _, down := range s.Configurations {
			_, hasUp := before[up]
			_, hasDown := before[down]
			tie := max(least, stdErrs*math.Sqrt(noise[up]+noise[down]))
			if hasUp && hasDown && before[down]-before[up] > tie && after[up]-after[down] > tie {
				found = append(found, swap{up, down})
			}
		}
	}
	return found
}

// The order of two totals means nothing up to a difference of two of its standard errors, as far as those are known.
const (
	least   = 1e-9 // above rounding errors of sums, below the resolution of scores
	stdErrs = 2
)

// variances returns those of the totals, by configuration.
func (s *Suite) variances() map[string]float64 {
	all := map[string]float64{}
	for _, c := range s.Cases {
		for name, cell := range c.Cells {
			if c.Counted {
				all[name] += math.Pow(cell.Score*cell.StdErr/cell.Mean, 2)
			}
		}
	}
	return all
}

// warnCases warns of the cases without which the order reverses, and returns the swaps
// of each.
func (s *Suite) warnCases(totals, noise map[string]float64) map[string][]swap {
	alone := map[string][]swap{}
	var texts []string
	for _, c := range s.Cases {
		after := less(totals, c)
		if swapped := s.swaps(totals, after, noise); len(swapped) > 0 {
			alone[c.Name] = swapped
			texts = append(texts, fmt.Sprintf("without case %s %s", c.Name, describe(swapped, after)))
		}
	}
	s.addBounded(CaseTurns, texts, "cases")
	return alone
}

// less returns totals without the scores of cases.
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

// warnFamilies warns of the families without which the order reverses, except for pairs
// that one case of the family swaps alone.
func (s *Suite) warnFamilies(totals, noise map[string]float64, alone map[string][]swap) {
	var texts []string
	for _, family := range families(s.Cases) {
		after := less(totals, family...)
		swapped := s.swaps(totals, after, noise)
		for _, c := range family {
			swapped = slices.DeleteFunc(swapped, func(p swap) bool { return slices.Contains(alone[c.Name], p) })
		}
		if len(swapped) > 0 {
			texts = append(texts, fmt.Sprintf("without the %d variants %s %s", len(family), span(family), describe(swapped, after)))
		}
	}
	s.addBounded(FamilyTurns, texts, "families of variants")
}

// families returns the groups of two or more cases that are variants of one benchmark:
// their names differ only in a number at the end.
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

// span returns the first and the last name of a family.
func span(family []Case) string {
	join := " to "
	if len(family) == 2 {
		join = " and "
	}
	return family[0].Name + join + family[len(family)-1].Name
}

// warnConfigurations warns of the configurations without which the order of the others
// reverses.
func (s *Suite) warnConfigurations(totals, noise map[string]float64, opts Options) {
	var texts []string
	for _, name := range s.Configurations {
		after := s.totalsWithout(name, opts.Partial)
		before := maps.Clone(totals)
		delete(before, name)
		if swapped := s.swaps(before, after, noise); len(swapped) > 0 {
			texts = append(texts, fmt.Sprintf("without configuration %s %s", name, describe(swapped, after)))
		}
	}
	s.addBounded(ConfigTurns, texts, "configurations")
}

// totalsWithout returns the raw totals as if a configuration had not been measured:
// scores are relative to the best of the others, and cases that only this one lacks
// count.
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

// describe lists at most maxSwaps swaps with the values after them.
func describe(swapped []swap, after map[string]float64) string {
	var parts []string
	for _, p := range swapped[:min(len(swapped), maxSwaps)] {
		parts = append(parts, fmt.Sprintf("%s (%.3f) overtakes %s (%.3f)", p.up, after[p.up], p.down, after[p.down]))
	}
	if more := len(swapped) - maxSwaps; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more pairs swap", more))
	}
	return strings.Join(parts, ", ")
}

// addBounded adds at most maxWarnings texts as warnings, and the number of further ones.
func (s *Suite) addBounded(kind Kind, texts []string, things string) {
	for _, text := range texts[:min(len(texts), maxWarnings)] {
		s.Warnings = append(s.Warnings, Warning{kind, text})
	}
	if more := len(texts) - maxWarnings; more > 0 {
		s.Warnings = append(s.Warnings, Warning{kind, fmt.Sprintf("%d more %s reverse the order when left out", more, things)})
	}
}
