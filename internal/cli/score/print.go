package score

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"unnest/internal/measure/score"
)

// suiteJSON is a suite as JSON. Maps are by configuration and lack those that have
// no such figure.
type suiteJSON struct {
	Configurations []string                `json:"configurations"`
	Total          map[string]float64      `json:"total"`
	TotalRounded   map[string]float64      `json:"total_rounded"`
	Counted        map[string]int          `json:"cases_counted"`
	Partial        []string                `json:"partial"` // configurations whose totals are
	Baseline       string                  `json:"baseline,omitempty"`
	GeoMean        map[string]float64      `json:"geomean"`
	Interval       map[string]intervalJSON `json:"geomean_interval"`
	Cases          []caseJSON              `json:"cases"`
	Missing        []score.Missing         `json:"missing"`
	Warnings       []score.Warning         `json:"warnings"`
}

type intervalJSON struct {
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"`
}

type caseJSON struct {
	Name        string             `json:"name"`
	Order       score.Order        `json:"order"`
	Unit        string             `json:"unit"`
	Counted     bool               `json:"counted"`
	Values      map[string]float64 `json:"values"` // means
	Repetitions map[string]int     `json:"repetitions"`
	Scores      map[string]float64 `json:"scores"`
}

func printJSON(w io.Writer, suites []score.Suite) error {
	byName := map[string]suiteJSON{}
	for _, s := range suites {
		byName[s.Name] = newSuiteJSON(s)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{"suites": byName})
}

func newSuiteJSON(s score.Suite) suiteJSON {
	j := suiteJSON{
		Configurations: s.Configurations, Baseline: s.Baseline, Partial: []string{},
		Total: map[string]float64{}, TotalRounded: map[string]float64{}, Counted: map[string]int{},
		GeoMean: map[string]float64{}, Interval: map[string]intervalJSON{},
		// Appended to, an empty list is [] and not null.
		Missing: append([]score.Missing{}, s.Missing...), Warnings: append([]score.Warning{}, s.Warnings...),
	}
	for _, name := range s.Configurations {
		if t, has := s.Totals[name]; has {
			j.Total[name], j.TotalRounded[name], j.Counted[name] = t.Raw, t.Rounded, t.Cases
			if t.Partial {
				j.Partial = append(j.Partial, name)
			}
		}
		if g, has := s.GeoMeans[name]; has {
			j.GeoMean[name] = g.Ratio
			if g.HasInterval() {
				j.Interval[name] = intervalJSON{g.Low, g.High, score.Confidence}
			}
		}
	}
	for _, c := range s.Cases {
		j.Cases = append(j.Cases, newCaseJSON(c))
	}
	return j
}

func newCaseJSON(c score.Case) caseJSON {
	j := caseJSON{
		Name: c.Name, Order: c.Order, Unit: c.Unit, Counted: c.Counted,
		Values: map[string]float64{}, Repetitions: map[string]int{}, Scores: map[string]float64{},
	}
	for name, cell := range c.Cells {
		j.Values[name], j.Repetitions[name], j.Scores[name] = cell.Mean, cell.N, cell.Score
	}
	return j
}

// printTables prints each suite as Lubomski et al. do in Table 5, and beneath it
// what its totals hide.
func printTables(w io.Writer, suites []score.Suite) error {
	var text strings.Builder
	for i, s := range suites {
		if i > 0 {
			text.WriteString("\n")
		}
		fmt.Fprintf(&text, "Suite %s: scores, in brackets the results\n\n", s.Name)
		if err := writeTable(&text, s); err != nil {
			return err
		}
		writeNotes(&text, s)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func writeTable(w io.Writer, s score.Suite) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, order, unit string, cell func(configuration string) string) {
		cells := []string{name, order, unit}
		for _, c := range s.Configurations {
			cells = append(cells, cell(c))
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	row("case", "order", "unit", func(name string) string { return name })
	for _, c := range s.Cases {
		row(c.Name, string(c.Order), c.Unit, func(name string) string { return cellText(c, name) })
	}
	if len(s.Totals) > 0 {
		row("total", string(score.HIB), "", func(name string) string { return totalText(s.Totals[name]) })
		row("total of rounded scores", string(score.HIB), "", func(name string) string { return fmt.Sprintf("%.2f", s.Totals[name].Rounded) })
	}
	if len(s.GeoMeans) > 0 {
		row("geometric mean", string(score.HIB), "ratio", func(name string) string { return geoMeanText(s, name) })
	}
	return tw.Flush()
}

func cellText(c score.Case, configuration string) string {
	cell, has := c.Cells[configuration]
	if !has {
		return "-"
	}
	return fmt.Sprintf("%.2f (%s)", cell.Score, number(cell.Mean))
}

// number returns x as it was given, if that is short, else with seven digits.
func number(x float64) string {
	if s := strconv.FormatFloat(x, 'f', -1, 64); len(s) <= 10 {
		return s
	}
	return strconv.FormatFloat(x, 'g', 7, 64)
}

func totalText(t score.Total) string {
	text := fmt.Sprintf("%.3f", t.Raw)
	if t.Partial {
		text += fmt.Sprintf(" (partial, of %d)", t.Cases)
	}
	return text
}

func geoMeanText(s score.Suite, configuration string) string {
	g, has := s.GeoMeans[configuration]
	switch {
	case !has:
		return "-"
	case g.HasInterval():
		return fmt.Sprintf("%.3f (%.3f-%.3f)", g.Ratio, g.Low, g.High)
	}
	return fmt.Sprintf("%.3f", g.Ratio)
}

// writeNotes writes how to read the table, what is missing, and the warnings.
func writeNotes(w *strings.Builder, s score.Suite) {
	if len(s.GeoMeans) > 0 {
		fmt.Fprintf(w, "\nGeometric means are of ratios to %s in the cases that both have and that count; above 1 is\nbetter. In brackets the %.0f %% interval over cases.\n",
			s.Baseline, 100*score.Confidence)
	}
	var lines []string
	for _, c := range s.Cases {
		if lacking := missingFor(s, c.Name); len(lacking) > 0 {
			lines = append(lines, missingText(c, lacking))
		}
	}
	writeList(w, "Missing:", lines)
	lines = nil
	for _, warning := range s.Warnings {
		lines = append(lines, warning.Text)
	}
	writeList(w, "Warnings:", lines)
}

func missingFor(s score.Suite, name string) []string {
	var lacking []string
	for _, m := range s.Missing {
		if m.Case == name {
			lacking = append(lacking, m.Configuration)
		}
	}
	return lacking
}

func missingText(c score.Case, lacking []string) string {
	text := fmt.Sprintf("%s has no results of %s: ", c.Name, strings.Join(lacking, ", "))
	if c.Counted {
		return text + "their totals are partial"
	}
	return text + "it counts in no total"
}

func writeList(w *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, line := range lines {
		fmt.Fprintf(w, "  - %s\n", line)
	}
}
