// Package plans builds the reports of what pods cost on VMs. Costs belong to package summary.
package plans

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
)

// schemes says what each way of planning does, and gives it a colour.
var schemes = map[string]struct {
	slot    int
	meaning string
}{
	"kubernetes": {0, "pods stay whole"},
	"resize":     {7, "kubernetes with smaller VMs where the pods fit"},
	"hostlo":     {2, "kubernetes, then containers move and VMs shrink"},
	"spread":     {3, "hostlo, and a pod may get several new VMs"},
	"whole":      {4, "best packing found of whole pods"},
	"best":       {1, "best packing found of containers"},
	"bound":      {6, "no plan can cost less"},
	"today":      {5, "the nodes of the pools as they are"},
	"shared":     {3, "a pod that fits on no VM is split; containers never move"},
	"moved":      {2, "shared, and containers move so that VMs become empty"},
}

// schemeCell names a scheme.
func schemeCell(name string) document.Cell { return document.Cell{Text: name, Series: name} }

// schemeSeries are the colours of the named schemes.
func schemeSeries(names []string) []document.Series {
	var all []document.Series
	for _, name := range names {
		all = append(all, document.Series{Name: name, Slot: schemes[name].slot})
	}
	return all
}

// Version is the version of the JSON of a plan. Keys are added without a new version; it changes
// when one is removed or gets another meaning.
const Version = 1

// Plan reports what the pods of a trace cost on VMs under each scheme (Bacou et al.
// 2019, §5.3.1).
func Plan(c summary.Plan) document.Document {
	doc := document.Document{
		Command: "plan", Title: "What pods cost on VMs, whole and split", SchemaVersion: Version, Data: c, Records: planRecords(c),
		Description: "The cost of the VMs of a cluster for an hour, when pods stay whole as Kubernetes places them and when the containers of a pod may run on several VMs.",
		Series:      schemeSeries(append(slices.Clone(summary.Schemes), "bound")), Headlines: planHeadlines(c), Warnings: planWarnings(c.LeftOut, c.Settings, c.Traces),
		Groups: []document.Group{costGroup(c), savingGroup(c)}, Provenance: document.ProvenanceTable(settingFacts(c.Settings, c.Shard, c.Traces)),
		Methods: planMethods,
	}
	if c.Unplanned > 0 && c.Today == nil { // pools without pods are in a table
		doc.Warnings = append(doc.Warnings, fmt.Sprintf("Not counted: %s without any pod that fits on a VM.", document.Plural(c.Unplanned, "user")))
	}
	if c.Users > 0 {
		doc.Figures = planFigures(c)
	}
	doc.Groups = append(doc.Groups, inputGroup(c.Settings, c.Traces))
	if c.Today != nil {
		putToday(&doc, c)
	} else {
		doc.AnswerFirst(1)
	}
	if c.Use != nil {
		putUse(&doc, c)
	}
	return doc
}

var planMethods = []document.Method{
	{Term: "plan", Text: "Each user's pods are planned on VMs of the user's own. kubernetes and hostlo follow Bacou et al., ICPP 2019, §5.3.1; the other schemes are ours."},
	{Term: "bound", Text: "A lower bound: no plan can cost less. Where best costs the bound, best is proved optimal."},
	{Term: "saving", Text: "The cost of kubernetes less the cost of the scheme. A user whom a scheme costs more does not count as saving."},
}

func planHeadlines(c summary.Plan) []string {
	lines := []string{userWords(c.Users, c.Pods, c.Containers)}
	if c.Users == 0 {
		return lines
	}
	return append(lines,
		fmt.Sprintf("hostlo costs %s $/h, kubernetes %s $/h (%s). %d of %s (%s) save.", c.Cost.Hostlo, c.Cost.Kubernetes,
			costChange(c.Cost.Hostlo, c.Cost.Kubernetes), c.Saving, document.Plural(c.Users, "user"), fraction(c.SavingShare)),
		fmt.Sprintf("best costs %s $/h (%s). It is %s above the bound, and proved optimal for %d of %s.", c.Cost.Best,
			costChange(c.Cost.Best, c.Cost.Kubernetes), fraction(c.Gap), c.Optimal, document.Plural(c.Users, "user")),
		fmt.Sprintf("hostlo splits %s over several VMs, best %d.", document.Plural(c.SplitHostlo, "pod"), c.SplitBest))
}

func planFigures(c summary.Plan) []document.KeyFigure {
	var figures []document.KeyFigure
	for _, scheme := range []string{"hostlo", "best"} {
		cost := *c.Cost.At(scheme)
		figures = append(figures, document.KeyFigure{
			Value: costChange(cost, c.Cost.Kubernetes), Label: scheme + " against kubernetes", Series: scheme,
			Detail: fmt.Sprintf("%s instead of %s $/h", cost, c.Cost.Kubernetes),
		})
	}
	s := c.Savings.Hostlo
	return append(figures,
		document.KeyFigure{Value: fraction(c.SavingShare), Label: "users who save with hostlo", Detail: fmt.Sprintf("%d of %s; %d save more than 5 %%", s.Users, document.Plural(c.Users, "user"), s.Over5), Series: "hostlo"},
		document.KeyFigure{Value: fraction(s.MaxRelative.Relative), Label: "largest saving of a user", Detail: "with hostlo", Series: "hostlo"})
}

// planWarnings tell what the figures leave out.
func planWarnings(leftOut int, s summary.Settings, readings []summary.Reading) []string {
	var warnings []string
	if leftOut > 0 {
		warnings = append(warnings, fmt.Sprintf("Left out: %s too large for any VM (oversize: %s).", document.Plural(leftOut, "pod"), s.Oversize))
	}
	if archs := architectures(s.Catalogue); len(archs) > 1 && len(s.Catalogues) > 0 { // pools have one each
		warnings = append(warnings, fmt.Sprintf("The catalogue has models for %s. The plans assume that every image runs on all of them.", strings.Join(archs, " and ")))
	}
	for _, r := range readings {
		if r.Broken > 0 {
			warnings = append(warnings, fmt.Sprintf("%s of %s cannot be read: %s.", document.Plural(r.Broken, "row"), r.Format, strings.Join(r.Examples, "; ")))
		}
		warnings = append(warnings, r.Remarks...)
		if r.Unread > 0 {
			warnings = append(warnings, fmt.Sprintf("%s of %s not read: they begin after the period.", document.Plural(r.Unread, "file"), r.Format))
		}
	}
	return warnings
}

// architectures returns those of the models, sorted.
func architectures(models []summary.Model) (archs []string) {
	for _, m := range models {
		archs = append(archs, cmp.Or(m.Arch, "amd64"))
	}
	slices.Sort(archs)
	return slices.Compact(archs)
}

func costGroup(c summary.Plan) document.Group {
	g := document.Group{ID: "costs", Title: "Cost of all users for an hour"}
	t := document.Table{ID: "costs-table", Title: g.Title, Columns: []document.Column{
		{Name: "plan", Header: true}, {Name: "$/h", Numeric: true}, {Name: "vs kubernetes", Numeric: true}, {Name: "meaning"}}}
	chart := document.Chart{ID: "costs-chart", Kind: document.Totals, Title: g.Title, Axis: "$/h (lower is better)"}
	series := document.ChartSeries{Name: "cost"}
	add := func(name string, cost summary.Dollars) {
		t.Rows = append(t.Rows, []document.Cell{schemeCell(name), {Text: cost.String()}, {Text: costChange(cost, c.Cost.Kubernetes)}, {Text: schemes[name].meaning}})
		chart.Categories, chart.Slots = append(chart.Categories, name), append(chart.Slots, schemes[name].slot)
		series.Add(inDollars(cost), document.NoInterval)
	}
	if c.Today != nil {
		g.Title = "Cost of all pools for an hour"
		t.Title, chart.Title = g.Title, g.Title
		var now summary.Dollars
		for _, p := range c.Today.Pools {
			now += p.Now
		}
		add("today", now)
	}
	for _, scheme := range summary.Schemes {
		add(scheme, *c.Cost.At(scheme))
	}
	add("bound", c.Bound)
	chart.Series = []document.ChartSeries{series}
	chart.Describe(func(v document.Number) string { return document.Decimal(v, 3) + " $/h" })
	g.Tables, g.Charts = []document.Table{t}, []document.Chart{chart}
	return g
}

// inputGroup lists what was read and which VMs there are.
func inputGroup(s summary.Settings, readings []summary.Reading) document.Group {
	g := document.Group{ID: "input", Title: "Input"}
	for i, r := range readings {
		if r.Files == 0 {
			continue
		}
		t := document.Table{ID: fmt.Sprintf("input-%d", i+1), Columns: document.NumericColumns("rows", "count"),
			Title: fmt.Sprintf("Read %s, %s: %s, %s, %s", r.Format, document.Plural(r.Files, "file"), document.Plural(r.Users, "user"), document.Plural(r.Pods, "pod"), document.Plural(r.Containers, "container"))}
		add := func(what string, n int) { t.Rows = append(t.Rows, document.TextRow(what, fmt.Sprint(n))) }
		add("read", r.Rows)
		add("kept", r.Kept)
		for _, e := range r.Excluded {
			add("excluded: "+e.Why, e.Rows)
		}
		for _, n := range r.Notes {
			add("kept: "+n.Why, n.Rows)
		}
		if r.Broken > 0 {
			add("broken", r.Broken)
		}
		g.Tables = append(g.Tables, t)
	}
	models := document.Table{ID: "catalogue", Title: "VMs on sale", Minor: true, Columns: document.NumericColumns("model", "vCPU", "GiB", "$/h", "pods")}
	for _, m := range s.Catalogue {
		pods := "any"
		if m.Pods > 0 {
			pods = fmt.Sprint(m.Pods)
		}
		models.Rows = append(models.Rows, document.TextRow(m.Name, significant(m.VCPU), significant(m.GiB), m.Price.String(), pods))
	}
	g.Tables = append(g.Tables, models)
	return g
}

// settingFacts are the provenance of a plan; a value may be empty.
func settingFacts(s summary.Settings, shard *summary.Shard, readings []summary.Reading) []document.Fact {
	var formats []string
	for _, r := range readings {
		formats = append(formats, r.Format)
	}
	rounds, effort := "until nothing changes", "default"
	if s.Rounds > 0 {
		rounds = fmt.Sprint(s.Rounds)
	}
	if s.Effort > 0 {
		effort = fmt.Sprint(s.Effort)
	}
	fs := []document.Fact{{Name: "trace", Value: strings.Join(formats, ", ")}, {Name: "at", Value: s.At}, {Name: "owner", Value: s.Owner}, {Name: "oversize", Value: s.Oversize}, {Name: "moving", Value: s.Moving}, {Name: "emptying", Value: s.Emptying},
		{Name: "catalogue", Value: strings.Join(s.Catalogues, ", ")},
		{Name: "prices", Value: strings.Join(s.Prices, ", ")}, {Name: "price term", Value: s.Term}, {Name: "reserved for the kubelet", Value: s.KubeReserved}, {Name: "requested", Value: s.Requested}, {Name: "wasted", Value: s.Wasted}, {Name: "rounds", Value: rounds}, {Name: "effort", Value: effort}, {Name: "host", Value: s.Host}}
	if shard != nil {
		fs = append(fs, document.Fact{Name: "shard", Value: fmt.Sprintf("%d of %d", shard.Index, shard.Of)})
	}
	return fs
}

func planRecords(c summary.Plan) [][]string {
	records := [][]string{slices.Concat([]string{"user", "pods", "containers", "pods_left_out", "pods_split_hostlo", "pods_split_best"}, summary.Schemes, []string{"bound"})}
	for _, u := range c.PerUser {
		row := []string{u.Name, strconv.Itoa(u.Pods), strconv.Itoa(u.Containers), strconv.Itoa(u.LeftOut), strconv.Itoa(u.SplitHostlo), strconv.Itoa(u.SplitBest)}
		for _, scheme := range summary.Schemes {
			row = append(row, exactDollars(*u.Cost.At(scheme)))
		}
		records = append(records, append(row, exactDollars(u.Bound)))
	}
	return records
}
