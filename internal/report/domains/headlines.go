package domains

import (
	"cmp"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
)

// headlines say which pair keeps and which loses most under the highest load, what each other pair
// keeps there, and what idle neighbours take. The answer is empty if no pair was measured. They replace
// the comparisons with a baseline: that a pair answers more than one domain is no finding.
func headlines(f collocation.Findings) (answer string, said []string) {
	pairs := keptByPairs(f.Pairs)
	if len(pairs) == 0 {
		return "", nil
	}
	loads := fullest(f.Pairs)
	full := slices.DeleteFunc(slices.Clone(pairs), func(p collocation.Pair) bool {
		return !slices.ContainsFunc(loads, func(l collocation.Load) bool { return l.Size == p.Size && l.Intensity == p.Intensity })
	})
	if len(full) == 0 {
		return "", nil
	}
	kept := confidence(sums(f.Pairs))
	answer = keptAnswer(full, kept)
	for _, load := range loads {
		var each []string
		for _, p := range pairs {
			if p.Size == load.Size && p.Intensity == load.Intensity {
				text := p.Configuration + " " + effectText(p.OfSum.Effect, kept)
				if starves(p) {
					text += fmt.Sprintf(" (%s only %.0f %%)", p.Least.Domain, 100*p.Least.Mean)
				}
				each = append(each, text)
			}
		}
		if len(each) > 1 { // else the answer or a table has it
			said = append(said, fmt.Sprintf("%s, over what the domains answer alone (%s intervals): %s.", loadLabel(load), level(sums(f.Pairs)), document.List(each)))
		}
	}
	tested := 0
	var changed []string
	for _, r := range f.Idle {
		if e := r.Effect; e.Testable() {
			tested++
			if !e.Interval(confidence(f.Idle)).Contains(1) {
				changed = append(changed, fmt.Sprintf("%s with %s %s", r.Configuration, loadLabel(r.Load), effectText(e, confidence(f.Idle))))
			}
		}
	}
	switch {
	case tested > 0 && len(changed) == 0:
		said = append(said, fmt.Sprintf("Idle neighbours: %s with the same domain alone, no difference found.", document.Plural(tested, "comparison")))
	case len(changed) > 0:
		said = append(said, fmt.Sprintf("Idle neighbours: %s with the same domain alone, %s found (%s intervals): %s.", document.Plural(tested, "comparison"), document.Plural(len(changed), "difference"), level(f.Idle), document.List(changed)))
	}
	return answer, said
}

// starves reports whether a domain of the pair keeps less than half of what the pair keeps. The
// sum hides that where the other domain answers many times as much.
func starves(p collocation.Pair) bool {
	return p.Least != nil && p.Least.Mean < p.OfSum.Effect.Ratio()/2
}

// keptAnswer says what the first and the last of the pairs keep; if there is only one pair, what
// it keeps with each document.
func keptAnswer(pairs []collocation.Pair, confidence float64) string {
	intervals := document.Level(document.Number(confidence)) + " intervals"
	first, last := pairs[0], pairs[len(pairs)-1]
	if !slices.ContainsFunc(pairs, func(p collocation.Pair) bool { return p.Configuration != first.Configuration }) {
		var kept []string
		for _, p := range pairs {
			kept = append(kept, fmt.Sprintf("%s with %s", effectText(p.OfSum.Effect, confidence), loadLabel(p.Load)))
		}
		return fmt.Sprintf("%s, over what the domains answer alone (%s): %s.", first.Configuration, intervals, document.List(kept))
	}
	say := func(what string, p collocation.Pair) string {
		text := fmt.Sprintf("%s: %s with %s answers %s of what its domains answer alone", what, p.Configuration, loadLabel(p.Load), effectText(p.OfSum.Effect, confidence))
		if starves(p) {
			text += fmt.Sprintf(", but %s only %.0f %% of what it answers alone", p.Least.Domain, 100*p.Least.Mean)
		}
		return text
	}
	return fmt.Sprintf("%s. %s (%s).", say("The pair that keeps most", first), say("The one that loses most", last), intervals)
}

// keptByPairs are the pairs that can be judged, those that keep most of what their domains answer
// alone first.
func keptByPairs(pairs []collocation.Pair) []collocation.Pair {
	pairs = slices.DeleteFunc(slices.Clone(pairs), func(p collocation.Pair) bool { return p.OfSum == nil || !p.OfSum.Effect.Testable() })
	slices.SortStableFunc(pairs, func(a, b collocation.Pair) int { return cmp.Compare(b.OfSum.Effect.Ratio(), a.OfSum.Effect.Ratio()) })
	return pairs
}

// fullest are the loads of the highest intensity of each size.
func fullest(pairs []collocation.Pair) (loads []collocation.Load) {
	for _, p := range pairs {
		i := slices.IndexFunc(loads, func(l collocation.Load) bool { return l.Size == p.Size })
		if i < 0 {
			loads, i = append(loads, p.Load), len(loads)
		}
		loads[i].Intensity = max(loads[i].Intensity, p.Intensity)
	}
	return loads
}

// pairFigures are what each pair keeps under the highest load with the largest document.
func pairFigures(f collocation.Findings) (figures []document.KeyFigure) {
	loads := fullest(f.Pairs)
	largest := slices.MaxFunc(loads, func(a, b collocation.Load) int { return cmp.Compare(a.Size, b.Size) })
	for _, p := range keptByPairs(f.Pairs) {
		if p.Size != largest.Size || p.Intensity != largest.Intensity {
			continue
		}
		e := p.OfSum.Effect
		r, i := ratioOf(e, confidence(sums(f.Pairs)))
		detail := fmt.Sprintf("%s%s (%s)", loadLabel(p.Load), document.Span(i), level(sums(f.Pairs)))
		if starves(p) {
			detail += fmt.Sprintf("; %s only %.0f %%", p.Least.Domain, 100*p.Least.Mean)
		}
		figures = append(figures, document.KeyFigure{Value: document.Ratio(r) + "×", Label: p.Configuration + " / alone", Detail: detail,
			Series: p.Configuration, Open: e.Interval(confidence(sums(f.Pairs))).Contains(1)})
	}
	return figures
}

// effectText prints a ratio with its interval.
func effectText(e stats.Effect, confidence float64) string {
	return document.TimesWithInterval(ratioOf(e, confidence))
}
