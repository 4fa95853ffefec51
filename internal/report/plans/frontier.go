package plans

import (
	"cmp"
	"fmt"
	"strconv"

	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
)

// Frontier reports what VMs cost against how much traffic between the containers of a
// pod goes from VM to VM.
func Frontier(f summary.Frontier) document.Document {
	doc := document.Document{
		Command: "plan", Title: "What VMs cost against what is cut", SchemaVersion: Version, Data: f, Records: frontierRecords(f),
		Description: "Links join the containers of a pod that exchange traffic. A link between containers on different VMs is cut: its traffic goes through Hostlo.",
		Headlines: []string{
			userWords(f.Users, f.Pods, f.Containers),
			"Links: " + linkWords(f.Links) + ".",
		},
		Warnings: planWarnings(f.LeftOut, f.Settings, f.Traces), Provenance: document.ProvenanceTable(settingFacts(f.Settings, nil, f.Traces)),
		Methods: []document.Method{{Term: "worth it up to", Text: "The price of a unit of weight, in $/h, up to which the last link that is cut saves more than it costs."}},
	}
	last := f.Total[len(f.Total)-1]
	g := document.Group{ID: "frontier", Title: "Cost of all users against the weight that is cut"}
	t := document.Table{ID: "frontier-table", Title: "Cost of all users for an hour", Columns: document.NumericColumns("worth it up to", "$/h", "vs nothing cut", "cut", "users who cut")}
	for _, p := range shownPoints(f) {
		price := "nothing cut"
		if p.Users > 0 {
			price = significant(p.Price)
		}
		t.Rows = append(t.Rows, document.TextRow(price, p.Cost.String(), costChange(p.Cost, f.Whole), significant(p.Cut), fmt.Sprint(p.Users)))
	}
	t.Notes = []string{"Worth it up to: the price of a unit of weight, in $/h, up to which the last link that is cut saves more than it costs."}
	g.Tables = []document.Table{t}
	if len(f.Total) > 1 {
		chart := document.Chart{ID: "frontier-chart", Kind: document.Lines, Title: g.Title, XAxis: "weight that is cut", Axis: "cost, % of nothing cut"}
		series := document.ChartSeries{Name: "all users", Slot: schemes["best"].slot}
		for _, p := range f.Total {
			series.Point(p.Cut, 100*summary.Ratio(p.Cost, f.Whole))
		}
		chart.Series, chart.Words = []document.ChartSeries{series}, chart.Title+": the table has some of the points."
		g.Charts = []document.Chart{chart}
		doc.Headlines = append(doc.Headlines, fmt.Sprintf("The cheapest plans cost %s $/h (%s), and cut a weight of %s.", last.Cost, costChange(last.Cost, f.Whole), significant(last.Cut)))
	}
	doc.Groups = []document.Group{g}
	if f.Price != nil {
		priced := pricedWords(f)
		doc.Groups = append(doc.Groups, priceGroup(*f.Price, priced))
		doc.Headlines = append(doc.Headlines, priced)
		for _, note := range f.Price.Latency.Notes {
			doc.Warnings = append(doc.Warnings, f.Price.Latency.Directory+": "+note)
		}
	}
	if t := frontierSavers(f); len(t.Rows) > 0 {
		doc.Groups = append(doc.Groups, document.Group{ID: "savers", Title: "Users who can save most", Tables: []document.Table{t}})
	}
	doc.Groups = append(doc.Groups, inputGroup(f.Settings, f.Traces))
	doc.AnswerFirst(2)
	return doc
}

// linkWords says where the links come from.
func linkWords(l summary.LinkUse) string {
	switch {
	case l.Pairs > 0:
		return fmt.Sprintf("every two containers of a pod, each of weight %s", significant(l.Pairs))
	case l.Rows > 0:
		return fmt.Sprintf("%s of %s; the pods of %d of them are not in the trace", document.Plural(l.Rows, "row"), l.From, l.Unused)
	}
	return "annotations of the pods"
}

// shownPoints returns about a dozen points: nothing cut, the first point of each tenth
// of the possible saving, and the last.
func shownPoints(f summary.Frontier) []summary.Point {
	last := f.Total[len(f.Total)-1]
	shown := f.Total[:1:1]
	tenth := summary.Dollars(1)
	for _, p := range f.Total[1:] {
		if p == last {
			break
		}
		if saved := f.Whole - p.Cost; 10*saved >= tenth*(f.Whole-last.Cost) {
			shown = append(shown, p)
			tenth = 10*saved/(f.Whole-last.Cost) + 1
		}
	}
	if len(f.Total) > 1 {
		shown = append(shown, last)
	}
	return shown
}

// priceGroup says how the price of a cut follows from measured latencies.
func priceGroup(p summary.CutPrice, priced string) document.Group {
	g := document.Group{ID: "price", Title: "What a cut costs"}
	of := "in " + document.Plural(len(p.Latency.Cases), "case")
	if len(p.Latency.Cases) > 1 {
		of += " (geometric mean)"
	}
	t := document.Table{ID: "price-table", Columns: document.NumericColumns("case", "SameNode", "Hostlo", "ratio", "95 % interval", "blocks"),
		Title: fmt.Sprintf("Latency measured in %s (run %s, %s, accelerator %s)", p.Latency.Directory, p.Latency.Run, p.Latency.State, cmp.Or(p.Latency.Accelerator, "unknown"))}
	for _, c := range p.Latency.Cases {
		interval := "too few blocks"
		if c.High > 0 {
			interval = fmt.Sprintf("%.2f-%.2f", c.Low, c.High)
		}
		t.Rows = append(t.Rows, document.TextRow(c.Case, significant(c.SameNode)+" "+c.Unit, significant(c.Hostlo)+" "+c.Unit, fmt.Sprintf("%.2f", c.Ratio), interval, fmt.Sprint(c.Blocks)))
	}
	t.Notes = []string{fmt.Sprintf("A message takes %.3f times as long through Hostlo as in SameNode, %s.", p.Latency.Ratio, of)}
	if p.Latency.Ratio <= 1 {
		t.Notes = append(t.Notes, "Hostlo is not slower, so a cut costs nothing.")
	} else {
		t.Notes = append(t.Notes, fmt.Sprintf("A link of weight 1 keeps %s vCPU busy or waiting within a VM, and %.3f times that when it is cut. A vCPU costs %s $/h, so a cut of weight 1 costs %s $/h.",
			significant(p.LinkCPU), p.Latency.Ratio, significant(float64(p.VCPU)/1e9), significant(p.Price)))
	}
	t.Notes = append(t.Notes, priced)
	g.Tables = []document.Table{t}
	return g
}

// pricedWords says what users pay when cuts have the price.
func pricedWords(f summary.Frontier) string {
	p := f.Priced
	return fmt.Sprintf("At %s $/h for a unit of weight, %s cut a weight of %s in %s: VMs cost %s $/h and cuts %s $/h, together %s against nothing cut.",
		significant(f.Price.Price), document.Plural(p.Users, "user"), significant(p.Cut), document.Plural(p.Split, "split pod"), p.Cost, p.Cuts, costChange(p.Cost+p.Cuts, f.Whole))
}

func frontierSavers(f summary.Frontier) document.Table {
	t := document.Table{ID: "savers-table", Title: "Users who can save most by cutting links, $/h", Columns: document.NumericColumns("user", "nothing cut", "cheapest", "saved", "cut", "pods split", "choices")}
	for _, u := range largestSavings(f.PerUser) {
		c := u.Choices[0]
		t.Rows = append(t.Rows, document.TextRow(u.User, u.Whole().Cost.String(), c.Cost.String(), u.Saved().String(), significant(c.Cut), fmt.Sprintf("%d of %d", c.Split, u.Pods), fmt.Sprint(len(u.Choices))))
	}
	return t
}

func frontierRecords(f summary.Frontier) [][]string {
	records := [][]string{{"user", "pods", "containers", "pods_left_out", "cost", "cut", "pods_split"}}
	for _, u := range f.PerUser {
		for _, c := range u.Choices {
			records = append(records, []string{u.User, strconv.Itoa(u.Pods), strconv.Itoa(u.Containers), strconv.Itoa(u.LeftOut), exactDollars(c.Cost), document.Exact(document.Number(c.Cut)), strconv.Itoa(c.Split)})
		}
	}
	return records
}
