package estimate

import (
	"fmt"
	"slices"

	"unnest.io/unnest/internal/measure/result"
)

// Names of the two sides of a Difference, in its estimates and their comparisons.
const (
	SideA = "A"
	SideB = "B"
)

// Difference holds the estimates of what two runs have in common, those of B compared with
// those of A.
type Difference struct {
	A, B     *Set
	Families []Family
	Warnings []string // of metrics that are left out

	computed map[cellKey][2]*Estimate // of A and of B
}

// Between compares run b with run a, which share no block, so that there are verdicts only on demand.
func Between(a, b result.Run, samplesA, samplesB []result.Sample, verdicts bool) *Difference {
	d := &Difference{A: newCells(a, samplesA), B: newCells(b, samplesB), computed: map[cellKey][2]*Estimate{}}
	var all []judged
	for _, c := range a.Cases {
		for _, m := range d.A.Metrics[c.Name] {
			if !d.comparable(c, m) {
				continue
			}
			for _, conf := range d.common() {
				a, b := d.pair(c, conf, m)
				d.computed[keyOf(c, conf.Name, m.Name)] = [2]*Estimate{a, b}
				all = append(all, judged{b, &b.Comparisons[0], familyOf(*b, SideA)})
			}
		}
	}
	d.Families = judge(all, Claim{}, verdicts)
	return d
}

// comparable reports whether b measured a metric of a in the same unit and order, and warns
// where it did not.
func (d *Difference) comparable(c result.Case, m result.Metric) bool {
	other := MetricNamed(d.B.Metrics[c.Name], m.Name)
	if other == nil {
		return false
	}
	if m.Unit != other.Unit || m.Order != other.Order {
		d.Warnings = append(d.Warnings, fmt.Sprintf("Left out: %s of %s, in %s (%s) in A but in %s (%s) in B.", m.Name, c.Name, m.Unit, m.Order, other.Unit, other.Order))
		return false
	}
	return true
}

// common are the configurations that both runs have.
func (d *Difference) common() []result.Configuration {
	return slices.DeleteFunc(slices.Clone(d.A.Run.Configurations), func(conf result.Configuration) bool {
		return !d.B.Run.Has(conf.Name)
	})
}

// pair estimates one cell on both sides, and compares B with A.
func (d *Difference) pair(c result.Case, conf result.Configuration, m result.Metric) (a, b *Estimate) {
	of := func(side *Set, name string) *Estimate {
		e := side.Describe(c, conf, m)
		e.Run = name
		return &e
	}
	a, b = of(d.A, SideA), of(d.B, SideB)
	for _, side := range []*Set{d.A, d.B} {
		if part := side.selected(c, conf.Name, m.Name); part != "" {
			b.Comparisons = []Comparison{notCompared(SideA, part)}
			return a, b
		}
	}
	b.Comparisons = []Comparison{compare(d.B.Observations(c, conf.Name, m.Name), d.A.Observations(c, conf.Name, m.Name), SideA, false)}
	return a, b
}

// Estimates returns those of one metric on both sides. Equal indices are of the same case and
// configuration.
func (d *Difference) Estimates(cases []result.Case, metric string) (as, bs []Estimate) {
	for _, c := range cases {
		for _, conf := range d.common() {
			if pair, has := d.computed[keyOf(c, conf.Name, metric)]; has {
				as, bs = append(as, *pair[0]), append(bs, *pair[1])
			}
		}
	}
	return as, bs
}
