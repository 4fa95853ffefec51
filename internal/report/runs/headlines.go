package runs

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
)

// headlines are the findings of a group in plain words: its primary metric at its
// reference case. notKnown says which comparisons decide nothing.
func (b *builder) headlines(cases []result.Case, estimates []estimate.Estimate) (lines []string, notKnown string) {
	baselines := b.Baselines()
	estimates = estimate.Primaries(estimates)
	if len(baselines) == 0 || len(estimates) == 0 {
		return nil, ""
	}
	subject := subject(cases[0], estimate.Reference(estimates))
	var ratios, others, open []string
	for _, e := range estimate.At(estimates, estimate.Reference(estimates).Case) {
		if c := e.Against(baselines[0]); c != nil && c.Ratio.Defined() {
			ratios = append(ratios, fmt.Sprintf("%s with %s", document.TimesWithInterval(c.Ratio, c.Interval), e.Configuration))
		}
		for _, c := range e.Comparisons {
			switch {
			case c.Baseline == baselines[0] || !c.First || c.Words == "":
			case c.Verdict != "" && !c.Known():
				open = append(open, e.Configuration+" against "+c.Baseline)
			default:
				others = append(others, fmt.Sprintf("%s, %s: %s.", subject, e.Configuration, c.Words))
			}
		}
	}
	if len(open) > 0 {
		notKnown = fmt.Sprintf("%s: %s", subject, document.List(open))
	}
	if len(ratios) > 0 {
		lines = append(lines, fmt.Sprintf("%s: %s against %s is %s.", subject, naming.Quantity(estimates[0].Metric), baselines[0], document.List(ratios)))
	}
	return append(append(lines, others...), b.claimHeadline(cases[0], estimates)...), notKnown
}

// answer says in one sentence what the reference case of a group shows: what is known, or
// that nothing is.
func (b *builder) answer(cases []result.Case, estimates []estimate.Estimate) string {
	estimates = estimate.Primaries(estimates)
	if len(b.Baselines()) == 0 || len(estimates) == 0 {
		return ""
	}
	var open []string
	needs, attainable := 0, true
	var known findings
	for _, e := range estimate.At(estimates, estimate.Reference(estimates).Case) {
		for _, c := range e.Comparisons {
			switch {
			case !c.First || c.Verdict == "":
			case c.Known():
				known.add(e.Configuration, c)
			default:
				open, needs = append(open, e.Configuration+" against "+c.Baseline), max(needs, c.Needs)
				attainable = attainable && c.Attainable()
			}
		}
	}
	name := subject(cases[0], estimate.Reference(estimates))
	switch {
	case len(known)+len(open) == 0:
		return ""
	case len(known) == 0 && !attainable:
		return name + ": this run decides nothing. What differs, if anything, is within its noise."
	case len(known) == 0:
		return fmt.Sprintf("%s: this run decides nothing yet. At this noise, about %s would.", name, document.Plural(needs, "more block"))
	case len(open) == 0:
		return fmt.Sprintf("%s: %s.", name, known)
	}
	return fmt.Sprintf("%s: %s. Not known: %s.", name, known, document.List(open))
}

// finding is what several configurations have in common against a baseline.
type finding struct {
	predicate      string // "faster than NAT"
	configurations []string
	ratios         []string
}

type findings []finding

// add puts a known verdict to those that say the same.
func (f *findings) add(configuration string, c estimate.Comparison) {
	predicate, shown := c.Badge+" than "+c.Baseline, []string{document.Ratio(c.Ratio) + "×"}
	if c.Verdict == stats.Equal {
		predicate, shown = c.Short, nil
	}
	i := slices.IndexFunc(*f, func(o finding) bool { return o.predicate == predicate })
	if i < 0 {
		*f, i = append(*f, finding{predicate: predicate}), len(*f)
	}
	(*f)[i].configurations = append((*f)[i].configurations, configuration)
	(*f)[i].ratios = append((*f)[i].ratios, shown...)
}

// String words findings: "NAT and Overlay are slower than NoCont (1.27×, 1.54×)".
func (f findings) String() string {
	var parts []string
	for _, one := range f {
		verb := map[bool]string{true: "is", false: "are"}[len(one.configurations) == 1]
		text := fmt.Sprintf("%s %s %s", document.List(one.configurations), verb, one.predicate)
		if len(one.ratios) > 0 {
			text += " (" + strings.Join(one.ratios, ", ") + ")"
		}
		parts = append(parts, text)
	}
	return document.List(parts)
}

// subject names what a headline is about: "UDP ping-pong, 1280 B".
func subject(c result.Case, e estimate.Estimate) string {
	if title := naming.Group(c); title != e.Label {
		return title + ", " + e.Label
	}
	return e.Label
}

// claimHeadline says for which cases the claim of equivalence is shown.
func (b *builder) claimHeadline(c result.Case, estimates []estimate.Estimate) []string {
	claim := b.claim
	var shown, not []string
	for _, e := range estimates {
		cmp := e.Against(claim.Baseline)
		if e.Configuration != claim.Configuration || cmp == nil || cmp.Equivalent == "" {
			continue
		}
		if cmp.Equivalent == stats.Yes {
			shown = append(shown, e.Label)
		} else {
			not = append(not, e.Label)
		}
	}
	name := fmt.Sprintf("%s, %s:", naming.Group(c), claim.Configuration)
	within := fmt.Sprintf("within %s of %s", document.Percent(claim.Margin), claim.Baseline)
	switch {
	case len(shown)+len(not) == 0:
		return nil
	case len(not) == 0:
		return []string{fmt.Sprintf("%s shown to be %s for %s.", name, within, document.List(shown))}
	case len(shown) == 0:
		return []string{fmt.Sprintf("%s not shown to be %s for %s.", name, within, document.List(not))}
	}
	return []string{fmt.Sprintf("%s shown to be %s for %s, not shown for %s.", name, within, document.List(shown), document.List(not))}
}

// keyFigures are the ratios to the main baseline at the reference case of a group.
func (b *builder) keyFigures(cases []result.Case, estimates []estimate.Estimate) []document.KeyFigure {
	baselines := b.Baselines()
	estimates = estimate.Primaries(estimates)
	if len(baselines) == 0 || len(estimates) == 0 {
		return nil
	}
	var figures []document.KeyFigure
	reference := estimate.At(estimates, estimate.Reference(estimates).Case)
	for i, baseline := range baselines {
		for _, e := range reference {
			// Of the other baselines, what is not one of them counts: BrFusion against NAT.
			if c := e.Against(baseline); c != nil && c.Ratio.Defined() && (i == 0 || !slices.Contains(baselines, e.Configuration)) {
				figures = append(figures, document.KeyFigure{
					Value:  document.Ratio(c.Ratio) + "×",
					Label:  e.Configuration + " / " + baseline,
					Detail: subject(cases[0], e) + ", " + naming.Quantity(e.Metric) + document.Span(c.Interval),
					Series: e.Configuration, Badge: c.Badge, Open: !c.Known(),
				})
			}
		}
	}
	return figures
}
