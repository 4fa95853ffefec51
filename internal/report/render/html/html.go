// Package html prints documents as pages that need nothing but themselves.
package html

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"unnest.io/unnest/internal/report/document"
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
	"glue":    document.Glue,
	"join":    document.Join,
	"page":    document.Table.ForPage,
	"tone":    tone,
	"upright": upright,
	"rowspan": rowspan,
	"broad":   broad,
	"slim":    slim,
	"sum":     func(t document.Table, i int) bool { return i >= len(t.Rows)-t.Sums },
	"charts":  chartsOf,
	"lead":    leadChart,
	"count":   document.Plural,
	// Bound to the document by HTML.
	"slot": func(string) int { return 0 },
	"dir":  func() string { return "" },
}).Parse(pageSource))

// page is what the template sees.
type page struct {
	document.Document
	Style   template.CSS
	Library template.JS // empty when there are no charts
	Script  template.JS
	Data    map[string][]document.Chart
}

// Print prints doc as one self-contained file. The charts need JavaScript; the tables
// hold the same values.
func Print(w io.Writer, doc document.Document) error {
	p := page{Document: doc, Style: template.CSS(pageStyle), Script: template.JS(pageScript)}
	var charts []document.Chart
	for _, g := range doc.Groups {
		charts = append(charts, g.Charts...)
	}
	if len(charts) > 0 {
		p.Library, p.Data = template.JS(chartLibrary), map[string][]document.Chart{"charts": charts}
	}
	bound, err := pageTemplate.Clone()
	if err == nil {
		err = bound.Funcs(template.FuncMap{"slot": func(series string) int { return slotOf(doc.Series, series) }, "dir": func() string { return doc.Dir }}).Execute(w, p)
	}
	if err != nil {
		return fmt.Errorf("print report as html: %w", err)
	}
	return nil
}

func slotOf(all []document.Series, name string) int {
	i := slices.IndexFunc(all, func(s document.Series) bool { return s.Name == name })
	if i < 0 {
		return 0
	}
	return all[i].Slot
}

// rowspan returns how many rows the cell in row i and column j spans.
func rowspan(t document.Table, i, j int) int {
	n := 1
	for i+n < len(t.Rows) && t.Rows[i+n][j].Repeat {
		n++
	}
	return n
}

// broad reports whether a chart has too many points, or too long names of rows, for half the page.
func broad(c document.Chart) bool {
	const most, longest = 8, 40 // points, bytes
	if c.Kind == document.Forest {
		return slices.ContainsFunc(c.Categories, func(name string) bool { return len(name) > longest })
	}
	return (c.Kind == document.Ratios || c.Kind == document.Totals) && len(c.Categories) > most
}

// slim reports whether a chart has too few points for the whole page.
func slim(c document.Chart) bool {
	return len(c.Categories) > 0 && len(c.Categories)*len(c.Series) <= 6
}

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
func upright(c document.Chart) string {
	switch c.Kind {
	case document.Stack, document.Forest:
		return ""
	case document.CDF:
		return c.Of
	}
	return c.Axis
}

// chartsOf returns the charts of a group that break CPU time down, or all the others but
// the lead chart.
func chartsOf(d document.Document, g document.Group, stacked bool) []document.Chart {
	lead, _ := d.Lead()
	return slices.DeleteFunc(slices.Clone(g.Charts), func(c document.Chart) bool { return (c.Kind == document.Stack) != stacked || c.ID == lead.ID })
}

// leadChart returns the chart at the top of the page, if there is one.
func leadChart(d document.Document) []document.Chart {
	if lead, has := d.Lead(); has {
		return []document.Chart{lead}
	}
	return nil
}
