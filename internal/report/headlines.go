package report

import (
	"fmt"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// maxFigures is the number of key figures that fit two lines.
const maxFigures = 8

// headlines say in plain words what the primary metric of a group shows, at the
// case that stands for it.
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
			ratios = append(ratios, fmt.Sprintf("%s× with %s%s", ratio(c.Ratio), e.Configuration, span(c.Interval)))
		}
		for _, c := range e.Comparisons {
			if c.Baseline != baselines[0] && c.first && c.Words != "" {
				others = append(others, fmt.Sprintf("%s, %s: %s.", subject, e.Configuration, c.Words))
			}
		}
	}
	var lines []string
	if len(ratios) > 0 {
		lines = append(lines, fmt.Sprintf("%s: against %s, %s is %s.", subject, baselines[0], quantity(estimates[0].Metric), list(ratios)))
	}
	return append(append(lines, others...), b.claimHeadline(cases[0], estimates)...)
}

// subject names what a headline is about: "UDP ping-pong, 1280 B".
func subject(c result.Case, e Estimate) string {
	if title := groupTitle(c); title != e.Label {
		return title + ", " + e.Label
	}
	return e.Label
}

// span prints an interval as " (1.49 to 1.55)".
func span(i Interval) string {
	if !i.Low.Defined() {
		return ""
	}
	return fmt.Sprintf(" (%s to %s)", ratio(i.Low), ratio(i.High))
}

// primaries are the estimates of the primary metrics.
func primaries(estimates []Estimate) []Estimate {
	var kept []Estimate
	for _, e := range estimates {
		if e.Primary {
			kept = append(kept, e)
		}
	}
	return kept
}

// at are the estimates of one case.
func at(estimates []Estimate, name string) []Estimate {
	var kept []Estimate
	for _, e := range estimates {
		if e.Case == name {
			kept = append(kept, e)
		}
	}
	return kept
}

// claimHeadline says where the claim of equivalence is shown and where not.
func (b *builder) claimHeadline(c result.Case, estimates []Estimate) []string {
	claim := b.opts.Equivalence
	var shown, open []string
	for _, e := range estimates {
		cmp := e.against(claim.Baseline)
		if e.Configuration != claim.Configuration || cmp == nil || cmp.Equivalent == "" {
			continue
		}
		if cmp.Equivalent == stats.Yes {
			shown = append(shown, e.Label)
		} else {
			open = append(open, e.Label)
		}
	}
	name := fmt.Sprintf("%s, %s:", groupTitle(c), claim.Configuration)
	within := fmt.Sprintf("within %s of %s", percent(claim.Margin), claim.Baseline)
	switch {
	case len(shown)+len(open) == 0:
		return nil
	case len(open) == 0:
		return []string{fmt.Sprintf("%s shown to be %s for %s.", name, within, list(shown))}
	case len(shown) == 0:
		return []string{fmt.Sprintf("%s not shown to be %s for %s.", name, within, list(open))}
	}
	return []string{fmt.Sprintf("%s shown to be %s for %s, not shown for %s.", name, within, list(shown), list(open))}
}

// keyFigures are the ratios to the main baseline at the case that stands for a
// group.
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
				Series: e.Configuration,
			})
		}
	}
	return figures
}
