package plans

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
)

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
