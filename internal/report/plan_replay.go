package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"unnest/internal/plan/summary"
)

// Replay reports what VMs cost while pods come and go.
func Replay(r summary.Replay) Document {
	doc := Document{
		Command: "plan", Title: "What VMs cost while pods come and go", Data: r, Series: schemeSeries(summary.Courses),
		Headlines: []string{
			fmt.Sprintf("%s, %s of pods with %s, from %s to %s of the trace.", plural(r.Users, "user"), plural(r.Stays, "stay"), plural(r.Containers, "container"), duration(r.From), duration(r.To)),
			fmt.Sprintf("VMs are billed by the second, for at least %s. At most %s move at an event.", duration(r.Minimum), plural(r.Migrations, "container")),
		},
		Warnings: planWarnings(0, r.Settings, r.Traces), Provenance: provenanceTable(settingFacts(r.Settings, nil, r.Traces)),
		Methods: []Method{{"stay", "The time from the arrival of a pod to its departure, or to the end of the period."}},
		Records: [][]string{{"user", "stays", "containers", "plan", "cost", "vms_bought", "containers_migrated"}},
	}
	if r.LeftOut > 0 {
		doc.Warnings = append(doc.Warnings, fmt.Sprintf("Left out: %s of a pod too large for any VM (oversize: %s).", plural(r.LeftOut, "stay"), r.Settings.Oversize))
	}
	t := Table{ID: "costs", Title: "Cost of all users", Columns: append(numericColumns("plan", "$", "vs kubernetes", "$/h, mean", "VMs bought", "moved"), Column{Name: "meaning"})}
	chart := Chart{ID: "rates", Kind: Lines, Title: "Price of all VMs over time", XAxis: "hours", Axis: "$/h (lower is better)"}
	for _, c := range r.Plans {
		row := textRow(c.Plan, c.Cost.String(), costChange(c.Cost, r.Plans[0].Cost), r.Mean(c).String(), fmt.Sprint(c.Bought), fmt.Sprint(c.Migrated), schemes[c.Plan].meaning)
		row[0] = schemeCell(c.Plan)
		t.Rows = append(t.Rows, row)
		series := ChartSeries{Name: c.Plan, Slot: schemes[c.Plan].slot}
		for i, rate := range c.Rates {
			series.point((r.From+(r.To-r.From)*float64(i)/float64(len(c.Rates)-1))/3600, float64(inDollars(rate)))
		}
		chart.Series = append(chart.Series, series)
	}
	chart.Words = chart.Title + ": the table has the means."
	doc.Groups = []Group{{ID: "cost", Title: t.Title, Tables: []Table{t}, Charts: []Chart{chart}}}
	doc.Groups[0].add(replaySavers(r))
	for _, u := range r.PerUser {
		for _, c := range u.Plans {
			doc.Records = append(doc.Records, []string{u.User, strconv.Itoa(u.Stays), strconv.Itoa(u.Containers), c.Plan, exactDollars(c.Cost), strconv.Itoa(c.Bought), strconv.Itoa(c.Migrated)})
		}
	}
	doc.Groups = append(doc.Groups, inputGroup(r.Settings, r.Traces))
	return doc
}

func replaySavers(r summary.Replay) Table {
	t := Table{ID: "largest", Title: "Largest savings, $", Columns: numericColumns("user", slices.Concat(summary.Courses, []string{"part", "stays"})...)}
	for _, u := range largestSavings(r.PerUser) {
		row := textRow(u.User)
		for _, c := range u.Plans {
			row = append(row, Cell{Text: c.Cost.String()})
		}
		t.Rows = append(t.Rows, append(row, textRow(fraction(summary.Ratio(u.Saved(), u.Plans[0].Cost)), fmt.Sprint(u.Stays))...))
	}
	return t
}

// largestSavings returns the users who save most, the largest saving first.
func largestSavings[U interface{ Saved() summary.Dollars }](users []U) []U {
	savers := slices.DeleteFunc(slices.Clone(users), func(u U) bool { return u.Saved() <= 0 })
	slices.SortStableFunc(savers, func(a, b U) int { return cmp.Compare(b.Saved(), a.Saved()) })
	return savers[:min(len(savers), summary.MostListed)]
}
