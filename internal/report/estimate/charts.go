package estimate

import (
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/naming"
)

// AddRatios adds to c a series for each configuration of the run that is compared with the baseline:
// the value of its comparisons. It reports whether c has a series.
func AddRatios(c *document.Chart, run result.Run, estimates []Estimate, baseline string, value func(Estimate, Comparison) (document.Number, document.Interval)) bool {
	for _, s := range naming.Series(run) {
		series := document.ChartSeries{Name: s.Name, Slot: s.Slot}
		for _, e := range estimates {
			if cmp := e.Against(baseline); e.Configuration == s.Name && cmp != nil {
				series.Add(value(e, *cmp))
			}
		}
		if len(series.Values) > 0 {
			c.Series = append(c.Series, series)
		}
	}
	c.Complete()
	return len(c.Series) > 0
}

// PlainRatio is the ratio of a comparison.
func PlainRatio(_ Estimate, c Comparison) (document.Number, document.Interval) {
	return c.Ratio, c.Interval
}

// Benefit is the ratio of e to a baseline, inverted where lower is better.
func Benefit(e Estimate, c Comparison) (document.Number, document.Interval) {
	if e.Order == result.HIB {
		return c.Ratio, c.Interval
	}
	return c.Ratio.Inverse(), c.Interval.Inverse()
}
