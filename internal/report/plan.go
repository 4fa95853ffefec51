package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/plan/summary"
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
	"shared":     {3, "a pod that fits on no VM is split; containers never move"},
	"moved":      {2, "shared, and containers move so that VMs become empty"},
}

// schemeCell names a scheme.
func schemeCell(name string) Cell { return Cell{Text: name, Series: name} }

// schemeSeries are the colours of the named schemes.
func schemeSeries(names []string) []Series {
	var all []Series
	for _, name := range names {
		all = append(all, Series{Name: name, Slot: schemes[name].slot})
	}
	return all
}

// Plan reports what the pods of a trace cost on VMs under each scheme (Bacou et al.
// 2019, §5.3.1).
func Plan(c summary.Plan) Document {
	doc := Document{
		Command: "plan", Title: "What pods cost on VMs, whole and split", Data: c, Records: planRecords(c),
		Description: "The cost of the VMs of a cluster for an hour, when pods stay whole as Kubernetes places them and when the containers of a pod may run on several VMs.",
		Series:      schemeSeries(append(slices.Clone(summary.Schemes), "bound")), Headlines: planHeadlines(c), Warnings: planWarnings(c.LeftOut, c.Settings, c.Traces),
		Groups: []Group{costGroup(c), savingGroup(c)}, Provenance: provenanceTable(settingFacts(c.Settings, c.Shard, c.Traces)),
		Methods: planMethods,
	}
	if c.Unplanned > 0 {
		doc.Warnings = append(doc.Warnings, fmt.Sprintf("Not counted: %s without any pod that fits on a VM.", plural(c.Unplanned, "user")))
	}
	if c.Users > 0 {
		doc.Figures = planFigures(c)
	}
	doc.Groups = append(doc.Groups, inputGroup(c.Settings, c.Traces))
	if c.Today != nil {
		doc.putToday(c)
	} else {
		doc.answerFirst(1)
	}
	if c.Use != nil {
		doc.putUse(c)
	}
	return doc
}

var planMethods = []Method{
	{"plan", "Each user's pods are planned on VMs of the user's own. kubernetes and hostlo follow Bacou et al., ICPP 2019, §5.3.1; the other schemes are ours."},
	{"bound", "A lower bound: no plan can cost less. Where best costs the bound, best is proved optimal."},
	{"saving", "The cost of kubernetes less the cost of the scheme. A user whom a scheme costs more does not count as saving."},
}

func planHeadlines(c summary.Plan) []string {
	lines := []string{userWords(c.Users, c.Pods, c.Containers)}
	if c.Users == 0 {
		return lines
	}
	return append(lines,
		fmt.Sprintf("hostlo costs %s $/h, kubernetes %s $/h (%s). %d of %s (%s) save.", c.Cost.Hostlo, c.Cost.Kubernetes,
			costChange(c.Cost.Hostlo, c.Cost.Kubernetes), c.Saving, plural(c.Users, "user"), fraction(c.SavingShare)),
		fmt.Sprintf("best costs %s $/h (%s). It is %s above the bound, and proved optimal for %d of %s.", c.Cost.Best,
			costChange(c.Cost.Best, c.Cost.Kubernetes), fraction(c.Gap), c.Optimal, plural(c.Users, "user")),
		fmt.Sprintf("hostlo splits %s over several VMs, best %d.", plural(c.SplitHostlo, "pod"), c.SplitBest))
}

func planFigures(c summary.Plan) []KeyFigure {
	var figures []KeyFigure
	for _, scheme := range []string{"hostlo", "best"} {
		cost := *c.Cost.At(scheme)
		figures = append(figures, KeyFigure{
			Value: costChange(cost, c.Cost.Kubernetes), Label: scheme + " against kubernetes", Series: scheme,
			Detail: fmt.Sprintf("%s instead of %s $/h", cost, c.Cost.Kubernetes),
		})
	}
	s := c.Savings.Hostlo
	return append(figures,
		KeyFigure{Value: fraction(c.SavingShare), Label: "users who save with hostlo", Detail: fmt.Sprintf("%d of %s; %d save more than 5 %%", s.Users, plural(c.Users, "user"), s.Over5), Series: "hostlo"},
		KeyFigure{Value: fraction(s.MaxRelative.Relative), Label: "largest saving of a user", Detail: "with hostlo", Series: "hostlo"})
}

// planWarnings tell what the figures leave out.
func planWarnings(leftOut int, s summary.Settings, readings []summary.Reading) []string {
	var warnings []string
	if leftOut > 0 {
		warnings = append(warnings, fmt.Sprintf("Left out: %s too large for any VM (oversize: %s).", plural(leftOut, "pod"), s.Oversize))
	}
	if archs := architectures(s.Catalogue); len(archs) > 1 && len(s.Catalogues) > 0 { // pools have one each
		warnings = append(warnings, fmt.Sprintf("The catalogue has models for %s. The plans assume that every image runs on all of them.", strings.Join(archs, " and ")))
	}
	for _, r := range readings {
		if r.Broken > 0 {
			warnings = append(warnings, fmt.Sprintf("%s of %s cannot be read: %s.", plural(r.Broken, "row"), r.Format, strings.Join(r.Examples, "; ")))
		}
		warnings = append(warnings, r.Remarks...)
		if r.Unread > 0 {
			warnings = append(warnings, fmt.Sprintf("%s of %s not read: they begin after the period.", plural(r.Unread, "file"), r.Format))
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

func costGroup(c summary.Plan) Group {
	g := Group{ID: "costs", Title: "Cost of all users for an hour"}
	t := Table{ID: "costs-table", Title: g.Title, Columns: []Column{
		{Name: "plan", Header: true}, {Name: "$/h", Numeric: true}, {Name: "vs kubernetes", Numeric: true}, {Name: "meaning"}}}
	chart := Chart{ID: "costs-chart", Kind: Totals, Title: g.Title, Axis: "$/h (lower is better)"}
	series := ChartSeries{Name: "cost"}
	add := func(name string, cost summary.Dollars) {
		t.Rows = append(t.Rows, []Cell{schemeCell(name), {Text: cost.String()}, {Text: costChange(cost, c.Cost.Kubernetes)}, {Text: schemes[name].meaning}})
		chart.Categories, chart.Slots = append(chart.Categories, name), append(chart.Slots, schemes[name].slot)
		series.add(inDollars(cost), Interval{Low: missing, High: missing})
	}
	for _, scheme := range summary.Schemes {
		add(scheme, *c.Cost.At(scheme))
	}
	add("bound", c.Bound)
	chart.Series = []ChartSeries{series}
	chart.Words = describe(chart, func(v Number) string { return decimal(v, 3) + " $/h" })
	g.Tables, g.Charts = []Table{t}, []Chart{chart}
	return g
}

// inputGroup lists what was read and which VMs there are.
func inputGroup(s summary.Settings, readings []summary.Reading) Group {
	g := Group{ID: "input", Title: "Input"}
	for i, r := range readings {
		if r.Files == 0 {
			continue
		}
		t := Table{ID: fmt.Sprintf("input-%d", i+1), Columns: numericColumns("rows", "count"),
			Title: fmt.Sprintf("Read %s, %s: %s, %s, %s", r.Format, plural(r.Files, "file"), plural(r.Users, "user"), plural(r.Pods, "pod"), plural(r.Containers, "container"))}
		add := func(what string, n int) { t.Rows = append(t.Rows, textRow(what, fmt.Sprint(n))) }
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
	models := Table{ID: "catalogue", Title: "VMs on sale", Minor: true, Columns: numericColumns("model", "vCPU", "GiB", "$/h", "pods")}
	for _, m := range s.Catalogue {
		pods := "any"
		if m.Pods > 0 {
			pods = fmt.Sprint(m.Pods)
		}
		models.Rows = append(models.Rows, textRow(m.Name, significant(m.VCPU), significant(m.GiB), m.Price.String(), pods))
	}
	g.Tables = append(g.Tables, models)
	return g
}

// settingFacts are the provenance of a plan; a value may be empty.
func settingFacts(s summary.Settings, shard *summary.Shard, readings []summary.Reading) []fact {
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
	fs := []fact{{"trace", strings.Join(formats, ", ")}, {"at", s.At}, {"owner", s.Owner}, {"oversize", s.Oversize}, {"moving", s.Moving}, {"emptying", s.Emptying},
		{"catalogue", strings.Join(s.Catalogues, ", ")},
		{"prices", strings.Join(s.Prices, ", ")}, {"price term", s.Term}, {"reserved for the kubelet", s.KubeReserved}, {"requested", s.Requested}, {"wasted", s.Wasted}, {"rounds", rounds}, {"effort", effort}, {"host", s.Host}}
	if shard != nil {
		fs = append(fs, fact{"shard", fmt.Sprintf("%d of %d", shard.Index, shard.Of)})
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
