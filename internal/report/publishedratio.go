package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
)

// PublishedRatio is what Bacou et al. 2019 print of a metric in one configuration
// over another, under our names of the group of cases and of the metric.
type PublishedRatio struct {
	Section       string // of the paper
	Group         string // "udp_rr"
	Metric        string // "latency_mean"
	Size          int    // of the messages in bytes, 0: every one
	Configuration string
	Baseline      string // empty: Of
	Of            string // a metric of the same case, without a Baseline
	Extent        Extent
	Printed       string // "5.3 times lower"
	Factor        float64
}

// Extent says which of our sizes a published ratio stands beside.
type Extent string

// The extents. Empty is each that the paper means.
const (
	Worst Extent = "worst" // the size that is the worst for the configuration
	Best  Extent = "best"
)

// publishedRatioTable sets the paper's ratios beside ours; there is none when
// nothing matches.
func (b *builder) publishedRatioTable(g Group, cases []result.Case, families map[string][]Estimate) (Table, bool) {
	t := Table{
		ID: g.ID + "-paper", Title: g.Title + ": beside the ratios that the paper prints", Setting: setting(b.run),
		Columns: []Column{{Name: "ratio", Header: true}, {Name: "size", Header: true}, {Name: "this run", Numeric: true}, {Name: "paper", Numeric: true}},
	}
	var sections []string
	for _, p := range b.opts.PublishedRatios {
		if p.Group != groupKey(cases[0]) {
			continue
		}
		before := len(t.Rows)
		for _, ours := range p.beside(families) {
			t.Rows = append(t.Rows, p.row(ours, len(t.Rows) > before))
		}
		if len(t.Rows) > before && !slices.Contains(sections, "§"+p.Section) {
			sections = append(sections, "§"+p.Section)
		}
	}
	slices.Sort(sections)
	t.Notes = []string{
		"Paper: Bacou, Todeschi, Tchana, Hagimont, Nested Virtualization Without the Nest, ICPP 2019, " + list(sections) +
			", as the text prints them; its figures have no numbers. Netperf for 20 s, on two Xeon E5-2420 v2 with KVM and vhost: on another machine, and most of all with an emulated processor, compare how the configurations rank rather than the ratios.",
	}
	return t, len(t.Rows) > 0
}

// besides is what stands beside a published ratio: ours at one size, with its
// interval if there is one.
type besides struct {
	label    string
	ratio    Number
	interval Interval
}

// beside returns our ratios for p, one for each size that it is about.
func (p PublishedRatio) beside(families map[string][]Estimate) []besides {
	var all []besides
	var order result.Order
	for _, e := range families[p.Metric] {
		if e.Configuration != p.Configuration || p.Size != 0 && p.Size != e.Size {
			continue
		}
		ours := p.ours(e, families[p.Of])
		if !ours.ratio.Defined() {
			continue
		}
		all, order = append(all, ours), e.Order
	}
	if p.Extent == "" || len(all) == 0 {
		return all
	}
	extreme := slices.MaxFunc[[]besides]
	if (p.Extent == Worst) == (order == result.HIB) {
		extreme = slices.MinFunc[[]besides]
	}
	return []besides{extreme(all, func(x, y besides) int { return cmp.Compare(x.ratio, y.ratio) })}
}

// ours returns the ratio of an estimate to its baseline, or to another metric of its
// case.
func (p PublishedRatio) ours(e Estimate, others []Estimate) besides {
	ours := besides{e.Label, missing, Interval{missing, missing, missing}}
	if p.Baseline == "" {
		if other := find(others, e.Case, e.Configuration).Median; other > 0 {
			ours.ratio = e.Median / other
		}
		return ours
	}
	if c := e.against(p.Baseline); c != nil {
		ours.ratio, ours.interval = c.Ratio, c.Interval
	}
	return ours
}

// row is one line of the table. Repeat says that the line above is of p too.
func (p PublishedRatio) row(ours besides, repeat bool) []Cell {
	what := fmt.Sprintf("%s, %s over %s", quantity(p.Metric), p.Configuration, p.Baseline)
	if p.Baseline == "" {
		what = fmt.Sprintf("%s over %s, %s", strings.ReplaceAll(p.Metric, "_", " "), quantity(p.Of), p.Configuration)
	}
	label := ours.label
	if p.Extent != "" {
		label = fmt.Sprintf("%s (%s)", ours.label, p.Extent)
	}
	cell := numeric(ours.ratio, ratio(ours.ratio))
	if ours.interval.Low.Defined() {
		cell.Text += fmt.Sprintf(" [%s, %s]", ratio(ours.interval.Low), ratio(ours.interval.High))
	}
	return []Cell{{Text: what, Repeat: repeat}, {Text: label}, cell, {Text: fmt.Sprintf("%s (%s)", ratio(Number(p.Factor)), p.Printed)}}
}
