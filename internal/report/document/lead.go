package document

import "slices"

// mostInLead is the number of categories that fit in the chart at the top of a page.
const mostInLead = 8

// Lead returns the chart at the top of a page: ratios with intervals that fit there, else whatever has intervals, else
// whatever is not of parts. There is none without charts.
func (d Document) Lead() (lead Chart, has bool) {
	var all []Chart
	for _, g := range d.Groups {
		all = append(all, g.Charts...)
	}
	if len(all) == 0 {
		return Chart{}, false
	}
	return slices.MinFunc(all, func(a, b Chart) int { return a.rank() - b.rank() }), true
}

// rank orders charts for the top of a page, the best first.
func (c Chart) rank() int {
	ratios := c.Kind == Ratios || c.Kind == Forest
	switch {
	case ratios && c.Intervals() && !c.Secondary && len(c.Categories) <= mostInLead:
		return 0
	case ratios && c.Intervals() && c.Secondary:
		return 1
	case ratios && c.Intervals():
		return 2
	case c.Intervals():
		return 3
	case c.Kind == Stack:
		return 5
	}
	return 4
}

// Intervals reports whether a value of c has an interval.
func (c Chart) Intervals() bool {
	return slices.ContainsFunc(c.Series, func(s ChartSeries) bool { return slices.ContainsFunc(s.Low, Number.Defined) })
}
