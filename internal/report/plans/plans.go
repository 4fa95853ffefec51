// Package plans builds the reports of what pods cost on VMs. Costs belong to package summary.
package plans

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/plan/cluster"
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

// Replay reports what VMs cost while pods come and go.
func Replay(r summary.Replay) document.Document {
	doc := document.Document{
		Command: "plan", Title: "What VMs cost while pods come and go", SchemaVersion: Version, Data: r, Series: schemeSeries(summary.Courses),
		Headlines: []string{
			fmt.Sprintf("%s, %s of pods with %s, from %s to %s of the trace.", document.Plural(r.Users, "user"), document.Plural(r.Stays, "stay"), document.Plural(r.Containers, "container"), duration(r.From), duration(r.To)),
			fmt.Sprintf("VMs are billed by the second, for at least %s. At most %s move at an event.", duration(r.Minimum), document.Plural(r.Migrations, "container")),
		},
		Warnings: planWarnings(0, r.Settings, r.Traces), Provenance: document.ProvenanceTable(settingFacts(r.Settings, nil, r.Traces)),
		Methods: []document.Method{{Term: "stay", Text: "The time from the arrival of a pod to its departure, or to the end of the period."}},
		Records: [][]string{{"user", "stays", "containers", "plan", "cost", "vms_bought", "containers_migrated"}},
	}
	if r.LeftOut > 0 {
		doc.Warnings = append(doc.Warnings, fmt.Sprintf("Left out: %s of a pod too large for any VM (oversize: %s).", document.Plural(r.LeftOut, "stay"), r.Settings.Oversize))
	}
	t := document.Table{ID: "costs", Title: "Cost of all users", Columns: append(document.NumericColumns("plan", "$", "vs kubernetes", "$/h, mean", "VMs bought", "moved"), document.Column{Name: "meaning"})}
	chart := document.Chart{ID: "rates", Kind: document.Lines, Title: "Price of all VMs over time", XAxis: "hours", Axis: "$/h (lower is better)"}
	for _, c := range r.Plans {
		row := document.TextRow(c.Plan, c.Cost.String(), costChange(c.Cost, r.Plans[0].Cost), r.Mean(c).String(), fmt.Sprint(c.Bought), fmt.Sprint(c.Migrated), schemes[c.Plan].meaning)
		row[0] = schemeCell(c.Plan)
		t.Rows = append(t.Rows, row)
		series := document.ChartSeries{Name: c.Plan, Slot: schemes[c.Plan].slot}
		for i, rate := range c.Rates {
			series.Point((r.From+(r.To-r.From)*float64(i)/float64(len(c.Rates)-1))/3600, float64(inDollars(rate)))
		}
		chart.Series = append(chart.Series, series)
	}
	chart.Words = chart.Title + ": the table has the means."
	doc.Groups = []document.Group{{ID: "cost", Title: t.Title, Tables: []document.Table{t}, Charts: []document.Chart{chart}}}
	doc.Groups[0].Add(replaySavers(r))
	for _, u := range r.PerUser {
		for _, c := range u.Plans {
			doc.Records = append(doc.Records, []string{u.User, strconv.Itoa(u.Stays), strconv.Itoa(u.Containers), c.Plan, exactDollars(c.Cost), strconv.Itoa(c.Bought), strconv.Itoa(c.Migrated)})
		}
	}
	doc.Groups = append(doc.Groups, inputGroup(r.Settings, r.Traces))
	return doc
}

func replaySavers(r summary.Replay) document.Table {
	t := document.Table{ID: "largest", Title: "Largest savings, $", Columns: document.NumericColumns("user", slices.Concat(summary.Courses, []string{"part", "stays"})...)}
	for _, u := range largestSavings(r.PerUser) {
		row := document.TextRow(u.User)
		for _, c := range u.Plans {
			row = append(row, document.Cell{Text: c.Cost.String()})
		}
		t.Rows = append(t.Rows, append(row, document.TextRow(fraction(summary.Ratio(u.Saved(), u.Plans[0].Cost)), fmt.Sprint(u.Stays))...))
	}
	return t
}

// largestSavings returns the users who save most, the largest saving first.
func largestSavings[U interface{ Saved() summary.Dollars }](users []U) []U {
	savers := slices.DeleteFunc(slices.Clone(users), func(u U) bool { return u.Saved() <= 0 })
	slices.SortStableFunc(savers, func(a, b U) int { return cmp.Compare(b.Saved(), a.Saved()) })
	return savers[:min(len(savers), summary.MostListed)]
}

// userWords says how much was planned.
func userWords(users, pods, containers int) string {
	return fmt.Sprintf("%s, %s, %s. Each user has VMs of their own.", document.Plural(users, "user"), document.Plural(pods, "pod"), document.Plural(containers, "container"))
}

// costChange is how much a cost is above or below another.
func costChange(cost, of summary.Dollars) string {
	if of == 0 || cost == of {
		return "0 %"
	}
	return fmt.Sprintf("%+.2f %%", 100*summary.Ratio(cost-of, of))
}

// fraction prints a fraction as a percentage with two decimals.
func fraction(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) }

// significant prints x with four digits.
func significant(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

func inDollars(d summary.Dollars) document.Number { return document.Number(d) / cluster.Dollar }

// exactDollars prints a cost with all its decimals.
func exactDollars(d summary.Dollars) string {
	text, _ := d.MarshalJSON() // never fails
	return string(text)
}

// duration prints seconds as "1h30m0s".
func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
