package plan

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"slices"
)

//go:embed *.html.tmpl
var pageSources embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"percent": percent,
	"change":  change,
	"share":   share,
	"weight":  weight,
	"means":   func(scheme string) string { return means[scheme] },
}).ParseFS(pageSources, "*.html.tmpl"))

// page is what the template sees.
type page struct {
	Result
	Schemes, Savers []string
	Bins            []Bin // of hostlo, until the last in which there is anyone
	Histogram       chart
	Curve           chart
}

// HTML prints the result as one file that needs no other, and no JavaScript.
func (r Result) HTML(w io.Writer) error {
	p := page{Result: r, Schemes: schemes, Savers: saving, Histogram: r.histogram(), Curve: r.curve()}
	p.Bins = r.Savings.Hostlo.Distribution[:r.lastBin()+1]
	return printPage(w, "plan.html.tmpl", p)
}

func printPage(w io.Writer, name string, data any) error {
	if err := pages.ExecuteTemplate(w, name, data); err != nil {
		return fmt.Errorf("print the plan as html: %w", err)
	}
	return nil
}

// CostOf returns the cost of a scheme.
func (p page) CostOf(scheme string) dollars { return *p.Cost.at(scheme) }

// SavingOf returns the savings of a scheme.
func (p page) SavingOf(scheme string) Saving { return *p.Savings.at(scheme) }

// Saved returns what a user saves with hostlo.
func (u User) Saved() dollars { return u.saved("hostlo") }

// Part returns what a user saves with hostlo, as a part of the cost.
func (u User) Part() float64 { return u.part("hostlo") }

// Name returns the range of the bin.
func (b Bin) Name() string { return b.name() }

// chart is the marks of a drawing, in its own units.
type chart struct {
	Width, Height, Bottom float64
	Bars                  []mark
	Lines                 []line
	Ticks                 []mark // labels below
	Levels                []mark // labels on the left
}

type mark struct {
	X, Y, Width, Height float64
	Text, Class         string
}

type line struct{ Points, Class string }

// The frame of both charts.
const (
	chartWidth  = 680
	chartHeight = 300
	chartLeft   = 50
	chartRight  = 20 // for the last label
	chartTop    = 16
	chartBottom = 260
)

// drawn are the schemes in the charts.
var drawn = []string{"hostlo", "best"}

// histogram draws how many users save how much (Fig. 9). Those who save nothing stand
// in the caption and the table: they would hide the others.
func (r Result) histogram() chart {
	c := chart{Width: chartWidth + chartRight, Height: chartHeight, Bottom: chartBottom}
	last, most := r.lastBin(), 1
	for _, scheme := range drawn {
		for _, b := range r.Savings.at(scheme).Distribution[1:] {
			most = max(most, b.Users)
		}
	}
	slot := float64(chartWidth-chartLeft) / float64(last)
	for i := 1; i <= last; i++ {
		x := chartLeft + slot*float64(i-1)
		for k, scheme := range drawn {
			b := r.Savings.at(scheme).Distribution[i]
			height := (chartBottom - chartTop) * float64(b.Users) / float64(most)
			c.Bars = append(c.Bars, mark{x + slot*(.1+.4*float64(k)), chartBottom - height, slot * .38, height,
				fmt.Sprintf("%s: %s save %s", scheme, plural(b.Users, "user"), b.name()), scheme})
		}
		c.Ticks = append(c.Ticks, mark{X: x + slot/2, Y: chartBottom + 18, Text: r.Savings.Hostlo.Distribution[i].name()})
	}
	for _, n := range []int{most, most / 2} {
		if n > 0 {
			c.Levels = append(c.Levels, mark{X: chartLeft, Y: chartBottom - (chartBottom-chartTop)*float64(n)/float64(most), Text: fmt.Sprint(n)})
		}
	}
	return c
}

// curve draws the share of users who save at least so much of their cost.
func (r Result) curve() chart {
	c := chart{Width: chartWidth + chartRight, Height: chartHeight, Bottom: chartBottom}
	far := float64(r.lastBin()) * binWidth / 100
	top := 0.0
	for _, scheme := range drawn {
		top = max(top, share(r.Savings.at(scheme).Users, r.Users))
	}
	top = max(top, 1e-9)
	at := func(part, of float64) (x, y float64) {
		return chartLeft + (chartWidth-chartLeft)*part/far, chartBottom - (chartBottom-chartTop)*of/top
	}
	for _, scheme := range drawn {
		var points string
		parts := r.savedParts(scheme)
		for i, part := range parts {
			before, x := share(i, r.Users), part
			x1, y1 := at(x, before)
			x2, y2 := at(x, share(i+1, r.Users))
			points += fmt.Sprintf("%.1f,%.1f %.1f,%.1f ", x1, y1, x2, y2)
		}
		if len(parts) > 0 {
			x, y := at(0, share(len(parts), r.Users))
			points += fmt.Sprintf("%.1f,%.1f", x, y)
		}
		c.Lines = append(c.Lines, line{points, scheme})
	}
	for i := range r.lastBin() + 1 {
		x, _ := at(float64(i)*binWidth/100, 0)
		c.Ticks = append(c.Ticks, mark{X: x, Y: chartBottom + 18, Text: fmt.Sprintf("%d %%", i*binWidth)})
	}
	for _, of := range []float64{top, top / 2} {
		_, y := at(0, of)
		c.Levels = append(c.Levels, mark{X: chartLeft, Y: y, Text: fmt.Sprintf("%.1f %%", 100*of)})
	}
	return c
}

// savedParts returns what users save with a scheme, the most first.
func (r Result) savedParts(scheme string) []float64 {
	var parts []float64
	for _, u := range r.PerUser {
		if u.saved(scheme) > 0 {
			parts = append(parts, u.part(scheme))
		}
	}
	slices.Sort(parts)
	slices.Reverse(parts)
	return parts
}
