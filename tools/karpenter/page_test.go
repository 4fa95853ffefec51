package karpenter

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// version returns the version of Karpenter in go.mod.
func version() string {
	text, err := os.ReadFile("go.mod")
	found := regexp.MustCompile(`sigs\.k8s\.io/karpenter (v\S+)`).FindSubmatch(text)
	if err != nil || found == nil {
		panic("go.mod has no version of Karpenter")
	}
	return string(found[1])
}

// ranked returns the value that a part of all does not exceed: the nearest rank.
func ranked(values []float64, part float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// planner is one whose costs a row has.
type planner struct {
	name string
	cost func(row) float64
	cpu  func(row) float64
	pods func(row) int // that leave their nodes; nil: a new cluster has none
}

// planners are Unnest, and its rivals.
var planners = []planner{
	{"Unnest, whole pods", func(r row) float64 { return r.unnest }, func(r row) float64 { return r.cpu }, func(r row) int { return r.moved }},
	{"Karpenter, new cluster", func(r row) float64 { return r.fresh }, func(r row) float64 { return r.freshCPU }, nil},
	{"Karpenter, from today's nodes", func(r row) float64 { return r.after }, func(r row) float64 { return r.afterCPU }, func(r row) int { return r.evicted }},
}

// each returns a figure of all rows.
func each(rows []row, of func(row) float64) (all []float64) {
	for _, r := range rows {
		all = append(all, of(r))
	}
	return all
}

func percent(cost func(row) float64) func(row) float64 {
	return func(r row) float64 { return 100 * (cost(r)/r.bound - 1) }
}

// page returns the page of the results.
func page(rows []row) string {
	var b strings.Builder
	nodes, pods, unfinished, cheaper, dearer := 0, 0, 0, 0, 0
	for _, r := range rows {
		nodes, pods, unfinished = nodes+r.nodes, pods+r.pods, unfinished+r.unfinished
		switch difference := r.fresh - r.unnest; {
		case difference > cent:
			cheaper++
		case difference < -cent:
			dearer++
		}
	}
	fmt.Fprintf(&b, `# Unnest's plans and Karpenter's, side by side

**Unnest's plan costs less than Karpenter's for a new cluster in %d of %d clusters, and more in %d.**

<!-- begin chart clusters Cost of Unnest's plans over that of Karpenter's, in 100 clusters, with 95 %% interval -->


<!-- end chart -->

For readers who want to know how good the plans of clusters are. %d random clusters of %d to %d nodes, with %d nodes and
%d pods in all, were planned by Unnest and by the simulations of Karpenter %s: its scheduler for new nodes, and its
consolidation of several nodes and of one. %s writes this page and [its table](plan-karpenter.csv), a line for each cluster.

<!-- begin comparison -->
| | above the bound, median | 95th percentile | worst | cost of all, $/h | CPU time, median | worst | pods that move |
|---|---|---|---|---|---|---|---|
`, cheaper, len(rows), dearer, len(rows), slices.MinFunc(rows, byNodes).nodes, slices.MaxFunc(rows, byNodes).nodes, nodes, pods, "`"+version()+"`", "`make bench-plan`")
	for _, p := range planners {
		moved := "–"
		if p.pods != nil {
			moved = fmt.Sprintf("%.0f", sum(each(rows, func(r row) float64 { return float64(p.pods(r)) })))
		}
		distance, cpu := each(rows, percent(p.cost)), each(rows, p.cpu)
		fmt.Fprintf(&b, "| %s | %.2f %% | %.2f %% | %.2f %% | %.3f | %.2f s | %.2f s | %s |\n", p.name, ranked(distance, .5), ranked(distance, .95), slices.Max(distance),
			sum(each(rows, p.cost)), ranked(cpu, .5), slices.Max(cpu), moved)
	}
	for _, p := range []planner{{name: "Unnest, with split pods", cost: func(r row) float64 { return r.split }}, {name: "today", cost: func(r row) float64 { return r.today }}} {
		distance := each(rows, percent(p.cost))
		fmt.Fprintf(&b, "| %s | %.2f %% | %.2f %% | %.2f %% | %.3f | | | |\n", p.name, ranked(distance, .5), ranked(distance, .95), slices.Max(distance), sum(each(rows, p.cost)))
	}
	fmt.Fprintf(&b, "| the bound | | | | %.3f | | | |\n\n", sum(each(rows, func(r row) float64 { return r.bound })))
	b.WriteString("| Unnest costs | less | the same | more | most saved | most lost |\n|---|---|---|---|---|---|\n")
	for _, p := range planners[1:] {
		less, same, more := 0, 0, 0
		lead := each(rows, func(r row) float64 { return 100 * (1 - r.unnest/p.cost(r)) })
		for i, r := range rows {
			switch difference := p.cost(r) - r.unnest; {
			case difference > cent:
				less++
			case difference < -cent:
				more++
			default:
				same++
				lead[i] = 0
			}
		}
		fmt.Fprintf(&b, "| than %s | %d | %d | %d | %.2f %% | %.2f %% |\n", p.name, less, same, more, max(0, slices.Max(lead)), max(0, -slices.Min(lead)))
	}
	b.WriteString("\n| rules of workloads | clusters | Unnest above the bound, median | worst | Karpenter, new cluster, median | worst |\n|---|---|---|---|---|---|\n")
	for i, mix := range mixes {
		of := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.mix != i })
		if len(of) == 0 {
			continue
		}
		ours, theirs := each(of, percent(planners[0].cost)), each(of, percent(planners[1].cost))
		fmt.Fprintf(&b, "| %s | %d | %.2f %% | %.2f %% | %.2f %% | %.2f %% |\n", mix.name, len(of), ranked(ours, .5), slices.Max(ours), ranked(theirs, .5), slices.Max(theirs))
	}
	fmt.Fprintf(&b, `<!-- end comparison -->

All have the same problem: the pods of a pool (nodes in one zone with equal labels and taints) stay in it, on VMs of the same
models at the same prices, with the same room for pods and the same DaemonSets. Costs are those of the pools. Nodes with GPUs,
which nobody plans, are left out. The bound is below every plan, also those that split pods over VMs: whole pods may have to
cost more than it.

- Each pool is a NodePool of its own, without limits and disruption budgets, with %s.
- A new cluster has all pods pending at once. Karpenter then consolidates it, as today's nodes, until it finds nothing more.
  It took too long for %d pools, which stay as they are after %.0f minutes.
- Each new node is the cheapest model that Karpenter allows, as the cloud would choose. Nodes are there at once, and
  commands are not validated again after 15 seconds.
- The clusters have no disruption budgets and no annotations against evictions. Karpenter would not touch nodes with them;
  Unnest's end does not depend on them, only the order of its steps.
- Pods that move are those of Unnest's steps, or those that Karpenter evicts, each time that it does.
- CPU time has for Unnest a whole process, which also reads the dump and plans split pods, and for Karpenter the simulation alone.
- The published rows come from one process, on a machine of two processors with other work.
`, "`consolidationPolicy: WhenEmptyOrUnderutilized` and `consolidateAfter: 0s`", unfinished, most.Minutes())
	return b.String()
}

func byNodes(a, b row) int { return a.nodes - b.nodes }

func sum(values []float64) (all float64) {
	for _, v := range values {
		all += v
	}
	return all
}

// The published page is that of the published table. -publish writes it again.
func TestPage(t *testing.T) {
	rows := read(t)
	if *publish {
		write(t, rows)
	}
	text, err := os.ReadFile(results + ".md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := regexp.MustCompile(`(?s)(<!-- begin chart [^\n]*\n).*?(\n<!-- end chart -->)`) // by internal/report, whose test compares it with the table
	if want := page(rows); drawn.ReplaceAllString(string(text), "$1\n$2") != want {
		t.Errorf("%s.md is not the page of its table:\n%s", results, want)
	}
	if len(rows) != 100 {
		t.Errorf("the table has %d clusters", len(rows))
	}
}
