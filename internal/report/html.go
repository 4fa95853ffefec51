package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
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
	"glue":    glue,
	"join":    join,
	"rowspan": rowspan,
	"broad":   broad,
	"slim":    slim,
	"sum":     func(t Table, i int) bool { return i >= len(t.Rows)-t.Sums },
	"charts":  chartsOf,
	"lead":    leadChart,
	"count":   plural,
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

// leadChart returns the chart at the top of the page: the first one of ratios, of a
// document with paths.
func leadChart(d Document) []Chart {
	if len(d.Paths) == 0 {
		return nil
	}
	for _, g := range d.Groups {
		for _, c := range g.Charts {
			if c.Kind == Ratios {
				return []Chart{c}
			}
		}
	}
	return nil
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
