package scores

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/score"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
)

// charts draw the totals of a suite as Lubomski et al., Figs. 2-5, and its geometric
// means.
func (s *Suite) charts() []document.Chart {
	if s.Values.Cases == 0 {
		return nil
	}
	charts := []document.Chart{s.totalChart(), s.geoMeanChart()}
	for _, a := range alternatives {
		charts = append(charts, s.pairChart(a))
	}
	return slices.DeleteFunc(charts, func(c document.Chart) bool { return len(c.Categories) == 0 })
}

// totalAxis is the axis of every chart of totals.
const totalAxis = "total score (higher is better)"

// totalChart draws one bar per configuration, as Figs. 2 and 3.
func (s *Suite) totalChart() document.Chart {
	c := document.Chart{ID: s.id + "-totals", Kind: document.Totals, Axis: totalAxis,
		Title: fmt.Sprintf("Suite %s: total score of %s", s.sum.Name, document.Plural(s.Values.Cases, "case"))}
	series := document.ChartSeries{Name: "total score"}
	for i, t := range s.Values.Totals {
		c.Categories, c.Slots = append(c.Categories, t.Configuration), append(c.Slots, s.slots[i])
		series.Add(t.Total, document.NoInterval)
	}
	c.Series = []document.ChartSeries{series}
	c.Describe(func(v document.Number) string { return document.Decimal(v, 2) })
	return c
}

// geoMeanChart draws the geometric means with their intervals; it has no categories when
// only the baseline has results.
func (s *Suite) geoMeanChart() document.Chart {
	c := document.Chart{ID: s.id + "-geomean", Kind: document.Ratios, Secondary: true,
		Title: fmt.Sprintf("Suite %s: geometric mean of the ratios to %s, with %s interval over cases", s.sum.Name, s.sum.Baseline, document.Percent(score.Confidence)),
		Axis:  fmt.Sprintf("ratio to %s (above 1 is better)", s.sum.Baseline)}
	series := document.ChartSeries{Name: "geometric mean"}
	for i, t := range s.Values.Totals {
		if t.Configuration != s.sum.Baseline && t.GeoMean.Defined() {
			c.Categories, c.Slots = append(c.Categories, t.Configuration), append(c.Slots, s.slots[i])
			series.Add(t.GeoMean, t.Interval)
		}
	}
	c.Series = []document.ChartSeries{series}
	c.Complete()
	return c
}

// alternative is an option of which two values are compared.
type alternative struct {
	option, what string
	values       [2]string // as in the options of configurations
	names        [2]string // the paper's, which are parts of its configurations' names
}

// alternatives are those of Figs. 5 and 4.
var alternatives = []alternative{
	{"storage", "files in layers over the image (aufs) against a mounted directory (mnt)", [2]string{"overlay", "volume"}, [2]string{"aufs", "mnt"}},
	{"network", "port forwarding (nat) against the machine's own network (host)", [2]string{"nat", "host"}, [2]string{"nat", "host"}},
}

// pairChart draws the totals of the configurations that differ in one option
// only, side by side.
func (s *Suite) pairChart(a alternative) document.Chart {
	c := document.Chart{ID: s.id + "-" + a.option, Kind: document.Totals, Axis: totalAxis,
		Title: fmt.Sprintf("Suite %s: %s", s.sum.Name, a.what)}
	sides := [2]document.ChartSeries{{Name: a.names[0]}, {Name: a.names[1], Slot: 1}}
	for _, first := range s.configurations {
		second, ok := a.partner(s.configurations, first)
		totals := [2]estimate.Total{s.total(first.Name), s.total(second.Name)}
		if !ok || !totals[0].Total.Defined() || !totals[1].Total.Defined() {
			continue
		}
		c.Categories = append(c.Categories, a.category(first.Name, second.Name))
		for i := range sides {
			sides[i].Add(totals[i].Total, document.NoInterval)
		}
	}
	c.Series = sides[:]
	c.Describe(func(v document.Number) string { return document.Decimal(v, 2) })
	return c
}

// total returns the total of a configuration, a missing one if it has none.
func (s *Suite) total(configuration string) estimate.Total {
	for _, t := range s.Values.Totals {
		if t.Configuration == configuration {
			return t
		}
	}
	return estimate.Total{Total: document.Missing}
}

// partner returns the configuration that has the second value of the option
// where c has the first, and is like c otherwise.
func (a alternative) partner(all []result.Configuration, c result.Configuration) (result.Configuration, bool) {
	if c.Options[a.option] != a.values[0] {
		return result.Configuration{}, false
	}
	i := slices.IndexFunc(all, func(o result.Configuration) bool {
		return o.Stack == c.Stack && o.Options[a.option] == a.values[1] && a.others(o) == a.others(c)
	})
	if i < 0 {
		return result.Configuration{}, false
	}
	return all[i], true
}

// others writes the other options of a configuration.
func (a alternative) others(c result.Configuration) string {
	others := maps.Clone(c.Options)
	delete(others, a.option)
	return document.Settings(others)
}

// category names a pair by what its names have in common: "metal.nat" for
// metal.aufs.nat and metal.mnt.nat.
func (a alternative) category(first, second string) string {
	var common []string
	parts := strings.Split(second, ".")
	for i, part := range strings.Split(first, ".") {
		if i < len(parts) && parts[i] == part {
			common = append(common, part)
		}
	}
	if len(common) == 0 {
		return first + ", " + second
	}
	return strings.Join(common, ".")
}
