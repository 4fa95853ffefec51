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
// reference case. open says which comparisons decide nothing.
func (b *builder) headlines(cases []result.Case, estimates []estimate.Estimate) (lines, open []string) {
	baselines := b.Baselines()
	estimates = estimate.Primaries(estimates)
	if len(baselines) == 0 || len(estimates) == 0 {
		return nil, nil
	}
	subject := subject(cases[0], estimate.Reference(estimates))
	var ratios, others, notKnown []string
	for _, e := range estimate.At(estimates, estimate.Reference(estimates).Case) {
		if c := e.Against(baselines[0]); c != nil && c.Ratio.Defined() {
			ratios = append(ratios, fmt.Sprintf("%s with %s", document.TimesWithInterval(c.Ratio, c.Interval), e.Configuration))
		}
		for _, c := range e.Comparisons {
			switch {
			case !c.First || c.Words == "":
			case c.Verdict != "" && !c.Known():
				notKnown = append(notKnown, e.Configuration+" against "+c.Baseline)
			case c.Baseline != baselines[0]:
				others = append(others, fmt.Sprintf("%s, %s: %s.", subject, e.Configuration, c.Words))
			}
		}
	}
	if len(notKnown) > 0 {
		open = append(open, fmt.Sprintf("%s: %s", subject, document.List(notKnown)))
	}
	if len(ratios) > 0 {
		lines = append(lines, fmt.Sprintf("%s: %s against %s is %s.", subject, naming.Quantity(estimates[0].Metric), baselines[0], document.List(ratios)))
	}
	said, undecided := b.claimHeadline(cases[0], estimates)
	return slices.Concat(lines, others, said), append(open, undecided...)
}

// answer says in one sentence what the reference case of a group shows: what is known, or
// that nothing is. What else is not known, headlines says.
func (b *builder) answer(cases []result.Case, estimates []estimate.Estimate) string {
	estimates = estimate.Primaries(estimates)
	if len(b.Baselines()) == 0 || len(estimates) == 0 {
		return ""
	}
	open, needs, blocks, attainable := false, 0, 0, true
	var known findings
	for _, e := range estimate.At(estimates, estimate.Reference(estimates).Case) {
		for _, c := range e.Comparisons {
			switch {
			case !c.First || c.Verdict == "":
			case c.Known():
				known.add(e.Configuration, c)
			default:
				open, needs, blocks = true, max(needs, c.Needs), max(blocks, c.N+c.Needs)
				attainable = attainable && c.Attainable()
			}
		}
	}
	name := subject(cases[0], estimate.Reference(estimates))
	switch {
	case len(known) == 0 && !open:
		return ""
	case len(known) == 0 && !attainable:
		return name + ": this run decides nothing. What differs, if anything, is within its noise."
	case len(known) == 0:
		return fmt.Sprintf("%s: this run decides nothing yet. At this noise, about %s would: --repetitions %d.", name, document.Plural(needs, "more block"), blocks)
	}
	return fmt.Sprintf("%s: %s.", name, known)
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

// claimHeadline says for which cases the claim of equivalence is shown, and for which it is not known.
func (b *builder) claimHeadline(c result.Case, estimates []estimate.Estimate) (lines, open []string) {
	labels := map[stats.Answer][]string{}
	for _, e := range estimates {
		if cmp := e.Against(brFusionClaim.Baseline); e.Configuration == brFusionClaim.Configuration && cmp != nil {
			labels[cmp.Equivalent] = append(labels[cmp.Equivalent], e.Label)
		}
	}
	name, margin := fmt.Sprintf("%s: %s", naming.Group(c), brFusionClaim.Configuration), document.Percent(brFusionClaim.Margin)
	if shown := labels[stats.Yes]; len(shown) > 0 {
		lines = append(lines, fmt.Sprintf("%s is shown to be within %s of %s for %s.", name, margin, brFusionClaim.Baseline, document.List(shown)))
	}
	if not := labels[stats.No]; len(not) > 0 {
		lines = append(lines, fmt.Sprintf("%s is shown to be more than %s from %s for %s.", name, margin, brFusionClaim.Baseline, document.List(not)))
	}
	if undecided := labels[stats.Undecided]; len(undecided) > 0 {
		open = append(open, fmt.Sprintf("%s within %s of %s for %s", name, margin, brFusionClaim.Baseline, document.List(undecided)))
	}
	return lines, open
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
