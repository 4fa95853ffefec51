package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

//go:embed assets/report.html.tmpl
var pageSource string

//go:embed assets/report.css
var pageStyle string

//go:embed assets/report.js
var pageScript string

// chartLibrary is dist/echarts.min.js of Apache ECharts 6.1.0 as published on npm,
// unchanged: the smallest build with the custom series that draws intervals. Its
// licences are in the same directory.
//
//go:embed assets/echarts/echarts.min.js
var chartLibrary string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"glue":     glue,
	"join":     join,
	"page":     Table.forPage,
	"tone":     tone,
	"upright":  upright,
	"rowspan":  rowspan,
	"broad":    broad,
	"slim":     slim,
	"sum":      func(t Table, i int) bool { return i >= len(t.Rows)-t.Sums },
	"charts":   chartsOf,
	"lead":     leadChart,
	"count":    plural,
	"spentOn":  spentOn,
	"stations": Path.stations,
	"pictured": pictured,
	"added":    added,
	// Bound to the document by HTML.
	"slot": func(string) int { return 0 },
	"dir":  func() string { return "" },
}).Parse(pageSource))

// page is what the template sees.
type page struct {
	Document
	Style   template.CSS
	Library template.JS // empty when there are no charts
	Script  template.JS
	Data    map[string][]Chart
}

// HTML prints doc as one self-contained file. The charts need JavaScript; the tables
// hold the same values.
func HTML(w io.Writer, doc Document) error {
	p := page{Document: doc, Style: template.CSS(pageStyle), Script: template.JS(pageScript)}
	var charts []Chart
	for _, g := range doc.Groups {
		charts = append(charts, g.Charts...)
	}
	if len(charts) > 0 {
		p.Library, p.Data = template.JS(chartLibrary), map[string][]Chart{"charts": charts}
	}
	bound, err := pageTemplate.Clone()
	if err == nil {
		err = bound.Funcs(template.FuncMap{"slot": doc.slot, "dir": func() string { return doc.Dir }}).Execute(w, p)
	}
	if err != nil {
		return fmt.Errorf("print report as html: %w", err)
	}
	return nil
}

// slot returns the colour of a configuration.
func (d Document) slot(series string) int {
	i := slices.IndexFunc(d.Series, func(s Series) bool { return s.Name == series })
	if i < 0 {
		return 0
	}
	return d.Series[i].Slot
}

// rowspan returns how many rows the cell in row i and column j spans.
func rowspan(t Table, i, j int) int {
	n := 1
	for i+n < len(t.Rows) && t.Rows[i+n][j].Repeat {
		n++
	}
	return n
}

// broad reports whether a chart has too many points for half the page.
func broad(c Chart) bool {
	const most = 8
	return (c.Kind == Ratios || c.Kind == Totals) && len(c.Categories) > most
}

// slim reports whether a chart has too few points for the whole page.
func slim(c Chart) bool { return len(c.Categories) > 0 && len(c.Categories)*len(c.Series) <= 6 }

// tone is the class of a badge.
func tone(badge string) string {
	word, _, _ := strings.Cut(badge, " ")
	switch word {
	case "faster", "better":
		return "good"
	case "slower", "worse":
		return "bad"
	case "equal":
		return "same"
	}
	return "open"
}

// upright is the quantity of a chart whose values go up. It stands above the chart; along a
// lying axis it stands below.
func upright(c Chart) string {
	switch c.Kind {
	case Stack, Forest:
		return ""
	case CDF:
		return "share of executions"
	}
	return c.Axis
}

// pictured says what the paths of a document are.
func pictured(d Document) string {
	if d.pathsOf == layersUnder {
		return "What is under the benchmark"
	}
	return "What a packet crosses"
}

// added says what the marked hops of the paths are, if there are any.
func added(d Document) string {
	if !slices.ContainsFunc(d.Paths, func(p Path) bool {
		return slices.ContainsFunc(p.Hops, func(h Hop) bool { return h.Place == inNest })
	}) {
		return ""
	}
	if d.pathsOf == layersUnder {
		return "added by a container or a nested VM"
	}
	return "only because of nesting"
}

// mostInLead is the number of categories that fit in the chart at the top of the page.
const mostInLead = 8

// leadChart returns the chart at the top of the page: a distribution if the report begins
// with one; else ratios with intervals over blocks, ratios, or whatever comes first.
func leadChart(d Document) []Chart {
	var all []Chart
	for _, g := range d.Groups {
		all = append(all, g.Charts...)
	}
	if len(all) == 0 {
		return nil
	}
	best := func(c Chart) int {
		switch {
		case c.Kind == CDF && c.ID == all[0].ID:
			return 0
		case c.Kind == Ratios && !c.overCases && len(c.Categories) <= mostInLead:
			return 1
		case c.Kind == Ratios && c.overCases:
			return 2
		case c.Kind == Stack:
			return 4
		}
		return 3
	}
	lead := slices.MinFunc(all, func(a, b Chart) int { return best(a) - best(b) })
	return []Chart{lead}
}

// chartsOf returns the charts of a group that break CPU time down, or all the others but
// the lead chart.
func chartsOf(d Document, g Group, stacked bool) []Chart {
	lead := leadChart(d)
	var charts []Chart
	for _, c := range g.Charts {
		if (c.Kind == Stack) == stacked && (len(lead) == 0 || c.ID != lead[0].ID) {
			charts = append(charts, c)
		}
	}
	return charts
}
