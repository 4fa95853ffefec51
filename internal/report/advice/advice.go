// Package advice builds the report of what a run shows to be worth doing, which package advice
// of measure decides.
package advice

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/advice"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/provenance"
)

// Version is the version of the JSON of advice. Keys are added without a new version; it changes
// when one is removed or gets another meaning.
const Version = 1

// Build reports what a run shows to be worth doing. The JSON keys of its Data are part of
// the command line.
func Build(input provenance.Source, notes []string) document.Document {
	a := advice.Of(input.Run, input.Samples)
	data := dataOf(input.Run, a)
	doc := document.Document{
		Command: "advise", Series: naming.Series(input.Run), Title: "Advice: " + naming.Run(input.Run), Run: input.Run.ID, Dir: input.Dir,
		Setting: provenance.Setting(input.Run, input.Samples), SchemaVersion: Version,
		Warnings: slices.Concat(provenance.Warnings(input.Run, input.Samples), provenance.LoadWarnings(input.Samples), notes), Methods: methods(a.Family),
		Provenance: document.ProvenanceTable(provenance.Facts(input.Dir, input.Run, input.Samples)),
	}
	for _, c := range data.Choices {
		if c.Advice != "" {
			doc.Headlines = append(doc.Headlines, c.sentence())
		}
	}
	for _, c := range data.Choices {
		if c.Advice == "" && len(c.Extremes) == 2 {
			doc.Headlines = append(doc.Headlines, c.byCase())
		}
	}
	if doc.AnswerFirst(0); doc.Answer == "" {
		doc.Answer = "This run carries no advice. The last table says what to measure."
	}
	doc.SayBefore(provenance.Observe(input.Run, input.Samples).Verdict())
	data.Caution, data.Warnings = doc.Caution, doc.Warnings
	doc.Data, doc.Records = data, records(data)
	g := document.Group{ID: "choices", Title: "Choices"}
	g.Add(choiceTable(data, input.Run), reasonTable(data), commandTable(data))
	if chart := choiceChart(data); len(chart.Categories) > 0 {
		g.Charts = []document.Chart{chart}
	}
	open := document.Group{ID: "measure", Title: "What to measure"}
	open.Add(measureTable(data))
	for _, g := range []document.Group{g, open} {
		if len(g.Tables) > 0 {
			doc.Groups = append(doc.Groups, g)
		}
	}
	doc.PutSettings()
	return doc
}

// advised is the Data of advice.
type advised struct {
	Run        string            `json:"run"`
	Experiment string            `json:"experiment"`
	Tests      int               `json:"tests"` // choices with a test
	Found      int               `json:"found"` // of them, those that make a difference
	Confidence document.Number   `json:"confidence"`
	Caution    string            `json:"caution,omitempty"` // why the run decides nothing
	Warnings   []string          `json:"warnings,omitempty"`
	Choices    []advisedChoice   `json:"choices"`
	Measure    []advisedNextStep `json:"measure"`
}

type advisedChoice struct {
	Subject  string            `json:"subject"`
	Advice   string            `json:"advice"` // what to do; empty: the data carry no advice
	Action   string            `json:"action"`
	From     string            `json:"from"`
	To       string            `json:"to"`
	Suite    string            `json:"suite"`
	Metric   string            `json:"metric"`
	Unit     string            `json:"unit"`
	Order    result.Order      `json:"order"`
	Cases    int               `json:"cases"` // over which the ratio is a geometric mean
	N        int               `json:"n"`     // blocks
	Ratio    document.Number   `json:"ratio"` // of the metric, to over from
	Interval document.Interval `json:"interval"`
	P        document.Number   `json:"p"`
	Verdict  stats.Verdict     `json:"verdict"`
	Needs    int               `json:"needs,omitempty"`
	Limited  bool              `json:"generator_limited,omitempty"` // the load generator was at its limit
	Extremes []advisedCase     `json:"extremes,omitempty"`          // where the cases disagree: lowest and highest ratio
	Why      []string          `json:"why"`
	Command  string            `json:"command"`

	expectation string // what the ratio is, with %s for its value; empty: From and To say it
}

type advisedCase struct {
	Case  string          `json:"case"`
	Ratio document.Number `json:"ratio"`

	title string
}

type advisedNextStep struct {
	Subject string `json:"subject"`
	Why     string `json:"why"`
	Command string `json:"command"`
}

func dataOf(run result.Run, a advice.Advice) advised {
	d := advised{Run: run.ID, Experiment: run.Experiment, Tests: a.Family.Tests, Found: a.Family.Found, Confidence: document.Missing,
		Choices: []advisedChoice{}, Measure: []advisedNextStep{}}
	if a.Family.Tests > 0 {
		d.Confidence = document.Number(a.Family.Confidence())
	}
	for _, c := range a.Choices {
		var extremes []advisedCase
		for _, e := range c.Extremes {
			extremes = append(extremes, advisedCase{e.Case.Name, document.Number(e.Ratio), naming.Case(e.Case)})
		}
		d.Choices = append(d.Choices, advisedChoice{
			Subject: string(c.Subject), Advice: adviceOn(c), Action: c.Action, From: c.From, To: c.To, Suite: c.Suite, Metric: c.Metric,
			Unit: c.Unit, Order: c.Order, Cases: c.Cases, N: c.Effect.N, Ratio: document.Number(c.Effect.Ratio()), Interval: estimate.ConfidenceInterval(c.Interval),
			P: document.Number(c.Effect.P()), Verdict: c.Verdict, Needs: c.Needs, Limited: c.Limited, Extremes: extremes, Why: c.Why, Command: c.Command, expectation: c.Expected,
		})
	}
	for _, m := range a.Measure {
		d.Measure = append(d.Measure, advisedNextStep{string(m.Subject), m.Why, m.Command})
	}
	return d
}

// adviceOn says what to do, or nothing where the verdict is not known, or where it hides that cases disagree.
func adviceOn(c advice.Choice) string {
	where := ""
	if c.Starved != "" && c.Verdict == stats.Better {
		where = fmt.Sprintf("if %s may have as little as %.0f %% of its throughput alone, ", c.Starved, 100*c.Share)
	}
	if len(c.Against) > 0 {
		var against []string
		for _, metric := range c.Against {
			against = append(against, naming.Quantity(metric))
		}
		where = fmt.Sprintf("where %s matters more than %s, ", naming.Quantity(c.Metric), document.List(against))
	}
	switch c.Verdict {
	case stats.Better:
		return where + c.Action
	case stats.Worse:
		return where + c.Instead
	case stats.Equal:
		if c.Extremes != nil {
			return "" // it makes a difference in single cases
		}
		return c.Action + ", or not: it makes no difference"
	}
	return ""
}

// sentence says what to do, what it gives and how sure that is.
func (c advisedChoice) sentence() string {
	return fmt.Sprintf("%s: %s (%s).", capital(c.Advice), c.expected(), c.over())
}

// expected is the gain or the cost of the advice.
func (c advisedChoice) expected() string {
	times := document.TimesWithInterval(c.Ratio, c.Interval)
	text := fmt.Sprintf("%s %s with %s is %s of that with %s", c.Suite, naming.Quantity(c.Metric), c.To, times, c.From)
	if c.expectation != "" {
		text = fmt.Sprintf(c.expectation, times)
	}
	if c.Verdict != stats.Equal {
		text += ", " + document.Change(c.Ratio)
	}
	return text
}

// label names a choice in a chart.
func (c advisedChoice) label() string {
	switch {
	case c.expectation == "":
		return fmt.Sprintf("%s → %s, %s", c.From, c.To, naming.Quantity(c.Metric))
	case c.From == advice.EqualPairs:
		return "mixed: " + c.To
	}
	return c.To
}

// over says what the ratio is the mean of.
func (c advisedChoice) over() string {
	text := document.Plural(c.N, "block")
	if c.Cases > 1 {
		text = document.Plural(c.Cases, "case") + ", " + text
	}
	if c.Limited {
		text += "; the load generator was at its limit"
	}
	if len(c.Extremes) == 2 && c.Advice != "" {
		text += "; not the same in all cases: " + c.extremes()
	}
	return text
}

// extremes names the cases in which a choice is the largest gain and the largest cost.
func (c advisedChoice) extremes() string {
	low, high := c.Extremes[0], c.Extremes[1]
	return fmt.Sprintf("from %s× for %s, to %s× for %s", document.Ratio(low.Ratio), low.title, document.Ratio(high.Ratio), high.title)
}

// byCase is the sentence of a choice that is a gain in one case and a cost in another, and that has no advice on their mean.
func (c advisedChoice) byCase() string {
	return fmt.Sprintf("Decide by your case: %s %s with %s over that with %s is %s (%s).", c.Suite, naming.Quantity(c.Metric), c.To, c.From, c.extremes(), c.over())
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func methods(f stats.Family) []document.Method {
	return []document.Method{
		{Term: "choice", Text: "A change of one property of a configuration, or a set of domains on one host. Its ratio is the geometric mean, over cases and blocks, of the ratios within the blocks. Cases are those of a suite with the same metric; blocks are those that have all of them."},
		{Term: "verdict", Text: fmt.Sprintf("The choices of a run are one family: of those that make a difference, %s are expected to be false ones (Benjamini and Hochberg, %d of %d found). The interval at the level that follows is the verdict. There is no advice where it contains 1 and reaches beyond %s.", document.Percent(stats.DefaultAlpha), f.Found, f.Tests, document.Percent(stats.DefaultMargin))},
		{Term: "sum of shares", Text: "Of domains on one host: what each has of its throughput alone, summed. At 1 they do what one after the other would do in the same time; above, they use what the others leave; below, they disturb each other."},
		{Term: "order", Text: "Gains come first, then costs, each by the bound of the interval that is nearest to 1: by what is sure of them. Those for which the load generator was at its limit, or a domain had less than half of its turn, come last."},
	}
}

func choiceTable(d advised, run result.Run) document.Table {
	t := document.Table{ID: "choices-main", Title: "Choices, the surest gain first", Columns: []document.Column{
		{Name: "from", Header: true}, {Name: "to"}, {Name: "metric, order"}, {Name: "cases", Numeric: true, Page: true}, {Name: "n", Numeric: true},
		{Name: "ratio", Numeric: true}, {Name: "verdict"},
	}}
	if d.Tests > 0 {
		t.Columns[5].Name += ", " + document.Level(d.Confidence)
	}
	for _, c := range d.Choices {
		verdict := string(c.Verdict)
		if c.Needs > 0 {
			verdict += ": needs " + document.Plural(c.Needs, "more block")
		}
		row := document.TextRow(c.From, c.To, c.Metric+", "+string(c.Order), fmt.Sprint(c.Cases), fmt.Sprint(c.N), document.RatioWithInterval(c.Ratio, c.Interval), verdict)
		for i, name := range []string{c.From, c.To} {
			if run.Has(name) {
				row[i].Series = name
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func reasonTable(d advised) document.Table {
	t := document.Table{ID: "choices-why", Title: "Why", Columns: []document.Column{{Name: "to", Header: true}, {Name: "what speaks for the cause"}}}
	seen := map[string]bool{}
	for _, c := range d.Choices {
		text := strings.Join(c.Why, "; ")
		if text != "" && c.Advice != "" && !seen[c.To+text] {
			seen[c.To+text] = true
			t.Rows = append(t.Rows, document.TextRow(c.To, text))
		}
	}
	return t
}

// commandTable lists what to do to gain something.
func commandTable(d advised) document.Table {
	t := document.Table{ID: "choices-do", Title: "How", Columns: []document.Column{{Name: "advice", Header: true}, {Name: "command"}}}
	seen := map[string]bool{}
	for _, c := range d.Choices {
		if c.Verdict == stats.Better && !seen[c.Action] {
			seen[c.Action] = true
			t.Rows = append(t.Rows, document.TextRow(c.Action, c.Command))
		}
	}
	return t
}

func measureTable(d advised) document.Table {
	t := document.Table{ID: "measure-main", Title: "What to measure, because this run does not decide it", Columns: []document.Column{{Name: "subject", Header: true}, {Name: "why"}, {Name: "command"}}}
	for _, m := range d.Measure {
		t.Rows = append(t.Rows, document.TextRow(m.Subject, m.Why, m.Command))
	}
	return t
}

// choiceChart draws the gain of each choice: above 1 is better.
func choiceChart(d advised) document.Chart {
	chart := document.Chart{ID: "choices-chart", Kind: document.Forest, Title: "Gain of each choice, with its interval", Axis: "gain, as a ratio (above 1 is better)", Margin: stats.DefaultMargin}
	series := document.ChartSeries{Name: "gain"}
	for _, c := range d.Choices {
		r, i := c.Ratio, c.Interval
		if c.Order == result.LIB {
			r, i = r.Inverse(), i.Inverse()
		}
		chart.Categories = append(chart.Categories, c.label())
		series.Add(r, i)
	}
	chart.Series = []document.ChartSeries{series}
	chart.Complete()
	return chart
}

func records(d advised) [][]string {
	rows := [][]string{{"subject", "advice", "from", "to", "suite", "metric", "order", "cases", "n", "ratio", "low", "high", "confidence", "p", "verdict", "needs", "command", "caution"}}
	for _, c := range d.Choices {
		row := []string{c.Subject, c.Advice, c.From, c.To, c.Suite, c.Metric, string(c.Order), fmt.Sprint(c.Cases), fmt.Sprint(c.N)}
		row = append(row, document.Exacts(c.Ratio, c.Interval.Low, c.Interval.High, c.Interval.Confidence, c.P)...)
		rows = append(rows, append(row, string(c.Verdict), fmt.Sprint(c.Needs), c.Command, d.Caution))
	}
	return rows
}
