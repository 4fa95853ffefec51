package plans

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
)

// putToday makes the document answer what a cluster costs, what it could cost, and what to do
// next.
func putToday(d *document.Document, c summary.Plan) {
	t := *c.Today
	d.Title = "What the cluster costs, and what it could cost"
	d.Description = "The cost of the VMs of a cluster for an hour: as they are, with the same whole pods packed on other VMs, and with containers of a pod on several VMs as well."
	d.Answer = todayAnswer(t)
	if c.Use != nil {
		d.Answer = sizedAnswer(t, c.Use.Saves)
	}
	d.Headlines = append(todaySteps(t), fmt.Sprintf("%s, %s, %s. The plan with splits is %s above the bound, and proved optimal for %s.", document.Plural(len(t.Pools), "pool"), document.Plural(c.Pods, "pod"), document.Plural(c.Containers, "container"),
		fraction(gap(t)), document.Plural(optimalPools(c), "pool")))
	d.Figures = todayFigures(t)
	d.Warnings = append(todayWarnings(t), d.Warnings...)
	d.Series = append(d.Series, schemeSeries([]string{"today"})...)
	g := document.Group{ID: "cluster", Title: "The cluster today, and packed"}
	g.Add(poolTable(t), stepTable(t), stayTable(t), ruleTable(t))
	d.Groups = append([]document.Group{g}, slices.DeleteFunc(d.Groups, func(g document.Group) bool { return g.ID == "savings" })...)
	d.Methods = append([]document.Method{
		{Term: "pool", Text: "Nodes in one zone with equal taints and labels that pods select by. Each pod stays in its pool. A user in the other tables is a pool."},
		{Term: "pack", Text: "The best packing found of whole pods on any models of the catalogue. Hostlo is not needed."},
		{Term: "split", Text: "The best packing found of containers, which needs Hostlo."},
		{Term: "month", Text: fmt.Sprintf("%d hours.", summary.HoursOfMonth)},
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
	now := fmt.Sprintf("You pay %s for %s.", monthly(t.Now), document.Plural(t.Nodes, "node"))
	packing := "Packing the same whole pods on other VMs saves nothing."
	if t.Packed < t.Now {
		packing = fmt.Sprintf("You could pay %s, %s, with the same whole pods on %s.", monthly(t.Packed), costChange(t.Packed, t.Now),
			document.Plural(vmsOf(t, func(p summary.PoolCost) map[string]int { return p.PackedVMs }), "VM"))
	}
	splitting := "Splitting pods saves nothing more."
	if t.Split < t.Packed {
		splitting = fmt.Sprintf("Splitting %s over VMs makes that %s, %s.", document.Plural(t.PodsSplit, "pod"), monthly(t.Split), costChange(t.Split, t.Now))
	}
	return strings.Join([]string{now, packing, splitting, priceWords(t)}, " ")
}

// sizedAnswer is todayAnswer where the use is known.
func sizedAnswer(t summary.Today, saves []summary.Share) string {
	_, split, _, _ := t.Could()
	return fmt.Sprintf("You pay %s for %s. You could pay %s, %s: %s.", monthly(t.Now), document.Plural(t.Nodes, "node"), monthly(split), costChange(split, t.Now), shareWords(saves)) + " " + priceWords(t)
}

// priceWords says of which region and date the prices are.
func priceWords(t summary.Today) string {
	return "Prices: " + strings.Join(slices.Concat(t.Prices, noPrices(t)), "; ") + "."
}

// gap returns how far the last plan is above its bound, without the pools that have none.
func gap(t summary.Today) float64 {
	_, split, bound, _ := t.Could()
	for _, p := range t.Pools {
		if unbounded(p) {
			split -= p.Final().Split
		}
	}
	return summary.Ratio(split-bound, bound)
}

// unbounded reports whether no bound of the pool's cost is known.
func unbounded(p summary.PoolCost) bool { return p.Stays != "" && p.Final().Bound == 0 }

// optimalPools counts the pools whose last plan is proved optimal.
func optimalPools(c summary.Plan) int {
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
		switch {
		case s.Action == summary.StepSplit:
			first = "With Hostlo, on VMs of one host"
			if i == 0 {
				lines = append(lines, "Do nothing with whole pods: no plan that was found costs less.")
			}
		case i == 0:
			first = "Do next"
		}
		if len(s.Blocked) > 0 {
			first += blockedWords(s.Blocked)
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s.", first, stepWords(s), stepSaves(s)))
	}
	small := 0
	for _, p := range t.Pools {
		if p.TooLittle {
			small++
		}
	}
	if small > 0 {
		lines = append(lines, fmt.Sprintf("%s could cost less, but by less than %s $/h a step: left out.", document.Plural(small, "pool"), t.MinSaving))
	}
	if len(t.Steps) == 0 && small == 0 {
		lines = append(lines, "Do nothing: no plan that was found costs less.")
	} else if rest := len(t.Steps) - shownSteps; rest > 0 {
		lines = append(lines, fmt.Sprintf("%s more below. No plan that keeps the rules costs less than %s $/h.", document.Plural(rest, "step"), bound))
	}
	return lines
}

func stepSaves(s summary.NextStep) string {
	words := fmt.Sprintf("saves %s $/h", s.Saves)
	if s.Saves < 0 {
		words = fmt.Sprintf("costs %s $/h more", -s.Saves)
	}
	if s.Moves > 0 {
		words += " and moves " + document.Plural(s.Moves, "pod") + roundWords(s)
	}
	return fmt.Sprintf("%s; you pay %s $/h then", words, s.Cost)
}

// roundWords says how many evictions disruption budgets allow at a time.
func roundWords(s summary.NextStep) string {
	if s.Rounds == 0 {
		return ""
	}
	return fmt.Sprintf(" in at least %s, as disruption budgets allow", document.Plural(s.Rounds, "round"))
}

// blockedWords says which disruption budgets forbid a step today.
func blockedWords(budgets []string) string {
	if more := len(budgets) - 1; more > 0 {
		return fmt.Sprintf(", once disruption budget %s and %d more let their pods move (add replicas first)", budgets[0], more)
	}
	return fmt.Sprintf(", once disruption budget %s lets its pods move (add a replica first)", budgets[0])
}

func stepWords(s summary.NextStep) string {
	words := fmt.Sprintf("in %s, replace %s by %s", s.Pool, modelWords(s.From), modelWords(s.To))
	if s.Action == summary.StepSize {
		words = fmt.Sprintf("in %s, set requests by use and replace %s by %s", s.Pool, modelWords(s.From), modelWords(s.To))
	}
	if s.Action == summary.StepSplit {
		words += fmt.Sprintf(" and split %s", document.Plural(s.PodsSplit, "pod"))
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

func todayFigures(t summary.Today) []document.KeyFigure {
	figures := []document.KeyFigure{
		{Value: t.Now.String() + " $/h", Label: "you pay", Detail: monthly(t.Now)},
		{Value: costChange(t.Packed, t.Now), Label: "whole pods, packed", Detail: monthly(t.Packed), Series: "whole"},
		{Value: costChange(t.Split, t.Now), Label: "with splitting as well", Detail: monthly(t.Split), Series: "best"},
	}
	if s := t.Sized; s != nil {
		figures = append(figures, document.KeyFigure{Value: costChange(s.Split, t.Now), Label: "with requests by use as well", Detail: monthly(s.Split)})
	}
	return figures
}

func todayWarnings(t summary.Today) []string {
	var warnings []string
	for _, r := range t.Rules {
		if r.How == "NOT HONOURED" {
			warnings = append(warnings, fmt.Sprintf("Not honoured: %s, of %s.", r.What, document.Plural(r.Pods, "pod")))
		}
	}
	for _, s := range t.Stay {
		if s.Unpriced > 0 {
			warnings = append(warnings, fmt.Sprintf("Without a price, and in no sum: %s (%s).", document.Plural(s.Unpriced, "node"), s.Why))
		}
	}
	for _, p := range t.Pools {
		if p.Stays != "" {
			warnings = append(warnings, fmt.Sprintf("Pool %s stays as it is and has no bound: %s.", p.Name, p.Stays))
		}
	}
	if t.Waiting > 0 {
		warnings = append(warnings, fmt.Sprintf("Not planned: %s without a node.", document.Plural(t.Waiting, "pod")))
	}
	if t.Elsewhere > 0 {
		warnings = append(warnings, fmt.Sprintf("Not planned: %s on nodes that the dump lacks.", document.Plural(t.Elsewhere, "pod")))
	}
	return warnings
}

func poolTable(t summary.Today) document.Table {
	table := document.Table{ID: "pools", Title: "Cost of the pools, $/h"}
	names := []string{"pay now", "packed", "split"}
	if t.Sized != nil {
		names = append(names, "by use")
	}
	for _, name := range append(names, "bound", "pods") {
		table.Columns = append(table.Columns, document.Column{Name: name, Numeric: true})
	}
	table.Columns = append(table.Columns, document.Column{Name: "pool"})
	add := func(now, packed, split, sized summary.Dollars, bound, pods, name string) {
		row := document.TextRow(now.String(), packed.String(), split.String())
		if t.Sized != nil {
			row = append(row, document.Cell{Text: sized.String()})
		}
		table.Rows = append(table.Rows, append(row, document.TextRow(bound, pods, name)...))
	}
	for _, p := range t.Pools {
		bound := p.Final().Bound.String()
		if unbounded(p) {
			bound = "none"
		}
		add(p.Now, p.Packed, p.Split, p.Final().Split, bound, fmt.Sprint(p.Pods), p.Name)
	}
	var stays summary.Dollars
	for _, s := range t.Stay {
		stays += s.Cost
	}
	if len(t.Stay) > 0 {
		add(stays, stays, stays, stays, stays.String(), "", "nodes that stay")
	}
	_, sized, bound, _ := t.Could()
	add(t.Now, t.Packed, t.Split, sized, bound.String(), "", "all")
	table.Sums = 1
	table.Notes = []string{fmt.Sprintf("Catalogues: %s. Prices: %s. Reserved for the kubelet on models that the cluster does not have: %s.",
		strings.Join(t.Catalogues, ", "), strings.Join(slices.Concat(t.Prices, noPrices(t)), ", "), t.Reserved)}
	for _, p := range t.Pools {
		table.Notes = append(table.Notes, fmt.Sprintf("On every VM of %s: %s.", p.Name, p.PerVM))
	}
	if t.Largest {
		table.Notes = append(table.Notes, "No VM is larger than the largest of today. --catalogue allows others.")
	}
	return table
}

func noPrices(t summary.Today) []string {
	if len(t.Prices) == 0 {
		return []string{"as given"}
	}
	return nil
}

func stepTable(t summary.Today) document.Table {
	table := document.Table{ID: "steps", Title: "What to do, the largest saving for each moved pod first; rounds of evictions that disruption budgets demand at least", Columns: []document.Column{{Name: "step", Header: true}, {Name: "saves, $/h", Numeric: true}, {Name: "moves pods", Numeric: true}, {Name: "rounds", Numeric: true}, {Name: "then $/h", Numeric: true}, {Name: "action"}, {Name: "forbidden today by"}}}
	for i, s := range t.Steps {
		rounds := "any"
		if s.Rounds > 0 {
			rounds = fmt.Sprint(s.Rounds)
		}
		table.Rows = append(table.Rows, document.TextRow(fmt.Sprint(i+1), s.Saves.String(), fmt.Sprint(s.Moves), rounds, s.Cost.String(), stepWords(s), strings.Join(s.Blocked, ", ")))
	}
	return table
}

func stayTable(t summary.Today) document.Table {
	table := document.Table{ID: "stay", Title: "Nodes that stay as they are", Columns: []document.Column{{Name: "nodes", Numeric: true}, {Name: "pods", Numeric: true}, {Name: "$/h", Numeric: true}, {Name: "without a price", Numeric: true}, {Name: "why"}}}
	for _, s := range t.Stay {
		table.Rows = append(table.Rows, document.TextRow(fmt.Sprint(s.Nodes), fmt.Sprint(s.Pods), s.Cost.String(), fmt.Sprint(s.Unpriced), s.Why))
	}
	return table
}

func ruleTable(t summary.Today) document.Table {
	table := document.Table{ID: "rules", Title: "Rules about the places of pods", Columns: []document.Column{{Name: "pods", Numeric: true}, {Name: "honoured"}, {Name: "rule"}}}
	for _, r := range t.Rules {
		table.Rows = append(table.Rows, document.TextRow(fmt.Sprint(r.Pods), r.How, r.What))
	}
	return table
}
