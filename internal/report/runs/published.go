package runs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/papers"
)

// paperMetrics are our metrics for those of Bacou et al.; a deviation is a share of the
// second.
var paperMetrics = map[string][2]string{
	"latency": {"latency_mean"}, "throughput": {"throughput"}, "deviation": {"latency_stddev", "latency_mean"},
}

// publishedRatioTable lists our ratios with the paper's; it is empty when nothing
// matches.
func (b *builder) publishedRatioTable(g document.Group, cases []result.Case, families map[string][]estimate.Estimate) document.Table {
	t := b.published(cases, families, ratiosFor)
	t.ID, t.Title = g.ID+"-paper", g.Title+": this run and the ratios of the paper"
	return t
}

// publishedUsageTable lists our ratios of CPU usage with the paper's, and stands next to the
// CPU time; it is empty when nothing matches.
func (b *builder) publishedUsageTable(g document.Group, cases []result.Case, families map[string][]estimate.Estimate) document.Table {
	t := b.published(cases, families, usageRatios)
	t.ID, t.Title = g.ID+"-paper-cpu", g.Title+": CPU usage of this run and of the paper"
	t.Notes = append(t.Notes, "CPU usage is the mean CPU time per answer or message times their number per second: of client and server and in the guest, that of the whole VMs inside; of the VM, that of its process on the host; of guests, that of the VMs' processes outside the kernel. It has no interval.")
	return t
}

// published lists the ratios of the paper for which ours has some.
func (b *builder) published(cases []result.Case, families map[string][]estimate.Estimate, ours func(papers.Ratio, map[string][]estimate.Estimate) []ourRatio) document.Table {
	t := document.Table{
		Columns: []document.Column{{Name: "ratio", Header: true}, {Name: estimate.LabelColumn(families[cases[0].Primary]), Header: true}, {Name: "this run", Numeric: true}, {Name: "paper", Numeric: true}},
	}
	var sections []string
	for _, p := range b.papers.Ratios {
		if strings.ToLower(p.Benchmark) != naming.GroupKey(cases[0]) || !b.sameSetting(p) {
			continue
		}
		before := len(t.Rows)
		for _, one := range ours(p, families) {
			t.Rows = append(t.Rows, ratioRow(p, one, len(t.Rows) > before))
		}
		if len(t.Rows) > before && !slices.Contains(sections, "§"+p.Section) {
			sections = append(sections, "§"+p.Section)
		}
	}
	slices.Sort(sections)
	t.Notes = []string{
		"Paper: Bacou, Todeschi, Tchana, Hagimont, Nested Virtualization Without the Nest, ICPP 2019, " + document.List(sections) +
			", from the text. The paper ran " + paperTool(cases[0]) + " on two Xeon E5-2420 v2 with KVM and vhost. On another machine, above all with an emulated processor, compare the ranking of the configurations rather than the ratios.",
	}
	return t
}

// sameSetting reports whether our configuration is of the setting of p: §5.2 has a container in one VM and
// a client on the host, §5.3 a pod with client and server.
func (b *builder) sameSetting(p papers.Ratio) bool {
	pod := slices.ContainsFunc(b.Run.Configurations, func(c result.Configuration) bool {
		return c.Name == p.Configuration && c.Options["drive"] == string(stack.Pod)
	})
	return !(pod && strings.HasPrefix(p.Section, "5.2")) && (pod || !strings.HasPrefix(p.Section, "5.3"))
}

// paperUsage are our metrics whose sum is a CPU usage of Bacou et al. 2019, §5.2.3 and §5.3.4.
var paperUsage = map[string][]string{
	"VM CPU":                {"vm_usr", "vm_sys", "vm_guest"},
	"guest soft":            {"guest_soft"},
	"guest total":           {"guest_usr", "guest_sys", "guest_soft"},
	"client and server sys": {"guest_sys"},
	"client and server CPU": {"guest_usr", "guest_sys", "guest_soft"},
	"guest CPU":             {"vm_usr", "vm_guest"},
}

func usageRatios(p papers.Ratio, families map[string][]estimate.Estimate) (all []ourRatio) {
	parts, rates := paperUsage[p.Metric], families["response_rate"]
	if rates == nil {
		rates = families["message_rate"]
	}
	usage := func(c, configuration string) document.Number {
		var means []document.Number
		for _, name := range parts {
			means = append(means, estimate.Find(families[name], c, configuration).Mean)
		}
		return document.Sum(means) * estimate.Find(rates, c, configuration).Mean
	}
	for _, e := range rates {
		ours := ourRatio{e.Label, usage(e.Case, p.Configuration) / usage(e.Case, p.Baseline), document.NoInterval}
		if e.Configuration == p.Configuration && ours.ratio.Defined() {
			all = append(all, ours)
		}
	}
	return all
}

// paperTool is what Bacou et al. loaded a server with.
func paperTool(c result.Case) string {
	switch naming.GroupKey(c) {
	case "nginx":
		return "wrk2 at 10,000 requests/s"
	case "memcached":
		return "memtier_benchmark"
	case "kafka":
		return "kafka-producer-perf-test.sh at 120,000 messages/s"
	}
	return "Netperf for 20 s"
}

// ourRatio is our ratio at one size, with its interval if there is one.
type ourRatio struct {
	label    string
	ratio    document.Number
	interval document.Interval
}

// ratiosFor returns our ratios for p, one for each size that p is about.
func ratiosFor(p papers.Ratio, families map[string][]estimate.Estimate) []ourRatio {
	metric := paperMetrics[p.Metric]
	if p.Metric == "deviation" && families[metric[0]] == nil {
		return runDeviations(p, families[metric[1]])
	}
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

// runDeviations returns the deviation of a mean over the repetitions, for a tool that prints none
// of its latencies: that of the paper is over ten runs (Figure 5).
func runDeviations(p papers.Ratio, means []estimate.Estimate) (all []ourRatio) {
	for _, e := range means {
		if e.Configuration == p.Configuration && e.Mean > 0 && e.StdDev.Defined() {
			all = append(all, ourRatio{e.Label, e.StdDev / e.Mean, document.NoInterval})
		}
	}
	return all
}

// ratioOf returns the ratio of an estimate to a baseline, or without one to another
// metric of its case.
func ratioOf(e estimate.Estimate, baseline string, others []estimate.Estimate) ourRatio {
	ours := ourRatio{e.Label, document.Missing, document.NoInterval}
	if baseline == "" {
		if other := estimate.Find(others, e.Case, e.Configuration).Center; other > 0 {
			ours.ratio = e.Center / other
		}
		return ours
	}
	if c := e.Against(baseline); c != nil {
		ours.ratio, ours.interval = c.Ratio, c.Interval
	}
	return ours
}

// ratioRow is one line of the table. Repeat says that the line above is of p too.
func ratioRow(p papers.Ratio, ours ourRatio, repeat bool) []document.Cell {
	metric := paperMetrics[p.Metric]
	what := fmt.Sprintf("%s, %s over %s", naming.Quantity(metric[0]), p.Configuration, p.Baseline)
	if paperUsage[p.Metric] != nil {
		what = fmt.Sprintf("usage: %s, %s over %s", p.Metric, p.Configuration, p.Baseline)
	}
	if p.Baseline == "" {
		what = fmt.Sprintf("%s over %s, %s", strings.ReplaceAll(metric[0], "_", " "), naming.Quantity(metric[1]), p.Configuration)
	}
	cell := document.NumericCell(ours.ratio, document.RatioWithInterval(ours.ratio, ours.interval))
	return []document.Cell{{Text: what, Repeat: repeat}, {Text: ours.label}, cell, {Text: fmt.Sprintf("%s (%s)", document.Ratio(document.Number(p.Factor())), p)}}
}
