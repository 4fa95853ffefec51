package plans

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
)

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
