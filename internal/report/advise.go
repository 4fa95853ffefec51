package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/advice"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// Advise reports what a run shows to be worth doing. The JSON keys of its Data are part of
// the command line.
func Advise(input Input, notes []string) Document {
	a := advice.Of(input.Run, input.Samples)
	data := adviceData(input.Run, a)
	doc := Document{
		Command: "advise", Series: seriesOf(input.Run), Title: "Advice: " + titleOf(input.Run), Run: input.Run.ID, Dir: input.Dir,
		Setting: settingOf(input.Run, input.Samples), Data: data, Records: adviceRecords(data),
		Warnings: slices.Concat(runWarnings(input.Run, input.Samples), domainWarnings(input.Samples), notes), Methods: adviceMethods(a.Family),
		Provenance: provenanceTable(facts(input.Dir, input.Run, input.Samples)),
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
	if doc.answerFirst(0); doc.Answer == "" {
		doc.Answer = "This run carries no advice. The last table says what to measure."
	}
	g := Group{ID: "choices", Title: "Choices"}
	g.add(choiceTable(data, input.Run), reasonTable(data), commandTable(data))
	if chart := choiceChart(data); len(chart.Categories) > 0 {
		g.Charts = []Chart{chart}
	}
	open := Group{ID: "measure", Title: "What to measure"}
	open.add(measureTable(data))
	for _, g := range []Group{g, open} {
		if len(g.Tables) > 0 {
			doc.Groups = append(doc.Groups, g)
		}
	}
	doc.putSettings()
	return doc
}

// advised is the Data of advice.
type advised struct {
	Run        string            `json:"run"`
	Experiment string            `json:"experiment"`
	Tests      int               `json:"tests"` // choices with a test
	Found      int               `json:"found"` // of them, those that make a difference
	Confidence Number            `json:"confidence"`
	Choices    []advisedChoice   `json:"choices"`
	Measure    []advisedNextStep `json:"measure"`
}

type advisedChoice struct {
	Subject  string        `json:"subject"`
	Advice   string        `json:"advice"` // what to do; empty: the data carry no advice
	Action   string        `json:"action"`
	From     string        `json:"from"`
	To       string        `json:"to"`
	Suite    string        `json:"suite"`
	Metric   string        `json:"metric"`
	Unit     string        `json:"unit"`
	Order    result.Order  `json:"order"`
	Cases    int           `json:"cases"` // over which the ratio is a geometric mean
	N        int           `json:"n"`     // blocks
	Ratio    Number        `json:"ratio"` // of the metric, to over from
	Interval Interval      `json:"interval"`
	P        Number        `json:"p"`
	Verdict  stats.Verdict `json:"verdict"`
	Needs    int           `json:"needs,omitempty"`
	Limited  bool          `json:"generator_limited,omitempty"` // the load generator was at its limit
	Extremes []advisedCase `json:"extremes,omitempty"`          // where the cases disagree: lowest and highest ratio
	Why      []string      `json:"why"`
	Command  string        `json:"command"`

	expectation string // what the ratio is, with %s for its value; empty: From and To say it
}

type advisedCase struct {
	Case  string `json:"case"`
	Ratio Number `json:"ratio"`

	title string
}

type advisedNextStep struct {
	Subject string `json:"subject"`
	Why     string `json:"why"`
	Command string `json:"command"`
}

func adviceData(run result.Run, a advice.Advice) advised {
	d := advised{Run: run.ID, Experiment: run.Experiment, Tests: a.Family.Tests, Found: a.Family.Found, Confidence: missing,
		Choices: []advisedChoice{}, Measure: []advisedNextStep{}}
	if a.Family.Tests > 0 {
		d.Confidence = Number(a.Family.Confidence())
	}
	for _, c := range a.Choices {
		var extremes []advisedCase
		for _, e := range c.Extremes {
			extremes = append(extremes, advisedCase{e.Case.Name, Number(e.Ratio), caseTitle(e.Case)})
		}
		d.Choices = append(d.Choices, advisedChoice{
			Subject: string(c.Subject), Advice: adviceOn(c), Action: c.Action, From: c.From, To: c.To, Suite: c.Suite, Metric: c.Metric,
			Unit: c.Unit, Order: c.Order, Cases: c.Cases, N: c.Effect.N, Ratio: Number(c.Effect.Ratio()), Interval: interval(c.Interval),
			P: Number(c.Effect.P()), Verdict: c.Verdict, Needs: c.Needs, Limited: c.Limited, Extremes: extremes, Why: c.Why, Command: c.Command, expectation: c.Expected,
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
			against = append(against, quantity(metric))
		}
		where = fmt.Sprintf("where %s matters more than %s, ", quantity(c.Metric), list(against))
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
	times := timesWithInterval(c.Ratio, c.Interval)
	text := fmt.Sprintf("%s %s with %s is %s of that with %s", c.Suite, quantity(c.Metric), c.To, times, c.From)
	if c.expectation != "" {
		text = fmt.Sprintf(c.expectation, times)
	}
	if c.Verdict != stats.Equal {
		text += ", " + change(c.Ratio)
	}
	return text
}

// label names a choice in a chart.
func (c advisedChoice) label() string {
	switch {
	case c.expectation == "":
		return fmt.Sprintf("%s → %s, %s", c.From, c.To, quantity(c.Metric))
	case c.From == advice.EqualPairs:
		return "mixed: " + c.To
	}
	return c.To
}

// over says what the ratio is the mean of.
func (c advisedChoice) over() string {
	text := plural(c.N, "block")
	if c.Cases > 1 {
		text = plural(c.Cases, "case") + ", " + text
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
	return fmt.Sprintf("from %s× for %s, to %s× for %s", ratio(low.Ratio), low.title, ratio(high.Ratio), high.title)
}

// byCase is the sentence of a choice that is a gain in one case and a cost in another, and that has no advice on their mean.
func (c advisedChoice) byCase() string {
	return fmt.Sprintf("Decide by your case: %s %s with %s over that with %s is %s (%s).", c.Suite, quantity(c.Metric), c.To, c.From, c.extremes(), c.over())
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func choiceTable(d advised, run result.Run) Table {
	t := Table{ID: "choices-main", Title: "Choices, the surest gain first", Columns: []Column{
		{Name: "from", Header: true}, {Name: "to"}, {Name: "metric, order"}, {Name: "cases", Numeric: true, Page: true}, {Name: "n", Numeric: true},
		{Name: "ratio", Numeric: true}, {Name: "verdict"},
	}}
	if d.Tests > 0 {
		t.Columns[5].Name += ", " + level(d.Confidence)
	}
	for _, c := range d.Choices {
		verdict := string(c.Verdict)
		if c.Needs > 0 {
			verdict += fmt.Sprintf(": needs %d more", c.Needs)
		}
		row := textRow(c.From, c.To, c.Metric+", "+string(c.Order), fmt.Sprint(c.Cases), fmt.Sprint(c.N), withInterval(c.Ratio, c.Interval), verdict)
		for i, name := range []string{c.From, c.To} {
			if hasConfiguration(run, name) {
				row[i].Series = name
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func reasonTable(d advised) Table {
	t := Table{ID: "choices-why", Title: "Why", Columns: []Column{{Name: "to", Header: true}, {Name: "what speaks for the cause"}}}
	seen := map[string]bool{}
	for _, c := range d.Choices {
		text := strings.Join(c.Why, "; ")
		if text != "" && c.Advice != "" && !seen[c.To+text] {
			seen[c.To+text] = true
			t.Rows = append(t.Rows, textRow(c.To, text))
		}
	}
	return t
}

// commandTable lists what to do to gain something.
func commandTable(d advised) Table {
	t := Table{ID: "choices-do", Title: "How", Columns: []Column{{Name: "advice", Header: true}, {Name: "command"}}}
	seen := map[string]bool{}
	for _, c := range d.Choices {
		if c.Verdict == stats.Better && !seen[c.Action] {
			seen[c.Action] = true
			t.Rows = append(t.Rows, textRow(c.Action, c.Command))
		}
	}
	return t
}

func measureTable(d advised) Table {
	t := Table{ID: "measure-main", Title: "What to measure, because this run does not decide it", Columns: []Column{{Name: "subject", Header: true}, {Name: "why"}, {Name: "command"}}}
	for _, m := range d.Measure {
		t.Rows = append(t.Rows, textRow(m.Subject, m.Why, m.Command))
	}
	return t
}

// choiceChart draws the gain of each choice: above 1 is better.
func choiceChart(d advised) Chart {
	chart := Chart{ID: "choices-chart", Kind: Forest, Title: "Gain of each choice, with its interval", Axis: "gain, as a ratio (above 1 is better)", Margin: stats.DefaultMargin}
	series := ChartSeries{Name: "gain"}
	for _, c := range d.Choices {
		r, i := c.Ratio, c.Interval
		if c.Order == result.LIB {
			r, i = inverse(r), Interval{inverse(i.High), inverse(i.Low), i.Confidence}
		}
		chart.Categories = append(chart.Categories, c.label())
		series.add(r, i)
	}
	chart.Series = []ChartSeries{series}
	chart.complete()
	return chart
}

func adviceRecords(d advised) [][]string {
	rows := [][]string{{"subject", "advice", "from", "to", "suite", "metric", "order", "cases", "n", "ratio", "low", "high", "confidence", "p", "verdict", "needs", "command"}}
	for _, c := range d.Choices {
		row := []string{c.Subject, c.Advice, c.From, c.To, c.Suite, c.Metric, string(c.Order), fmt.Sprint(c.Cases), fmt.Sprint(c.N)}
		row = append(row, exact(c.Ratio, c.Interval.Low, c.Interval.High, c.Interval.Confidence, c.P)...)
		rows = append(rows, append(row, string(c.Verdict), fmt.Sprint(c.Needs), c.Command))
	}
	return rows
}

func adviceMethods(f stats.Family) []Method {
	return []Method{
		{"choice", "A change of one property of a configuration, or a set of domains on one host. Its ratio is the geometric mean, over cases and blocks, of the ratios within the blocks. Cases are those of a suite with the same metric; blocks are those that have all of them."},
		{"verdict", fmt.Sprintf("The choices of a run are one family: of those that make a difference, %s are expected to be false ones (Benjamini and Hochberg, %d of %d found). The interval at the level that follows is the verdict. There is no advice where it contains 1 and reaches beyond %s.", percent(stats.DefaultAlpha), f.Found, f.Tests, percent(stats.DefaultMargin))},
		{"sum of shares", "Of domains on one host: what each has of its throughput alone, summed. At 1 they do what one after the other would do in the same time; above, they use what the others leave; below, they disturb each other."},
		{"order", "Gains come first, then costs, each by the bound of the interval that is nearest to 1: by what is sure of them. Those for which the load generator was at its limit, or a domain had less than half of its turn, come last."},
	}
}
