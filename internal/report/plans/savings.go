package plans

import (
	"fmt"
	"slices"

	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
)

// savingGroup says who saves how much, as Bacou et al. 2019, Fig. 9.
func savingGroup(c summary.Plan) document.Group {
	g := document.Group{ID: "savings", Title: "Users who save against kubernetes"}
	if c.Saving+c.Savings.Best.Users > 0 {
		g.Charts = []document.Chart{savingHistogram(c), savingCurve(c)}
	}
	g.Tables = []document.Table{savingTable(c), distributionOfSavings(c)}
	t := document.Table{ID: "largest", Title: "Largest savings with hostlo, $/h", Columns: document.NumericColumns("user", "kubernetes", "hostlo", "saved", "part", "best", "pods split")}
	for _, u := range c.Largest {
		t.Rows = append(t.Rows, document.TextRow(u.Name, u.Cost.Kubernetes.String(), u.Cost.Hostlo.String(), u.Saved("hostlo").String(),
			fraction(u.Part("hostlo")), u.Cost.Best.String(), fmt.Sprintf("%d of %d", u.SplitHostlo, u.Pods)))
	}
	g.Add(t, largestByPlan(c))
	return g
}

// shownLargest is how many users are listed for each plan but hostlo. JSON has more.
const shownLargest = 5

// largestByPlan lists who saves most with the plans that have no table of their own.
func largestByPlan(c summary.Plan) document.Table {
	t := document.Table{ID: "largest-by-plan", Title: "Largest savings with the other plans, $/h", Columns: document.NumericColumns("plan", "saved", "part")}
	t.Columns = append(t.Columns, document.Column{Name: "user"})
	for _, scheme := range summary.Savers[1:] {
		all := c.Savings.At(scheme).Largest
		for _, most := range all[:min(len(all), shownLargest)] {
			row := document.TextRow(scheme, most.Saved.String(), fraction(most.Relative), most.User)
			row[0] = schemeCell(scheme)
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func savingTable(c summary.Plan) document.Table {
	t := document.Table{ID: "savers", Title: "Users who save against kubernetes", Columns: document.NumericColumns("plan", "users", "of all", "more than 5 %", "largest part", "largest sum, $/h")}
	for _, scheme := range summary.Savers {
		s := c.Savings.At(scheme)
		row := document.TextRow(scheme, fmt.Sprint(s.Users), fraction(summary.Ratio(s.Users, c.Users)), fmt.Sprintf("%d (%s)", s.Over5, fraction(s.Over5Share)),
			fraction(s.MaxRelative.Relative), fmt.Sprintf("%s (%s)", s.MaxAbsolute.Saved, fraction(s.MaxAbsolute.Relative)))
		row[0] = schemeCell(scheme)
		t.Rows = append(t.Rows, row)
	}
	return t
}

func distributionOfSavings(c summary.Plan) document.Table {
	t := document.Table{ID: "distribution", Title: "Users by the part of their cost that they save", Columns: document.NumericColumns("saved", summary.Savers...)}
	for i := range lastBin(c) + 1 {
		row := document.TextRow(binName(c.Savings.Hostlo.Distribution[i]))
		for _, scheme := range summary.Savers {
			row = append(row, document.Cell{Text: fmt.Sprint(c.Savings.At(scheme).Distribution[i].Users)})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// lastBin returns the last bin that counts a user.
func lastBin(c summary.Plan) int {
	last := 1
	for _, scheme := range summary.Savers {
		for i, b := range c.Savings.At(scheme).Distribution {
			if b.Users > 0 {
				last = max(last, i)
			}
		}
	}
	return last
}

func binName(b summary.Bin) string {
	if b.To == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%.0f-%.0f %%", 100*b.From, 100*b.To)
}

// drawnSchemes are the schemes in the charts of savings.
var drawnSchemes = []string{"hostlo", "best"}

// savingHistogram counts users by saving. Users who save nothing are only in the table,
// because their bar would dwarf the others.
func savingHistogram(c summary.Plan) document.Chart {
	chart := document.Chart{ID: "histogram", Kind: document.Totals, Title: "Users by the part of their cost that they save", Axis: "users"}
	for _, scheme := range drawnSchemes {
		series := document.ChartSeries{Name: scheme, Slot: schemes[scheme].slot}
		for _, b := range c.Savings.At(scheme).Distribution[1 : lastBin(c)+1] {
			series.Add(document.Number(b.Users), document.NoInterval)
		}
		chart.Series = append(chart.Series, series)
	}
	for _, b := range c.Savings.Hostlo.Distribution[1 : lastBin(c)+1] {
		chart.Categories = append(chart.Categories, binName(b))
	}
	chart.Describe(func(v document.Number) string { return document.Decimal(v, 0) })
	return chart
}

// savingCurve draws the share of users who save at least x.
func savingCurve(c summary.Plan) document.Chart {
	chart := document.Chart{ID: "curve", Kind: document.Lines, Title: "Share of users who save at least so much", XAxis: "part of the cost, %", Axis: "users, %"}
	for _, scheme := range drawnSchemes {
		var parts []float64
		for _, u := range c.PerUser {
			if u.Saved(scheme) > 0 {
				parts = append(parts, u.Part(scheme))
			}
		}
		slices.Sort(parts)
		series := document.ChartSeries{Name: scheme, Slot: schemes[scheme].slot}
		series.Point(0, 100*summary.Ratio(len(parts), c.Users))
		for i, part := range parts {
			series.Point(100*part, 100*summary.Ratio(len(parts)-i, c.Users))
			series.Point(100*part, 100*summary.Ratio(len(parts)-i-1, c.Users))
		}
		chart.Series = append(chart.Series, series)
	}
	chart.Words = chart.Title + ": see the table of users by saving."
	return chart
}
