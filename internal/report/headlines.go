package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// maxFigures is the number of key figures that fit on two lines.
const maxFigures = 8

// headlines are the findings of a group in plain words: its primary metric at its
// reference case.
func (b *builder) headlines(cases []result.Case, estimates []Estimate) []string {
	baselines := b.baselines()
	estimates = primaries(estimates)
	if len(baselines) == 0 || len(estimates) == 0 {
		return nil
	}
	subject := subject(cases[0], reference(estimates))
	var ratios, others []string
	for _, e := range at(estimates, reference(estimates).Case) {
		if c := e.against(baselines[0]); c != nil && c.Ratio.Defined() {
			ratios = append(ratios, fmt.Sprintf("%s with %s", timesWithInterval(c.Ratio, c.Interval), e.Configuration))
		}
		for _, c := range e.Comparisons {
			if c.Baseline != baselines[0] && c.first && c.Words != "" {
				others = append(others, fmt.Sprintf("%s, %s: %s.", subject, e.Configuration, c.Words))
			}
		}
	}
	var lines []string
	if len(ratios) > 0 {
		lines = append(lines, fmt.Sprintf("%s: %s against %s is %s.", subject, quantity(estimates[0].Metric), baselines[0], list(ratios)))
	}
	return append(append(lines, others...), b.claimHeadline(cases[0], estimates)...)
}

// answer says in one sentence what the reference case of a group shows: what is known, or
// that nothing is.
func (b *builder) answer(cases []result.Case, estimates []Estimate) string {
	estimates = primaries(estimates)
	if len(b.baselines()) == 0 || len(estimates) == 0 {
		return ""
	}
	var open []string
	needs := 0
	var known findings
	for _, e := range at(estimates, reference(estimates).Case) {
		for _, c := range e.Comparisons {
			switch {
			case !c.first || c.Verdict == "":
			case c.known():
				known.add(e.Configuration, c)
			default:
				open, needs = append(open, e.Configuration+" against "+c.Baseline), max(needs, c.Needs)
			}
		}
	}
	name := subject(cases[0], reference(estimates))
	switch {
	case len(known)+len(open) == 0:
		return ""
	case len(known) == 0:
		return fmt.Sprintf("%s: this run decides nothing yet. At this noise, about %s would.", name, plural(needs, "more block"))
	case len(open) == 0:
		return fmt.Sprintf("%s: %s.", name, known)
	}
	return fmt.Sprintf("%s: %s. Not known: %s.", name, known, list(open))
}

// finding is what several configurations have in common against a baseline.
type finding struct {
	predicate      string // "faster than NAT"
	configurations []string
	ratios         []string
}

type findings []finding

// add puts a known verdict to those that say the same.
func (f *findings) add(configuration string, c Comparison) {
	predicate, shown := c.Badge+" than "+c.Baseline, []string{ratio(c.Ratio) + "×"}
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
		text := fmt.Sprintf("%s %s %s", list(one.configurations), verb, one.predicate)
		if len(one.ratios) > 0 {
			text += " (" + strings.Join(one.ratios, ", ") + ")"
		}
		parts = append(parts, text)
	}
	return list(parts)
}

// known reports whether c has a verdict other than "not known".
func (c Comparison) known() bool {
	return c.Verdict == stats.Better || c.Verdict == stats.Worse || c.Verdict == stats.Equal
}

// subject names what a headline is about: "UDP ping-pong, 1280 B".
func subject(c result.Case, e Estimate) string {
	if title := groupTitle(c); title != e.Label {
		return title + ", " + e.Label
	}
	return e.Label
}

// timesWithInterval prints a ratio with its interval if there is one: "1.52× [1.49,
// 1.55]".
func timesWithInterval(r Number, i Interval) string {
	if !i.Low.Defined() {
		return ratio(r) + "×"
	}
	places := intervalDecimals(i)
	return fmt.Sprintf("%s× [%s, %s]", ratioTo(r, places), ratioTo(i.Low, places), ratioTo(i.High, places))
}

// span prints an interval after a comma, if there is one.
func span(i Interval) string {
	if !i.Low.Defined() {
		return ""
	}
	places := intervalDecimals(i)
	return fmt.Sprintf(", interval %s to %s", ratioTo(i.Low, places), ratioTo(i.High, places))
}

// primaries are the estimates of the primary metrics.
func primaries(estimates []Estimate) []Estimate {
	return slices.DeleteFunc(slices.Clone(estimates), func(e Estimate) bool { return !e.Primary })
}

// at are the estimates of one case.
func at(estimates []Estimate, name string) []Estimate {
	return slices.DeleteFunc(slices.Clone(estimates), func(e Estimate) bool { return e.Case != name })
}

// claimHeadline says for which cases the claim of equivalence is shown.
func (b *builder) claimHeadline(c result.Case, estimates []Estimate) []string {
	claim := b.opts.Equivalence
	var shown, not []string
	for _, e := range estimates {
		cmp := e.against(claim.Baseline)
		if e.Configuration != claim.Configuration || cmp == nil || cmp.Equivalent == "" {
			continue
		}
		if cmp.Equivalent == stats.Yes {
			shown = append(shown, e.Label)
		} else {
			not = append(not, e.Label)
		}
	}
	name := fmt.Sprintf("%s, %s:", groupTitle(c), claim.Configuration)
	within := fmt.Sprintf("within %s of %s", percent(claim.Margin), claim.Baseline)
	switch {
	case len(shown)+len(not) == 0:
		return nil
	case len(not) == 0:
		return []string{fmt.Sprintf("%s shown to be %s for %s.", name, within, list(shown))}
	case len(shown) == 0:
		return []string{fmt.Sprintf("%s not shown to be %s for %s.", name, within, list(not))}
	}
	return []string{fmt.Sprintf("%s shown to be %s for %s, not shown for %s.", name, within, list(shown), list(not))}
}

// keyFigures are the ratios to the main baseline at the reference case of a group.
func (b *builder) keyFigures(cases []result.Case, estimates []Estimate) []KeyFigure {
	baselines := b.baselines()
	estimates = primaries(estimates)
	if len(baselines) == 0 || len(estimates) == 0 {
		return nil
	}
	var figures []KeyFigure
	for _, e := range at(estimates, reference(estimates).Case) {
		if c := e.against(baselines[0]); c != nil && c.Ratio.Defined() {
			figures = append(figures, KeyFigure{
				Value:  ratio(c.Ratio) + "×",
				Label:  e.Configuration + " / " + baselines[0],
				Detail: subject(cases[0], e) + ", " + quantity(e.Metric) + span(c.Interval),
				Series: e.Configuration, Badge: c.Badge, Open: !c.known(),
			})
		}
	}
	return figures
}
