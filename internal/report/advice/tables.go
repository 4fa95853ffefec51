package advice

import (
	"fmt"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
)

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
	rows := [][]string{{"subject", "advice", "from", "to", "suite", "metric", "order", "cases", "n", "ratio", "low", "high", "confidence", "p", "verdict", "needs", "command"}}
	for _, c := range d.Choices {
		row := []string{c.Subject, c.Advice, c.From, c.To, c.Suite, c.Metric, string(c.Order), fmt.Sprint(c.Cases), fmt.Sprint(c.N)}
		row = append(row, document.Exacts(c.Ratio, c.Interval.Low, c.Interval.High, c.Interval.Confidence, c.P)...)
		rows = append(rows, append(row, string(c.Verdict), fmt.Sprint(c.Needs), c.Command))
	}
	return rows
}
