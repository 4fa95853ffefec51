package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest/internal/plan/summary"
)

// putToday makes the document answer what a cluster costs, what it could cost, and what to do
// next.
func (d *Document) putToday(c summary.Plan) {
	t := *c.Today
	d.Title = "What the cluster costs, and what it could cost"
	d.Description = "The cost of the VMs of a cluster for an hour: as they are, with the same whole pods packed on other VMs, and with containers of a pod on several VMs as well."
	d.Answer = todayAnswer(t)
	if c.Use != nil {
		d.Answer = sizedAnswer(t, c.Use.Saves)
	}
	d.Headlines = append(todaySteps(t), fmt.Sprintf("%s, %s, %s. The plan with splits is %s above the bound, and proved optimal for %s.", plural(len(t.Pools), "pool"), plural(c.Pods, "pod"), plural(c.Containers, "container"),
		fraction(gap(t)), plural(optimalPools(c), "pool")))
	d.Figures = todayFigures(t)
	d.Warnings = append(todayWarnings(t), d.Warnings...)
	g := Group{ID: "cluster", Title: "The cluster today, and packed"}
	g.add(poolTable(t), stepTable(t), stayTable(t), ruleTable(t))
	d.Groups = append([]Group{g}, slices.DeleteFunc(d.Groups, func(g Group) bool { return g.ID == "savings" })...)
	d.Methods = append([]Method{
		{"pool", "Nodes in one zone with equal taints and labels that pods select by. Each pod stays in its pool. A user in the other tables is a pool."},
		{"pack", "The best packing found of whole pods on any models of the catalogue. Hostlo is not needed."},
		{"split", "The best packing found of containers, which needs Hostlo."},
		{"month", fmt.Sprintf("%d hours.", summary.HoursOfMonth)},
	}, d.Methods...)
}

// monthly prints a cost for an hour and a month.
func monthly(d summary.Dollars) string {
	return fmt.Sprintf("%s $/h (%s $ a month)", d, thousands(int64(inDollars(d)*summary.HoursOfMonth+.5)))
}

// thousands prints a number from 0 in groups of three digits.
func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func todayAnswer(t summary.Today) string {
	now := fmt.Sprintf("You pay %s for %s.", monthly(t.Now), plural(t.Nodes, "node"))
	packing := "Packing the same whole pods on other VMs saves nothing."
	if t.Packed < t.Now {
		packing = fmt.Sprintf("You could pay %s, %s, with the same whole pods on %s.", monthly(t.Packed), costChange(t.Packed, t.Now),
			plural(vmsOf(t, func(p summary.PoolCost) map[string]int { return p.PackedVMs }), "VM"))
	}
	splitting := "Splitting pods saves nothing more."
	if t.Split < t.Packed {
		splitting = fmt.Sprintf("Splitting %s over VMs makes that %s, %s.", plural(t.PodsSplit, "pod"), monthly(t.Split), costChange(t.Split, t.Now))
	}
	return strings.Join([]string{now, packing, splitting}, " ")
}

// sizedAnswer is todayAnswer where the use is known.
func sizedAnswer(t summary.Today, saves []summary.Share) string {
	_, split, _, _ := t.Could()
	return fmt.Sprintf("You pay %s for %s. You could pay %s, %s: %s.", monthly(t.Now), plural(t.Nodes, "node"), monthly(split), costChange(split, t.Now), shareWords(saves))
}

// gap returns how far the last plan is above its bound.
func gap(t summary.Today) float64 {
	_, split, bound, _ := t.Could()
	return summary.Ratio(split-bound, bound)
}

// optimalPools counts the pools whose last plan is proved optimal.
func optimalPools(c summary.Plan) int {
	if c.Use == nil {
		return c.Optimal
	}
	n := 0
	for _, p := range c.Today.Pools {
		if last := p.Final(); p.Pods > 0 && last.Split == last.Bound {
			n++
		}
	}
	return n
}

// vmsOf counts VMs of all pools and the nodes that stay.
func vmsOf(t summary.Today, of func(summary.PoolCost) map[string]int) (n int) {
	for _, p := range t.Pools {
		for _, count := range of(p) {
			n += count
		}
	}
	for _, s := range t.Stay {
		n += s.Nodes
	}
	return n
}

// shownSteps is how many steps are findings; the table has all.
const shownSteps = 3

func todaySteps(t summary.Today) []string {
	var lines []string
	_, _, bound, _ := t.Could()
	for i, s := range t.Steps[:min(len(t.Steps), shownSteps)] {
		first := "Then"
		if i == 0 {
			first = "Do next"
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s.", first, stepWords(s), stepSaves(s)))
	}
	if len(t.Steps) == 0 {
		lines = append(lines, "Do nothing: no plan that was found costs less.")
	} else if rest := len(t.Steps) - shownSteps; rest > 0 {
		lines = append(lines, fmt.Sprintf("%s more below. No plan that keeps the rules costs less than %s $/h.", plural(rest, "step"), bound))
	}
	return lines
}

func stepSaves(s summary.NextStep) string {
	if s.Saves < 0 {
		return fmt.Sprintf("costs %s $/h more", -s.Saves)
	}
	return fmt.Sprintf("saves %s $/h", s.Saves)
}

func stepWords(s summary.NextStep) string {
	words := fmt.Sprintf("in %s, replace %s by %s", s.Pool, modelWords(s.From), modelWords(s.To))
	if s.Action == summary.StepSize {
		words = fmt.Sprintf("in %s, set requests by use and replace %s by %s", s.Pool, modelWords(s.From), modelWords(s.To))
	}
	if s.Action == summary.StepSplit {
		words += fmt.Sprintf(" and split %s", plural(s.PodsSplit, "pod"))
	}
	return words
}

// modelWords lists VMs such as "2 m6i.large, 1 m6i.xlarge".
func modelWords(vms map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(vms)) {
		words = append(words, fmt.Sprintf("%d %s", vms[name], name))
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

func todayFigures(t summary.Today) []KeyFigure {
	figures := []KeyFigure{
		{Value: t.Now.String() + " $/h", Label: "you pay", Detail: monthly(t.Now)},
		{Value: costChange(t.Packed, t.Now), Label: "whole pods, packed", Detail: monthly(t.Packed), Series: "whole"},
		{Value: costChange(t.Split, t.Now), Label: "with splitting as well", Detail: monthly(t.Split), Series: "best"},
	}
	if s := t.Sized; s != nil {
		figures = append(figures, KeyFigure{Value: costChange(s.Split, t.Now), Label: "with requests by use as well", Detail: monthly(s.Split)})
	}
	return figures
}

func todayWarnings(t summary.Today) []string {
	var warnings []string
	for _, r := range t.Rules {
		if r.How == "NOT HONOURED" {
			warnings = append(warnings, fmt.Sprintf("Not honoured: %s, of %s.", r.What, plural(r.Pods, "pod")))
		}
	}
	for _, s := range t.Stay {
		if s.Unpriced > 0 {
			warnings = append(warnings, fmt.Sprintf("Without a price, and in no sum: %s (%s).", plural(s.Unpriced, "node"), s.Why))
		}
	}
	for _, p := range t.Pools {
		if p.Stays != "" {
			warnings = append(warnings, fmt.Sprintf("Pool %s stays as it is: %s.", p.Name, p.Stays))
		}
	}
	if t.Waiting > 0 {
		warnings = append(warnings, fmt.Sprintf("Not planned: %s without a node.", plural(t.Waiting, "pod")))
	}
	if t.Elsewhere > 0 {
		warnings = append(warnings, fmt.Sprintf("Not planned: %s on nodes that the dump lacks.", plural(t.Elsewhere, "pod")))
	}
	return warnings
}

func poolTable(t summary.Today) Table {
	table := Table{ID: "pools", Title: "Cost of the pools, $/h"}
	names := []string{"pay now", "packed", "split"}
	if t.Sized != nil {
		names = append(names, "by use")
	}
	for _, name := range append(names, "bound", "pods") {
		table.Columns = append(table.Columns, Column{Name: name, Numeric: true})
	}
	table.Columns = append(table.Columns, Column{Name: "pool"})
	add := func(now, packed, split, sized, bound summary.Dollars, pods, name string) {
		row := textRow(now.String(), packed.String(), split.String())
		if t.Sized != nil {
			row = append(row, Cell{Text: sized.String()})
		}
		table.Rows = append(table.Rows, append(row, textRow(bound.String(), pods, name)...))
	}
	for _, p := range t.Pools {
		add(p.Now, p.Packed, p.Split, p.Final().Split, p.Final().Bound, fmt.Sprint(p.Pods), p.Name)
	}
	var stays summary.Dollars
	for _, s := range t.Stay {
		stays += s.Cost
	}
	if len(t.Stay) > 0 {
		add(stays, stays, stays, stays, stays, "", "nodes that stay")
	}
	_, sized, bound, _ := t.Could()
	add(t.Now, t.Packed, t.Split, sized, bound, "", "all")
	table.Sums = 1
	table.Notes = []string{fmt.Sprintf("Catalogues: %s. Prices: %s. Reserved for the kubelet on models that the cluster does not have: %s.",
		strings.Join(t.Catalogues, ", "), strings.Join(slices.Concat(t.Prices, noPrices(t)), ", "), t.Reserved)}
	for _, p := range t.Pools {
		table.Notes = append(table.Notes, fmt.Sprintf("On every VM of %s: %s.", p.Name, p.PerVM))
	}
	if t.Largest {
		table.Notes = append(table.Notes, "No VM is larger than the largest of today. --model or --catalogue allow others.")
	}
	return table
}

func noPrices(t summary.Today) []string {
	if len(t.Prices) == 0 {
		return []string{"as given"}
	}
	return nil
}

func stepTable(t summary.Today) Table {
	table := Table{ID: "steps", Title: "What to do, the largest saving first", Columns: []Column{{Name: "step", Header: true}, {Name: "saves, $/h", Numeric: true}, {Name: "action"}}}
	for i, s := range t.Steps {
		table.Rows = append(table.Rows, textRow(fmt.Sprint(i+1), s.Saves.String(), stepWords(s)))
	}
	return table
}

func stayTable(t summary.Today) Table {
	table := Table{ID: "stay", Title: "Nodes that stay as they are", Columns: []Column{{Name: "nodes", Numeric: true}, {Name: "pods", Numeric: true}, {Name: "$/h", Numeric: true}, {Name: "without a price", Numeric: true}, {Name: "why"}}}
	for _, s := range t.Stay {
		table.Rows = append(table.Rows, textRow(fmt.Sprint(s.Nodes), fmt.Sprint(s.Pods), s.Cost.String(), fmt.Sprint(s.Unpriced), s.Why))
	}
	return table
}

func ruleTable(t summary.Today) Table {
	table := Table{ID: "rules", Title: "Rules about the places of pods", Columns: []Column{{Name: "pods", Numeric: true}, {Name: "honoured"}, {Name: "rule"}}}
	for _, r := range t.Rules {
		table.Rows = append(table.Rows, textRow(fmt.Sprint(r.Pods), r.How, r.What))
	}
	return table
}
