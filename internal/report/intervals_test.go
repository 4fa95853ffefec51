package report_test

import (
	"fmt"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/runs"
)

// tradeRun is a synthetic run of the application stack in three configurations of Table 1 of
// Lubomski et al. Each execution has three intervals.
func tradeRun() (result.Run, []result.Sample) {
	run := syntheticRun(6)
	run.Configurations, run.Baselines = nil, []string{"metal.local"}
	for _, name := range []string{"metal.local", "metal.remote", "vm.remote"} {
		stack, drive, _ := strings.Cut(name, ".")
		run.Configurations = append(run.Configurations, result.Configuration{Name: name, Stack: stack,
			Options: map[string]string{"drive": drive, "profile": "quick"}})
	}
	run.Cases = []result.Case{{Suite: "application", Name: "trade", Group: "trade", Title: "Trading application", Tool: "java", Primary: "throughput",
		Metrics: []result.Metric{{Name: "throughput", Unit: "responses/s", Order: result.HIB, Interval: 6}, {Name: "server_start", Unit: "s", Order: result.LIB}}}}
	run.Planned = 18
	var samples []result.Sample
	for block := range run.Repetitions {
		for _, c := range run.Configurations {
			rate := 100 + float64(block)
			if c.Stack == "vm" {
				rate /= 4
			}
			for i, m := range run.Cases[0].Metrics {
				s := result.Sample{Run: run.ID, Configuration: c.Name, Suite: "application", Case: "trade", Metric: m.Name, Unit: m.Unit, Order: m.Order,
					Value: rate, Block: block, Repetition: block, Boot: "boot", Duration: 30}
				if i == 0 {
					s.Intervals = []float64{rate - 5, rate, rate + 5}
				}
				samples = append(samples, s)
			}
		}
	}
	return run, samples
}

// A course ends with the longest execution, and an interval without an answer has no latency.
func TestIntervalsWithoutAnswer(t *testing.T) {
	run, samples := tradeRun()
	run.Cases[0].Metrics[0] = result.Metric{Name: "latency_mean", Unit: "us", Order: result.LIB, Interval: 6}
	run.Cases[0].Primary = "latency_mean"
	for i, s := range samples {
		if s.Metric != "throughput" {
			continue
		}
		samples[i].Metric, samples[i].Unit, samples[i].Order = "latency_mean", "us", result.LIB
		samples[i].Intervals = map[bool][]float64{true: {0, 40}, false: {20, 40, 60}}[s.Block%2 == 0] // also in the first execution
	}
	for _, g := range runs.Build(run, samples, runs.Options{Papers: papers.All()}).Groups {
		for _, c := range g.Charts {
			if c.Kind == document.Lines {
				for _, s := range c.Series {
					if got := fmt.Sprint(s.Values); got != "[20 40 60]" {
						t.Errorf("%s: %s", s.Name, got)
					}
				}
				return
			}
		}
	}
	t.Error("no chart over time")
}

// The intervals of an execution are drawn over time, for local and for remote loads, as Figs. 2
// and 3 of Lubomski et al.; the scores stand next to those of Table 7.
func TestIntervals(t *testing.T) {
	run, samples := tradeRun()
	doc := runs.Build(run, samples, runs.Options{Papers: papers.All()})
	got := map[string]document.Chart{}
	var tables []document.Table
	for _, g := range doc.Groups {
		for _, c := range g.Charts {
			got[c.Title] = c
		}
		tables = append(tables, g.Tables...)
	}
	for title, want := range map[string]int{"Trading application: throughput over time, driven locally": 1, "Trading application: throughput over time, driven from outside": 2} {
		c, ok := got[title]
		if !ok || len(c.Series) != want || c.Kind != document.Lines {
			t.Errorf("%s: %+v; of %d charts", title, c, len(got))
			continue
		}
		for _, s := range c.Series {
			mean := 102.5
			if strings.HasPrefix(s.Name, "vm") {
				mean /= 4
			}
			if x, v := fmt.Sprint(s.X), fmt.Sprint(s.Values); x != "[6 12 18]" || v != fmt.Sprint([]float64{mean - 5, mean, mean + 5}) {
				t.Errorf("%s: %s at %s", s.Name, v, x)
			}
		}
	}
	found := false
	for _, table := range tables {
		if strings.Contains(table.Title, "in each interval of 6 s") {
			found = len(table.Rows) == 3 && len(table.Columns) == 4 && table.Rows[2][0].Text == "18 s"
		}
	}
	if !found {
		t.Errorf("no table of the intervals: %+v", tables)
	}
	if len(dataOf(doc).Suites) != 1 || dataOf(doc).Suites[0].Totals[0].Published == nil || dataOf(doc).Suites[0].Totals[0].Published.Table != 7 {
		t.Errorf("the scores of Table 7 are missing: %+v", dataOf(doc).Suites)
	}
}
