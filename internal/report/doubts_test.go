package report_test

import (
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
)

// A doubt stands in the row that it is about, on a page and on a terminal.
func TestDoubtsAreInTheirRow(t *testing.T) {
	run, samples := synthetic(6)
	for i := range samples {
		s := &samples[i]
		s.Value = 100 + float64(s.Block)
		if s.Case == "udp_rr/64" && s.Configuration == "NAT" && s.Block == 2 {
			s.Value *= 3
		}
		if s.Block == 5 {
			s.Value = 100 // so that nothing drifts
		}
	}
	main := build(run, samples).Groups[0].Tables[0]
	page := main.ForPage()
	if last := page.Columns[len(page.Columns)-1]; last.Name != "doubts" || slices.ContainsFunc(page.Columns, func(c document.Column) bool { return c.Name == "verdict" }) {
		t.Errorf("columns of the page: %+v", page.Columns)
	}
	columns, grid := main.ForTerminal()
	if last := columns[len(columns)-1]; last.Name != "verdict" {
		t.Errorf("last column on a terminal: %+v", last)
	}
	for i, row := range page.Rows {
		doubtful, want := row[len(row)-1].Text, i == 1 // the second row is NAT at 64 B
		if strings.Contains(doubtful, "outlier") != want {
			t.Errorf("row %d: doubts %q", i, doubtful)
		}
		if got := grid[i+1][len(columns)-1]; !strings.Contains(got, doubtful) {
			t.Errorf("row %d on a terminal: %q, want the doubts %q", i, got, doubtful)
		}
	}
	for i := range samples {
		samples[i].Value = min(samples[i].Value, 104)
	}
	if doc := build(run, samples); slices.ContainsFunc(doc.Groups[0].Tables[0].Columns, func(c document.Column) bool { return c.Name == "doubts" }) {
		t.Error("a table without doubts has a column of doubts")
	}
}

// A missing value has its reason in the row.
func TestMissingSaysWhy(t *testing.T) {
	page := build(holed()).Groups[0].Tables[0].ForPage()
	found := false
	for _, row := range page.Rows {
		found = found || strings.Contains(row[len(row)-1].Text, "failed 3 times")
	}
	if !found {
		t.Errorf("no row says why its value is missing: %+v", page.Rows)
	}
}

// A metric that a part of the executions lack has no ratio and no verdict: those that have it are not a random choice.
func TestSelectedExecutionsHaveNoVerdict(t *testing.T) {
	run, samples := synthetic(12)
	slow := map[result.Execution]bool{}
	for _, s := range samples {
		if s.Case == "udp_rr/1280" && s.Configuration == "NAT" && s.Metric == "latency_mean" && s.Block%3 == 0 {
			slow[s.Execution()] = true
		}
	}
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return s.Metric == "latency_p99" && slow[s.Execution()] })
	data := dataOf(build(run, samples))
	for _, e := range data.Estimates {
		if e.Metric != "latency_p99" || e.Case != "udp_rr/1280" {
			continue
		}
		for _, c := range e.Comparisons {
			of := e.Configuration == "NAT" || c.Baseline == "NAT"
			if of == c.Ratio.Defined() || of != (c.Verdict == "") || of && c.First && !strings.Contains(strings.Join(c.Warnings, ""), "NAT has it in 8 of 12 executions") {
				t.Errorf("%s against %s: %+v", e.Configuration, c.Baseline, c)
			}
		}
	}
}
