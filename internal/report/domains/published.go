package domains

import (
	"fmt"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/papers"
)

// paperDomains lists what the paper's text says next to what the run says of the same
// configurations. It names them by the types of their domains.
func (b *section) paperDomains(f collocation.Findings) document.Table {
	t := document.Table{ID: "domains-paper", Title: "This run and the text of the paper", Columns: []document.Column{
		{Name: "figure", Header: true}, {Name: "document", Header: true}, {Name: "configuration", Header: true}, {Name: "over", Header: true}, {Name: "paper", Numeric: true}, {Name: "this run", Numeric: true}}}
	for _, p := range b.printed {
		ours := oursFor(p, f)
		if ours == "" {
			continue
		}
		over := p.Baseline
		if over == "" {
			over = "-"
		}
		paper := string(p.Value) + " " + p.Form
		if p.Form == "%" && p.Value.Float() > 0 {
			paper = "+" + paper
		}
		t.Rows = append(t.Rows, []document.Cell{{Text: p.Figure}, {Text: fmt.Sprintf("%d KB", p.Size)}, {Text: p.Configuration}, {Text: over}, {Text: paper}, {Text: ours}})
	}
	t.Notes = []string{"Paper: Apache in HVMs, PVMs and containers on Xen 4.4 with an i7-3770, six clients with httperf; its Figures 1 to 6 have no numbers. On another hypervisor, and above all with an emulated processor, compare the signs rather than the numbers. This run: the intensity with the highest aggregate throughput."}
	return t
}

// oursFor is the run's value for a printed one, at the load with the highest throughput; empty:
// the run has none.
func oursFor(p papers.Collocated, f collocation.Findings) string {
	if p.Form != "%" {
		for _, peak := range f.Peaks {
			if peak.Configuration == p.Configuration && peak.Size == p.Size<<10 {
				return spreadCell(peak.Throughput, "", func(x float64) string { return document.Rounded(document.Number(x)) }).Text
			}
		}
		return ""
	}
	best := ""
	top := -1
	for _, pair := range f.Pairs {
		if pair.Configuration != p.Configuration || pair.Size != p.Size<<10 || pair.Intensity < top {
			continue
		}
		for _, r := range append([]collocation.Ratio{}, pair.OfSame...) {
			if r.Reference == p.Baseline {
				best, top = changeText(r.Effect), pair.Intensity
			}
		}
		if p.Baseline == "alone" && pair.OfSingle != nil {
			best, top = changeText(pair.OfSingle.Effect), pair.Intensity
		}
	}
	return best
}

// changeText prints a ratio as a change in percent with its interval.
func changeText(e stats.Effect) string {
	text := document.Change(document.Number(e.Ratio()))
	if i := e.Interval(stats.DefaultConfidence); i.Defined() {
		text += fmt.Sprintf(" [%+.0f, %+.0f]", 100*(i.Low-1), 100*(i.High-1))
	}
	return text
}
