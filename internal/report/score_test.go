package report_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/runs"
)

// multilevel is a run of a suite in six configurations of Lubomski et al., Table
// 1. PostMark has failed in vm.mnt, and one case yields a second metric.
func multilevel(repetitions int) (result.Run, []result.Sample) {
	run := syntheticRun(repetitions)
	run.ID, run.Experiment, run.Title = "20260314-092653-disk", "multilevel-disk", "How the disk suite fares with each layer"
	run.Description, run.Baselines, run.Planned = "Five cases of the suite disk.", []string{"metal.local", "vm.local"}, 30*repetitions
	run.Guests, run.File, run.Tools = nil, "name: multilevel-disk\n", map[string]string{"sqlite3": "3.40.1"}
	run.Configurations = nil
	for _, c := range []struct{ name, stack, storage string }{
		{"metal.local", "metal", ""}, {"metal.aufs", "metal/containerd", "overlay"}, {"metal.mnt", "metal/containerd", "volume"},
		{"vm.local", "vm", ""}, {"vm.aufs", "vm/containerd", "overlay"}, {"vm.mnt", "vm/containerd", "volume"},
	} {
		options := map[string]string{"drive": "local", "profile": "quick", "vcpus": "2", "memory": "2GiB"}
		if c.storage != "" {
			options["storage"] = c.storage
		}
		run.Configurations = append(run.Configurations, result.Configuration{Name: c.name, Stack: c.stack, Options: options})
	}
	rates := []result.Metric{{Name: rate, Unit: "MB/s", Order: result.HIB}}
	seconds := []result.Metric{{Name: "seconds", Unit: "s", Order: result.LIB}}
	run.Cases = []result.Case{
		{Suite: "disk", Name: "sqlite", Title: "Insertions into a database", Tool: "sqlite3", Primary: "seconds", Metrics: seconds},
		{Suite: "disk", Name: "dbench-1", Title: "File server load of 1 clients", Tool: "dbench", Primary: rate,
			Metrics: append(rates[:1:1], result.Metric{Name: "latency_max", Unit: "ms", Order: result.LIB})},
		{Suite: "disk", Name: "dbench-12", Title: "File server load of 12 clients", Tool: "dbench", Primary: rate, Metrics: rates},
		{Suite: "disk", Name: "postmark", Tool: "postmark", Primary: rate, Metrics: []result.Metric{{Name: rate, Unit: "transactions/s", Order: result.HIB}}},
		{Suite: "disk", Name: "gzip-file", Title: "Compression of a file by gzip", Tool: "gzip", Primary: "seconds", Metrics: seconds},
	}
	for i := range run.Cases {
		run.Cases[i].Group = run.Cases[i].Name
	}
	for block := range repetitions {
		run.Failures = append(run.Failures, result.Failure{Configuration: "vm.mnt", Case: "postmark", Block: block, Attempts: 2, Error: "out of files!"})
	}
	return run, multilevelSamples(run)
}

// multilevelSamples draws the samples: a VM halves the speed of processors and
// doubles that of dbench, layers cost a tenth.
func multilevelSamples(run result.Run) []result.Sample {
	rng := rand.New(rand.NewPCG(7, 11))
	slowness := map[string]float64{"metal.local": 1, "metal.aufs": 1.1, "metal.mnt": 1.02, "vm.local": 2, "vm.aufs": 2.2, "vm.mnt": 2.04}
	var samples []result.Sample
	for block := range run.Repetitions {
		for _, c := range run.Cases {
			for _, conf := range run.Configurations {
				slow := slowness[conf.Name] * (1 + 0.02*rng.NormFloat64())
				if strings.HasPrefix(c.Name, "dbench") && strings.HasPrefix(conf.Name, "vm.") {
					slow /= 4
				}
				if c.Name == "postmark" && conf.Name == "vm.mnt" {
					continue
				}
				for _, m := range c.Metrics {
					value := 12.5 * slow
					if m.Order == result.HIB {
						value = 300 / slow
					}
					samples = append(samples, result.Sample{
						Run: run.ID, Configuration: conf.Name, Suite: c.Suite, Case: c.Name, Metric: m.Name, Unit: m.Unit, Order: m.Order,
						Value: value, Block: block, Repetition: block, Boot: "boot", Start: started.Add(time.Duration(block) * time.Minute), Duration: 4,
					})
				}
			}
		}
	}
	return samples
}

// paperDisk is what Lubomski et al. print of sqlite and gzip-file, Tables 5 and 6.
func paperDisk() runs.Options {
	o := runs.Options{Dir: "runs/20260314-disk"}
	names := map[string]string{"SQLite": "sqlite", "Gzip Compression": "gzip-file"}
	for _, s := range papers.DiskScores() {
		if name := names[s.Case]; name != "" {
			s.Case = name
			o.Papers.Scores = append(o.Papers.Scores, s)
		}
	}
	o.Papers.Totals = papers.Totals()
	return o
}

func buildSuite() document.Document {
	run, samples := multilevel(6)
	return runs.Build(run, samples, paperDisk())
}

// groupTitled finds a section by its title.
func groupTitled(t *testing.T, doc document.Document, title string) document.Group {
	t.Helper()
	for _, g := range doc.Groups {
		if g.Title == title {
			return g
		}
	}
	t.Fatalf("no section %q", title)
	return document.Group{}
}

// The scores and totals of Tables 5 and 6 come out of a run with the results
// that are printed there.
func TestPaperScoresComeOut(t *testing.T) {
	run, _ := multilevel(1)
	run.Cases, run.Failures = nil, nil
	var samples []result.Sample
	for _, s := range papers.DiskScores() {
		m := result.Metric{Name: "figure", Unit: s.Unit, Order: s.Order}
		c := result.Case{Suite: "disk", Name: s.Case, Group: s.Case, Primary: m.Name, Metrics: []result.Metric{m}}
		if !slices.ContainsFunc(run.Cases, func(o result.Case) bool { return o.Name == c.Name }) {
			run.Cases = append(run.Cases, c)
		}
		samples = append(samples, result.Sample{Run: run.ID, Configuration: s.Configuration, Suite: "disk", Case: s.Case,
			Metric: m.Name, Unit: m.Unit, Order: m.Order, Value: s.Value.Float()})
	}
	doc := runs.Build(run, samples, runs.Options{})
	for _, s := range papers.DiskScores() {
		e := estimateOf(t, doc, s.Case, s.Configuration, "figure")
		if got := document.Decimal(e.Score.Score, 2); got != string(s.Score) || !e.Score.Counted {
			t.Errorf("%s in %s: score %s, printed %s", s.Case, s.Configuration, got, s.Score)
		}
	}
	if len(dataOf(doc).Suites) != 1 || dataOf(doc).Suites[0].Cases != 18 || dataOf(doc).Suites[0].Baseline != "metal.local" {
		t.Fatalf("suites %+v", dataOf(doc).Suites)
	}
	checked := 0
	for _, printed := range papers.Totals() {
		for _, total := range dataOf(doc).Suites[0].Totals {
			if printed.Suite == "disk" && printed.Configuration == total.Configuration {
				checked++
				if !near(total.Rounded, printed.Total.Float()) {
					t.Errorf("%s: total of rounded scores %v, printed %s", total.Configuration, total.Rounded, printed.Total)
				}
			}
		}
	}
	if checked != 6 {
		t.Errorf("%d totals checked, want 6", checked)
	}
}

// What is missing is a hole with its reason, and counts for nobody.
func TestMissingScores(t *testing.T) {
	run, samples := multilevel(6)
	for i := range samples {
		if samples[i].Case == "dbench-12" && samples[i].Configuration == "vm.aufs" {
			samples[i].Value = 0
		}
	}
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return s.Configuration == "metal.mnt" })
	doc := runs.Build(run, samples, runs.Options{})
	scores := groupTitled(t, doc, "Suite disk: scores").Tables[0]
	want := []string{
		"metal.mnt: no results in any case. The scores are relative to the other configurations.",
		"dbench-12 has no score in vm.aufs (its mean 0 MB/s is not positive): it counts in no total.",
		"postmark has no score in vm.mnt (missing: failed 2 times: out of files!): it counts in no total.",
	}
	if diff := cmp.Diff(want, scores.Notes[1:4]); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if c := scores.Rows[3][7]; !c.Missing || c.Text != document.None {
		t.Errorf("score of a failed case: %+v", c)
	}
	if e := estimateOf(t, doc, "postmark", "vm.local", rate); e.Score.Counted || !e.Score.Score.Defined() {
		t.Errorf("score of a case that another configuration lacks: %+v", e.Score)
	}
	if s := dataOf(doc).Suites[0]; s.Cases != 3 || len(s.Missing) != 5+2 || s.Totals[2].Total.Defined() {
		t.Errorf("%d cases, %d missing, total without results %v", s.Cases, len(s.Missing), s.Totals[2])
	}
	for _, c := range groupTitled(t, doc, "Suite disk: scores").Charts {
		if strings.HasSuffix(c.ID, "storage") && !slices.Equal(c.Categories, []string{"vm"}) {
			t.Errorf("pairs %v, want vm only: metal.mnt has no total", c.Categories)
		}
	}
}

func TestScoresWithoutTotals(t *testing.T) {
	run, samples := multilevel(6)
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool {
		return (s.Configuration == "metal.local") == (s.Case != "postmark")
	})
	doc := runs.Build(run, samples, runs.Options{})
	g := groupTitled(t, doc, "Suite disk: scores")
	if len(g.Charts) != 0 || g.Tables[0].Sums != 0 || len(g.Tables[0].Rows) != 5 {
		t.Errorf("%d charts, %d rows of totals where no case counts", len(g.Charts), g.Tables[0].Sums)
	}
	if want := "Suite disk has no totals: no case has results in every configuration."; doc.Headlines[0] != want {
		t.Errorf("headline %q", doc.Headlines[0])
	}
	if empty := runs.Build(run, nil, runs.Options{}); len(dataOf(empty).Suites) > 0 {
		t.Errorf("scores without samples: %+v", dataOf(empty).Suites)
	}
	_, samples = multilevel(6)
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return s.Configuration == "metal.local" })
	doc = runs.Build(run, samples, runs.Options{})
	if dataOf(doc).Suites[0].Baseline != "metal.aufs" || !slices.ContainsFunc(doc.Warnings, func(w string) bool { return strings.Contains(w, "metal.local has no results in the suites") }) {
		t.Errorf("baseline %q, warnings %q", dataOf(doc).Suites[0].Baseline, doc.Warnings)
	}
}

// The primary metrics of a suite are one family against each baseline, whatever they are
// called.
func TestFamiliesOfASuite(t *testing.T) {
	run, samples := multilevel(6)
	doc := runs.Build(run, samples, runs.Options{})
	count := map[string]int{}
	for _, e := range dataOf(doc).Estimates {
		for _, c := range e.Comparisons {
			if e.Primary && c.First {
				count[c.Family]++
			}
		}
	}
	for _, f := range dataOf(doc).Families {
		if n, has := count[f.Name]; has && f.Tests > n {
			t.Errorf("%+v: %d comparisons", f, n)
		}
	}
	if len(count) != 2 {
		t.Errorf("families of the primary metrics: %v, want one for each baseline", count)
	}
}

func TestSuiteTable(t *testing.T) {
	run, samples := multilevel(2)
	g := groupTitled(t, runs.Build(run, samples, runs.Options{}), "Suite disk: case by case")
	main := g.Tables[0]
	if len(main.Rows) != 5*6 || len(g.Tables) != 2 || !g.Tables[1].Minor || len(g.Tables[1].Rows) != 6 {
		t.Fatalf("%d rows in %d tables", len(main.Rows), len(g.Tables))
	}
	few := []string{
		"No verdict against metal.local: it takes 6 blocks that vary.",
		"No verdict against vm.local: it takes 6 blocks that vary.",
	}
	if diff := cmp.Diff(few, main.Notes); diff != "" {
		t.Errorf("notes of two repetitions (-want +got):\n%s", diff)
	}
	run, samples = multilevel(1)
	for i, name := range run.Baselines {
		want := "No verdict against " + name + ": it takes 6 blocks that vary."
		if got := groupTitled(t, runs.Build(run, samples, runs.Options{}), "Suite disk: case by case").Tables[0].Notes; len(got) != 2 || got[i] != want {
			t.Errorf("notes of one repetition %q, want %q", got, want)
		}
	}
	for _, row := range main.Rows {
		for _, c := range row {
			if strings.Contains(c.Text, "too few") {
				t.Errorf("row of %s in %s: %q", row[0].Text, row[2].Text, c.Text)
			}
		}
	}
	run, samples = multilevel(6)
	main = groupTitled(t, runs.Build(run, samples, runs.Options{}), "Suite disk: case by case").Tables[0]
	verdicts := map[string]string{}
	for _, row := range main.Rows {
		verdicts[row[0].Text+" "+row[2].Text] = row[7].Text
	}
	for cell, want := range map[string]string{
		"sqlite metal.local": "", "sqlite vm.aufs": "slower", "dbench-1 vm.aufs": "faster", "postmark vm.mnt": "missing", "postmark vm.local": "slower",
	} {
		if verdicts[cell] != want {
			t.Errorf("%s: verdict %q, want %q", cell, verdicts[cell], want)
		}
	}
	if main.Notes != nil {
		t.Errorf("notes %q on six repetitions", main.Notes)
	}
}

// In the chart of a suite above 1 is better for every case.
func TestSuiteCharts(t *testing.T) {
	doc := buildSuite()
	c := groupTitled(t, doc, "Suite disk: case by case").Charts[0]
	if diff := cmp.Diff([]string{"sqlite", "dbench-1", "dbench-12", "postmark", "gzip-file"}, c.Categories); diff != "" || len(c.Series) != 5 {
		t.Fatalf("chart %+v", c)
	}
	vm := c.Series[2]
	of := estimateOf(t, doc, "sqlite", "vm.local", "seconds").Against("metal.local")
	if vm.Name != "vm.local" || !near(vm.Values[0], 1/float64(of.Ratio)) || !near(vm.Low[0], 1/float64(of.Interval.High)) || vm.Low[0] > vm.Values[0] || vm.High[0] < vm.Values[0] {
		t.Errorf("sqlite in %s: %v [%v, %v], compared %+v", vm.Name, vm.Values[0], vm.Low[0], vm.High[0], of)
	}
	if of := estimateOf(t, doc, "dbench-1", "vm.local", rate).Against("metal.local"); vm.Values[1] != of.Ratio {
		t.Errorf("dbench-1: %v, want %v", vm.Values[1], of.Ratio)
	}
}

// totalsOf are the totals of a run's suite by configuration, from its samples: the sum of the
// means over the highest in their case, those of cases where lower is better subtracted. Cases
// that some configuration lacks do not count.
func totalsOf(run result.Run, samples []result.Sample) map[string]float64 {
	totals := map[string]float64{}
	for _, c := range run.Cases {
		means, highest := map[string]float64{}, 0.0
		for _, conf := range run.Configurations {
			values := valuesOf(samples, c.Name, conf.Name, c.Primary)
			for _, v := range values {
				means[conf.Name] += v / float64(len(values))
			}
			highest = max(highest, means[conf.Name])
		}
		if len(means) < len(run.Configurations) {
			continue
		}
		sign := 1.0
		if c.Metrics[0].Order == result.LIB {
			sign = -1
		}
		for name, mean := range means {
			totals[name] += sign * mean / highest
		}
	}
	return totals
}

// The bars are the totals that follow from the samples: one for each configuration, and side by
// side those of configurations that differ in their storage only.
func TestScoreCharts(t *testing.T) {
	run, samples := multilevel(6)
	charts := groupTitled(t, buildSuite(), "Suite disk: scores").Charts
	if len(charts) != 3 {
		t.Fatalf("%d charts, want totals, geometric means and storage", len(charts))
	}
	want := totalsOf(run, samples)
	bars := charts[0]
	if diff := cmp.Diff([]string{"metal.local", "metal.aufs", "metal.mnt", "vm.local", "vm.aufs", "vm.mnt"}, bars.Categories); diff != "" {
		t.Fatalf("bars (-want +got):\n%s", diff)
	}
	for i, name := range bars.Categories {
		if !near(bars.Series[0].Values[i], want[name]) {
			t.Errorf("bar of %s: %v, want %v", name, bars.Series[0].Values[i], want[name])
		}
	}
	pairs := charts[2]
	if diff := cmp.Diff([]string{"metal", "vm"}, pairs.Categories); diff != "" {
		t.Fatalf("pairs (-want +got):\n%s", diff)
	}
	for i, storage := range []string{"aufs", "mnt"} {
		for k, machine := range pairs.Categories {
			if got := pairs.Series[i]; got.Name != storage || !near(got.Values[k], want[machine+"."+storage]) {
				t.Errorf("%s of %s: %v, want %v", machine, got.Name, got.Values[k], want[machine+"."+storage])
			}
		}
	}
}

// The figures of the paper are listed only with the cases and configurations that it has.
func TestPublishedScores(t *testing.T) {
	doc := buildSuite()
	tables := groupTitled(t, doc, "Suite disk: scores").Tables
	if len(tables) != 2 || len(tables[1].Rows) != 4 {
		t.Fatalf("%d tables", len(tables))
	}
	paper := tables[1]
	for _, tt := range []struct {
		row, column int
		want        string
	}{{0, 1, "paper 1.00"}, {0, 5, "paper 0.28"}, {1, 2, "paper 0.95"}, {2, 1, "paper 7.06"}, {2, 4, "paper 11.4"}, {3, 1, "paper 18"}} {
		if got := paper.Rows[tt.row][tt.column]; got.Remark != tt.want || !strings.HasSuffix(got.Short, ", "+tt.want) {
			t.Errorf("%s, %s: %+v, want %q", paper.Rows[tt.row][0].Text, paper.Columns[tt.column].Name, got, tt.want)
		}
	}
	if !strings.Contains(paper.Notes[0], "Tables 5 and 6, as printed") || !strings.Contains(paper.Notes[1], "its own configurations") {
		t.Errorf("notes %q", paper.Notes)
	}
	run, samples := multilevel(6)
	if n := len(groupTitled(t, runs.Build(run, samples, runs.Options{}), "Suite disk: scores").Tables); n != 1 {
		t.Errorf("%d tables with nothing published", n)
	}
	for i := range run.Configurations {
		run.Configurations[i].Name = "x" + run.Configurations[i].Name
	}
	for i := range samples {
		samples[i].Configuration = "x" + samples[i].Configuration
	}
	run.Baselines = nil
	doc = runs.Build(run, samples, paperDisk())
	if n := len(groupTitled(t, doc, "Suite disk: scores").Tables); n != 1 {
		t.Errorf("%d tables on configurations that are not the paper's", n)
	}
	if dataOf(doc).Suites[0].Baseline != "xmetal.local" {
		t.Errorf("baseline %q without one in the run, want the first", dataOf(doc).Suites[0].Baseline)
	}
}

// A suite in the paper's configurations has one table by level, not a section
// for every case.
func TestSuiteLevels(t *testing.T) {
	doc := buildSuite()
	g := groupTitled(t, doc, "Suite disk: levels of virtualization")
	if len(doc.Groups) != 3 || len(g.Tables) != 1 || len(g.Tables[0].Rows) != 5*3 {
		t.Fatalf("%d sections, %d tables by level", len(doc.Groups), len(g.Tables))
	}
	row, step := g.Tables[0].Rows[1], estimateOf(t, doc, "sqlite", "vm.aufs", "seconds").Step
	if row[2].Text != "metal.aufs → vm.aufs" || row[3].Text != document.ChangeCell(step.Change).Text || row[8].Badge != "slower" {
		t.Errorf("row %+v, step %+v", row, step)
	}
	if failed := g.Tables[0].Rows[3*3+2]; failed[8].Short != "vm.mnt missing" || !failed[3].Missing {
		t.Errorf("step to a failed case: %+v", failed)
	}
	run, samples := multilevel(6)
	names := map[string]string{"metal.local": "L0", "vm.local": "L1"}
	run.Configurations = slices.DeleteFunc(run.Configurations, func(c result.Configuration) bool { return names[c.Name] == "" })
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return names[s.Configuration] == "" })
	for i := range run.Configurations {
		run.Configurations[i].Name = names[run.Configurations[i].Name]
	}
	for i := range samples {
		samples[i].Configuration = names[samples[i].Configuration]
	}
	run.Baselines = []string{"L0"}
	if doc = runs.Build(run, samples, runs.Options{}); len(doc.Groups) != 2+5 {
		t.Errorf("%d sections on a suite at the thesis' levels, want scores, cases and one for each case", len(doc.Groups))
	}
}
