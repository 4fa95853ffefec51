package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
	"unnest/internal/report/papers"
)

// paperMetrics are our metrics for those of Bacou et al.; a deviation is a share of the
// second.
var paperMetrics = map[string][2]string{
	"latency": {"latency_mean"}, "throughput": {"throughput"}, "deviation": {"latency_stddev", "latency_mean"},
}

// publishedRatioTable lists our ratios with the paper's; it is empty when nothing
// matches.
func (b *builder) publishedRatioTable(g Group, cases []result.Case, families map[string][]Estimate) Table {
	t := Table{
		ID: g.ID + "-paper", Title: g.Title + ": this run and the ratios of the paper",
		Columns: []Column{{Name: "ratio", Header: true}, {Name: labelColumn(families[cases[0].Primary]), Header: true}, {Name: "this run", Numeric: true}, {Name: "paper", Numeric: true}},
	}
	var sections []string
	usage := false
	for _, p := range b.opts.Papers.Ratios {
		if strings.ToLower(p.Benchmark) != groupKey(cases[0]) {
			continue
		}
		before := len(t.Rows)
		for _, ours := range ratiosFor(p, families) {
			t.Rows = append(t.Rows, ratioRow(p, ours, len(t.Rows) > before))
		}
		for _, ours := range usageRatios(p, families) {
			t.Rows, usage = append(t.Rows, ratioRow(p, ours, len(t.Rows) > before)), true
		}
		if len(t.Rows) > before && !slices.Contains(sections, "§"+p.Section) {
			sections = append(sections, "§"+p.Section)
		}
	}
	slices.Sort(sections)
	t.Notes = []string{
		"Paper: Bacou, Todeschi, Tchana, Hagimont, Nested Virtualization Without the Nest, ICPP 2019, " + list(sections) +
			", from the text. The paper ran " + paperTool(cases[0]) + " on two Xeon E5-2420 v2 with KVM and vhost. On another machine, above all with an emulated processor, compare the ranking of the configurations rather than the ratios.",
	}
	if usage {
		t.Notes = append(t.Notes, "CPU usage is the mean CPU time per answer times the answers per second: of client and server, that of the whole VMs inside; of guests, that of the VMs' processes on the host outside the kernel. It has no interval.")
	}
	return t
}

// paperUsage are our metrics whose sum is a CPU usage of Bacou et al. 2019, §5.3.4.
var paperUsage = map[string][]string{
	"client and server sys": {"guest_sys"},
	"client and server CPU": {"guest_usr", "guest_sys", "guest_soft"},
	"guest CPU":             {"vm_usr", "vm_guest"},
}

// usageRatios returns our ratios of a CPU usage for p.
func usageRatios(p papers.Ratio, families map[string][]Estimate) (all []ourRatio) {
	parts := paperUsage[p.Metric]
	usage := func(c, configuration string) Number {
		var means []Number
		for _, name := range parts {
			means = append(means, find(families[name], c, configuration).Mean)
		}
		return sum(means) * find(families["response_rate"], c, configuration).Mean
	}
	for _, e := range families["response_rate"] {
		ours := ourRatio{e.Label, usage(e.Case, p.Configuration) / usage(e.Case, p.Baseline), interval(stats.Interval{})}
		if e.Configuration == p.Configuration && ours.ratio.Defined() {
			all = append(all, ours)
		}
	}
	return all
}

// paperTool is what Bacou et al. loaded a server with.
func paperTool(c result.Case) string {
	switch groupKey(c) {
	case "nginx":
		return "wrk2 at 10,000 requests/s"
	case "memcached":
		return "memtier_benchmark"
	}
	return "Netperf for 20 s"
}

// ourRatio is our ratio at one size, with its interval if there is one.
type ourRatio struct {
	label    string
	ratio    Number
	interval Interval
}

// ratiosFor returns our ratios for p, one for each size that p is about.
func ratiosFor(p papers.Ratio, families map[string][]Estimate) []ourRatio {
	metric := paperMetrics[p.Metric]
	var all []ourRatio
	var order result.Order
	for _, e := range families[metric[0]] {
		if e.Configuration != p.Configuration || p.Size != 0 && p.Size != e.Size {
			continue
		}
		ours := ratioOf(e, p.Baseline, families[metric[1]])
		if !ours.ratio.Defined() {
			continue
		}
		all, order = append(all, ours), e.Order
	}
	if p.Extent != "worst" && p.Extent != "best" || len(all) == 0 {
		return all
	}
	extreme := slices.MaxFunc[[]ourRatio]
	if (p.Extent == "worst") == (order == result.HIB) {
		extreme = slices.MinFunc[[]ourRatio]
	}
	ours := extreme(all, func(x, y ourRatio) int { return cmp.Compare(x.ratio, y.ratio) })
	ours.label = fmt.Sprintf("%s (%s)", ours.label, p.Extent)
	return []ourRatio{ours}
}

// ratioOf returns the ratio of an estimate to a baseline, or without one to another
// metric of its case.
func ratioOf(e Estimate, baseline string, others []Estimate) ourRatio {
	ours := ourRatio{e.Label, missing, interval(stats.Interval{})}
	if baseline == "" {
		if other := find(others, e.Case, e.Configuration).Center; other > 0 {
			ours.ratio = e.Center / other
		}
		return ours
	}
	if c := e.against(baseline); c != nil {
		ours.ratio, ours.interval = c.Ratio, c.Interval
	}
	return ours
}

// ratioRow is one line of the table. Repeat says that the line above is of p too.
func ratioRow(p papers.Ratio, ours ourRatio, repeat bool) []Cell {
	metric := paperMetrics[p.Metric]
	what := fmt.Sprintf("%s, %s over %s", quantity(metric[0]), p.Configuration, p.Baseline)
	if paperUsage[p.Metric] != nil {
		what = fmt.Sprintf("usage: %s, %s over %s", p.Metric, p.Configuration, p.Baseline)
	}
	if p.Baseline == "" {
		what = fmt.Sprintf("%s over %s, %s", strings.ReplaceAll(metric[0], "_", " "), quantity(metric[1]), p.Configuration)
	}
	cell := numeric(ours.ratio, withInterval(ours.ratio, ours.interval))
	return []Cell{{Text: what, Repeat: repeat}, {Text: ours.label}, cell, {Text: fmt.Sprintf("%s (%s)", ratio(Number(p.Factor())), p)}}
}
