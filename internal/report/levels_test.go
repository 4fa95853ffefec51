package report_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/runs"
)

// Metrics of FitzGerald 2014.
const (
	rate = "throughput"
	took = "latency_mean"
)

// nested is a run at three levels of virtualization, with over-commitment (L0,
// L1, L2) and without (L0, L1-3, L2-2), that loses about a tenth per level. One
// case yields a throughput only.
func nested(repetitions int) (result.Run, []result.Sample) {
	run := syntheticRun(repetitions)
	run.ID, run.Experiment, run.Title = "20260314-092653-levels", "levels", "SysBench at three levels of virtualization"
	run.Description, run.Baselines, run.Planned = "What each level of KVM costs.", []string{"L0"}, 10*repetitions
	run.Guests, run.File = nil, "name: levels\n"
	run.Configurations = nil
	for _, c := range []struct{ name, stack, vcpus string }{
		{"L0", "metal", "4"}, {"L1", "vm", "4"}, {"L2", "vm/vm", "4"}, {"L1-3", "vm", "3"}, {"L2-2", "vm/vm", "2"},
	} {
		run.Configurations = append(run.Configurations, result.Configuration{Name: c.name, Stack: c.stack, Options: map[string]string{"vcpus": c.vcpus}})
	}
	both := []result.Metric{{Name: rate, Unit: "1/s", Order: result.HIB}, {Name: took, Unit: "us", Order: result.LIB}}
	run.Cases = []result.Case{
		{Suite: "sysbench", Name: "cpu", Group: "cpu", Title: "SysBench CPU", Tool: "sysbench", Primary: rate, Metrics: both},
		{Suite: "sysbench", Name: "memory_write", Group: "memory_write", Title: "SysBench memory write", Tool: "sysbench", Primary: rate, Metrics: both[:1]},
	}
	rng := rand.New(rand.NewPCG(7, 11))
	level := map[string]float64{"L0": 1, "L1": 0.99, "L1-3": 0.99, "L2": 0.9, "L2-2": 0.9}
	var samples []result.Sample
	for block := range repetitions {
		for _, c := range run.Cases {
			for _, conf := range run.Configurations {
				speed := level[conf.Name] * (1 + 0.005*rng.NormFloat64())
				for _, m := range c.Metrics {
					value := 3200 / speed
					if m.Name == rate {
						value = 310 * speed * float64(conf.VCPUs())
					}
					samples = append(samples, result.Sample{
						Run: run.ID, Configuration: conf.Name, Suite: c.Suite, Case: c.Name, Metric: m.Name, Unit: m.Unit, Order: m.Order,
						Value: value, Block: block, Repetition: block, Boot: fmt.Sprintf("%s-boot-%d", conf.Name, bootOf(conf.Name, block)),
						Start: started.Add(time.Duration(block) * time.Minute), Duration: 10,
					})
				}
			}
		}
	}
	return run, samples
}

// bootOf numbers the boots: L2 was booted for every block, the others for two.
func bootOf(configuration string, block int) int {
	if configuration == "L2" {
		return block
	}
	return block / 2
}

// thesis are rows of FitzGerald 2014, Tables 5 and 6.
var thesis = []papers.SysbenchRow{
	sysbenchRow("S390x", "L0", true, "cpu", papers.Mean{Mean: "1068.5", StdErr: "2.40"}, papers.Mean{Mean: "3.7300", StdErr: "0.00683"}),
	sysbenchRow("S390x", "L1", true, "cpu", papers.Mean{Mean: "1041.3", StdErr: "18.60"}, papers.Mean{Mean: "3.8450", StdErr: "0.0707"}),
	sysbenchRow("S390x", "L2", true, "cpu", papers.Mean{Mean: "1046.8", StdErr: "16.40"}, papers.Mean{Mean: "3.8200", StdErr: "0.0603"}),
	sysbenchRow("x86_64", "L0", true, "cpu", papers.Mean{Mean: "1251.9", StdErr: "1.37"}, papers.Mean{Mean: "3.1933", StdErr: "0.00333"}),
	sysbenchRow("x86_64", "L1", true, "cpu", papers.Mean{Mean: "1238.3", StdErr: "3.70"}, papers.Mean{Mean: "3.2267", StdErr: "0.0105"}),
	sysbenchRow("x86_64", "L2", true, "cpu", papers.Mean{Mean: "1199.2", StdErr: "3.17"}, papers.Mean{Mean: "3.3300", StdErr: "0.00816"}),
	sysbenchRow("x86_64", "L0", false, "cpu", papers.Mean{Mean: "1251.9", StdErr: "1.37"}, papers.Mean{Mean: "3.1933", StdErr: "0.00333"}),
	sysbenchRow("x86_64", "L1", false, "cpu", papers.Mean{Mean: "927.61", StdErr: "4.52"}, papers.Mean{Mean: "3.2333", StdErr: "0.0167"}),
	sysbenchRow("x86_64", "L2", false, "cpu", papers.Mean{Mean: "574.66", StdErr: "3.46"}, papers.Mean{Mean: "3.4767", StdErr: "0.0203"}),
	sysbenchRow("x86_64", "L1", true, "memory (read)", papers.Mean{Mean: "0.89967", StdErr: "0.000271"}, papers.Mean{Mean: "2776.0", StdErr: "1.42"}),
}

func sysbenchRow(architecture, level string, overcommitted bool, test string, throughput, response papers.Mean) papers.SysbenchRow {
	return papers.SysbenchRow{Architecture: architecture, Level: level, Overcommitted: overcommitted, Test: test, Throughput: throughput, Response: response}
}

func buildNested() document.Document {
	run, samples := nested(6)
	return runs.Build(run, samples, runs.Options{Dir: "runs/20260314-levels", Papers: papers.Figures{Levels: thesis}})
}

// Each step is what package stats says of the samples.
func TestStepsAreThoseOfTheSamples(t *testing.T) {
	run, samples := nested(6)
	doc := runs.Build(run, samples, runs.Options{})
	moments := func(configuration, metric string) stats.Moments {
		s, err := stats.Summarize(valuesOf(samples, "cpu", configuration, metric))
		if err != nil {
			t.Fatal(err)
		}
		return s.Moments
	}
	for _, metric := range []string{rate, took} {
		for _, pair := range [][2]string{{"L0", "L1"}, {"L0", "L1-3"}, {"L1", "L2"}, {"L1-3", "L2-2"}} {
			below, above := moments(pair[0], metric), moments(pair[1], metric)
			s := estimateOf(t, doc, "cpu", pair[1], metric).Step
			welch, err := stats.Welch(above, below)
			if err != nil {
				t.Fatal(err)
			}
			if s.Below != pair[0] || !near(s.Change, above.Mean/below.Mean-1) || !near(s.T, welch.Statistic) || !near(s.DF, welch.DF) ||
				!near(s.P, welch.P) || !near(s.RelStdErr, above.StdErr/above.Mean) {
				t.Errorf("%s, %v: %+v, want %+v", metric, pair, s, welch)
			}
			e := estimateOf(t, doc, "cpu", pair[1], metric)
			if c := e.Against(pair[0]); c != nil && (s.Comparison.Badge != c.Badge || s.Comparison.Interval != c.Interval) {
				t.Errorf("%s, %v: the step has the comparison %+v, the table %+v", metric, pair, s.Comparison, c)
			} else if c == nil && !strings.HasSuffix(s.Comparison.Family, "against the level below") {
				t.Errorf("%s, %v: family %q", metric, pair, s.Comparison.Family)
			}
		}
	}
	worse := estimateOf(t, doc, "cpu", "L2", rate).Step
	if worse.Comparison.Verdict != stats.Worse || worse.T >= 0 || estimateOf(t, doc, "cpu", "L2", took).Step.Comparison.Verdict != stats.Worse {
		t.Errorf("a tenth less throughput, and as much more response time: %+v", worse)
	}
}

func TestFiguresPerVCPU(t *testing.T) {
	run, samples := nested(6)
	doc := runs.Build(run, samples, runs.Options{})
	total, below := estimateOf(t, doc, "cpu", "L1-3", rate), estimateOf(t, doc, "cpu", "L0", rate)
	want := (float64(total.Mean)/3)/(float64(below.Mean)/4) - 1
	if s := total.Step; s.VCPUs != 3 || !near(s.PerVCPU, float64(total.Mean)/3) || math.Abs(float64(s.ChangePerVCPU)-want) > 1e-12 {
		t.Errorf("per vCPU: %+v, want a change of %v", s, want)
	}
	if s := estimateOf(t, doc, "cpu", "L1-3", took).Step; s.PerVCPU.Defined() {
		t.Errorf("a response time was divided by the vCPUs: %+v", s)
	}
	for name, options := range map[string]map[string]string{"all the same": {"vcpus": "4"}, "unknown": nil} {
		run, samples := nested(6)
		for i := range run.Configurations {
			run.Configurations[i].Options = options
		}
		doc := runs.Build(run, samples, runs.Options{})
		g := levelGroup(t, doc, "cpu")
		for _, c := range g.Tables[0].Columns {
			if strings.Contains(c.Name, "vCPU") {
				t.Errorf("vCPUs %s: column %q", name, c.Name)
			}
		}
	}
}

// levelGroup finds the section of a case by levels.
func levelGroup(t *testing.T, doc document.Document, name string) document.Group {
	t.Helper()
	title := map[string]string{"cpu": "SysBench CPU", "memory_write": "SysBench memory write"}[name]
	i := slices.IndexFunc(doc.Groups, func(g document.Group) bool { return g.Title == title+": levels of virtualization" })
	if i < 0 {
		t.Fatalf("no section on %s by levels", name)
	}
	return doc.Groups[i]
}

func TestLevelCharts(t *testing.T) {
	doc := buildNested()
	g := levelGroup(t, doc, "cpu")
	if len(g.Charts) != 2 {
		t.Fatalf("%d charts, want throughput and response time", len(g.Charts))
	}
	c := g.Charts[0]
	if diff := cmp.Diff([]string{"L0", "L1", "L2"}, c.Categories); diff != "" || c.Kind != document.Levels || len(c.Series) != 2 {
		t.Fatalf("chart %+v", c)
	}
	if c.Series[1].Name != "L0 → L1-3 → L2-2" {
		t.Errorf("second series %q", c.Series[1].Name)
	}
	e := estimateOf(t, doc, "cpu", "L2-2", rate)
	if s := c.Series[1]; s.Values[2] != e.Mean || s.Low[2] != e.Mean-e.StdErr || s.High[2] != e.Mean+e.StdErr || s.Values[0] != c.Series[0].Values[0] {
		t.Errorf("series %+v, want mean and standard error of %+v", s, e)
	}
	if n := len(levelGroup(t, doc, "memory_write").Charts); n != 1 {
		t.Errorf("%d charts of a case with throughput only", n)
	}
}

func TestPublishedMatchesLevels(t *testing.T) {
	doc := buildNested()
	tests := []struct {
		configuration, metric string
		want                  string // architecture, mean, ΔL
	}{
		{"L0", rate, "S390x 1068.5 –; x86_64 1251.9 –"},
		{"L1", rate, "S390x 1041.3 -2.55 %; x86_64 1238.3 -1.09 %"},
		{"L2", took, "S390x 3820 -0.65 %; x86_64 3330 +3.20 %"}, // in us, as ours
		{"L1-3", rate, "x86_64 927.61 -25.90 %"},
		{"L2-2", rate, "x86_64 574.66 -38.05 %"}, // printed -38.04, cut
	}
	for _, tt := range tests {
		var got []string
		for _, p := range estimateOf(t, doc, "cpu", tt.configuration, tt.metric).Step.Published {
			got = append(got, fmt.Sprintf("%s %s %s", p.Architecture, fmt.Sprintf("%.6g", float64(p.Mean)), document.ChangeCell(p.Change).Text))
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%s in %s: got %q, want %q", tt.metric, tt.configuration, got, tt.want)
		}
	}
	if p := estimateOf(t, doc, "memory_write", "L1", rate).Step.Published; p != nil {
		t.Errorf("memory write has published means: %+v", p)
	}
	if n := len(levelGroup(t, doc, "memory_write").Tables); n != 2 {
		t.Errorf("%d tables for a case of one metric of which nothing is published, want 2", n)
	}
	run, samples := nested(6)
	for i := range run.Configurations {
		run.Configurations[i].Name = "x" + run.Configurations[i].Name
	}
	run.Baselines = nil
	for i := range samples {
		samples[i].Configuration = "x" + samples[i].Configuration
	}
	for _, e := range dataOf(runs.Build(run, samples, runs.Options{Papers: papers.Figures{Levels: thesis}})).Estimates {
		if e.Step == nil || e.Step.Published != nil {
			t.Errorf("%s, not named after a level: %+v", e.Configuration, e.Step)
		}
	}
}

// Missing, constant or too few values are reported instead of tested.
func TestLevelsWithHoles(t *testing.T) {
	run, samples := nested(6)
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool {
		return s.Configuration == "L2" || s.Configuration == "L2-2" && s.Block > 0
	})
	for i := range samples {
		if c := samples[i].Configuration; samples[i].Metric == rate && (c == "L0" || c == "L1") {
			samples[i].Value = 1000
		}
	}
	run.State = result.Interrupted
	g := levelGroup(t, runs.Build(run, samples, runs.Options{}), "cpu")
	want := map[string]string{
		"throughput L0 → L1":     "not known: nothing varies",
		"throughput L0 → L1-3":   "slower",
		"throughput L1 → L2":     "L2 missing",
		"throughput L1-3 → L2-2": "not known: needs 5 more blocks",
	}
	tests := g.Tables[2]
	for _, row := range tests.Rows[:4] {
		key := row[0].Text + " " + row[1].Text
		if got := row[len(row)-1].Short; got != want[key] {
			t.Errorf("%s: %q, want %q", key, got, want[key])
		}
	}
	if c := tests.Rows[0][2].Text; c != "+0.00 %" {
		t.Errorf("change between equal constants: %q", c)
	}
	if !tests.Rows[2][5].Missing || tests.Rows[2][5].Text != document.None {
		t.Errorf("p without samples: %+v", tests.Rows[2][5])
	}
	if g.Charts[0].Series[0].Values[2].Defined() {
		t.Error("a bar for a level without samples")
	}
}

// Across levels a boot is the unit of repetition: a note names guests with fewer boots.
func TestBootNotes(t *testing.T) {
	notes := strings.Join(levelGroup(t, buildNested(), "cpu").Tables[2].Notes, "\n")
	for name, want := range map[string]bool{"L1": true, "L1-3": true, "L2-2": true, "L2": false, "L0": false} {
		if got := strings.Contains(notes, name+" (6 times in 3 boots)"); got != want {
			t.Errorf("note on the boots of %s: %v, want %v\n%s", name, got, want, notes)
		}
	}
}
