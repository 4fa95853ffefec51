package report

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest/internal/measure/result"
	"unnest/internal/report/papers"
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
	rate := []result.Metric{{Name: throughput, Unit: "MB/s", Order: result.HIB}}
	seconds := []result.Metric{{Name: "seconds", Unit: "s", Order: result.LIB}}
	run.Cases = []result.Case{
		{Suite: "disk", Name: "sqlite", Title: "Insertions into a database", Tool: "sqlite3", Primary: "seconds", Metrics: seconds},
		{Suite: "disk", Name: "dbench-1", Title: "File server load of 1 clients", Tool: "dbench", Primary: throughput,
			Metrics: append(rate[:1:1], result.Metric{Name: "latency_max", Unit: "ms", Order: result.LIB})},
		{Suite: "disk", Name: "dbench-12", Title: "File server load of 12 clients", Tool: "dbench", Primary: throughput, Metrics: rate},
		{Suite: "disk", Name: "postmark", Tool: "postmark", Primary: throughput, Metrics: []result.Metric{{Name: throughput, Unit: "transactions/s", Order: result.HIB}}},
		{Suite: "disk", Name: "gzip-file", Title: "Compression of a file by gzip", Tool: "gzip", Primary: "seconds", Metrics: seconds},
	}
	for i := range run.Cases {
		run.Cases[i].Group = run.Cases[i].Name
	}
	run.Failures = []result.Failure{{Configuration: "vm.mnt", Case: "postmark", Block: 0, Attempts: 2, Error: "out of files!"}}
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
func paperDisk() Options {
	o := Options{Dir: "runs/20260314-disk"}
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

func buildSuite() Document {
	run, samples := multilevel(6)
	return Build(run, samples, paperDisk())
}

// groupTitled finds a section by its title.
func groupTitled(t *testing.T, doc Document, title string) Group {
	t.Helper()
	for _, g := range doc.Groups {
		if g.Title == title {
			return g
		}
	}
	t.Fatalf("no section %q", title)
	return Group{}
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
	doc := Build(run, samples, Options{})
	for _, s := range papers.DiskScores() {
		e := estimateOf(t, doc, s.Case, s.Configuration, "figure")
		if got := decimal(e.Score.Score, 2); got != string(s.Score) || !e.Score.Counted {
			t.Errorf("%s in %s: score %s, printed %s", s.Case, s.Configuration, got, s.Score)
		}
	}
	if len(doc.Suites) != 1 || doc.Suites[0].Cases != 18 || doc.Suites[0].Baseline != "metal.local" {
		t.Fatalf("suites %+v", doc.Suites)
	}
	checked := 0
	for _, printed := range papers.Totals() {
		for _, total := range doc.Suites[0].Totals {
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

func TestScoredSuites(t *testing.T) {
	local := func(name string) result.Case { return result.Case{Suite: "s", Name: name, Group: name} }
	sized := func(group string, size int) result.Case {
		return result.Case{Suite: "network", Name: fmt.Sprintf("%s/%d", group, size), Group: group, Size: size}
	}
	conf := func(profile string, names ...string) []result.Configuration {
		var all []result.Configuration
		for _, name := range names {
			all = append(all, result.Configuration{Name: name, Options: map[string]string{"profile": profile}})
		}
		return all
	}
	tests := []struct {
		name           string
		configurations []result.Configuration
		cases          []result.Case
		want           string
	}{
		{"cases of a suite", conf("quick", "a", "b"), []result.Case{local("x"), local("y")}, "s: x y"},
		{"one case", conf("quick", "a", "b"), []result.Case{local("x")}, ""},
		{"one configuration", conf("quick", "a"), []result.Case{local("x"), local("y")}, ""},
		{"loads of another study", conf("", "NoCont", "NAT"), []result.Case{sized("udp_rr", 64), sized("tcp_stream", 64)}, ""},
		{"loads in the paper's configurations", conf("", "vm.remote", "vm.aufs.nat"), []result.Case{sized("udp_rr", 64), sized("tcp_stream", 64)}, "network: udp_rr/64 tcp_stream/64"},
		{"swept loads", conf("", "vm.remote", "vm.aufs.nat"), []result.Case{sized("udp_rr", 64), sized("udp_rr", 256), sized("tcp_stream", 64)}, ""},
		{"two suites", conf("quick", "a", "b"), []result.Case{local("x"), {Suite: "t", Name: "z"}, local("y")}, "s: x y"},
		{"no configurations", nil, []result.Case{local("x"), local("y")}, ""},
	}
	for _, tt := range tests {
		var got []string
		for _, cases := range scoredSuites(result.Run{Configurations: tt.configurations, Cases: tt.cases}) {
			line := cases[0].Suite + ":"
			for _, c := range cases {
				line += " " + c.Name
			}
			got = append(got, line)
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
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
	doc := Build(run, samples, Options{})
	scores := groupTitled(t, doc, "Suite disk: scores").Tables[0]
	want := []string{
		"metal.mnt: no results in any case. The scores are relative to the other configurations.",
		"dbench-12 has no score in vm.aufs (its mean 0 MB/s is not positive): it counts in no total.",
		"postmark has no score in vm.mnt (missing: failed 2 times: out of files!): it counts in no total.",
	}
	if diff := cmp.Diff(want, scores.Notes[1:4]); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if c := scores.Rows[3][7]; !c.Missing || c.Text != none {
		t.Errorf("score of a failed case: %+v", c)
	}
	if e := estimateOf(t, doc, "postmark", "vm.local", throughput); e.Score.Counted || !e.Score.Score.Defined() {
		t.Errorf("score of a case that another configuration lacks: %+v", e.Score)
	}
	if s := doc.Suites[0]; s.Cases != 3 || len(s.Missing) != 5+2 || s.Totals[2].Total.Defined() {
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
	doc := Build(run, samples, Options{})
	g := groupTitled(t, doc, "Suite disk: scores")
	if len(g.Charts) != 0 || g.Tables[0].Sums != 0 || len(g.Tables[0].Rows) != 5 {
		t.Errorf("%d charts, %d rows of totals where no case counts", len(g.Charts), g.Tables[0].Sums)
	}
	if want := "Suite disk has no totals: no case has results in every configuration."; doc.Headlines[0] != want {
		t.Errorf("headline %q", doc.Headlines[0])
	}
	if empty := Build(run, nil, Options{}); len(empty.Suites) > 0 {
		t.Errorf("scores without samples: %+v", empty.Suites)
	}
	_, samples = multilevel(6)
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return s.Configuration == "metal.local" })
	doc = Build(run, samples, Options{})
	if doc.Suites[0].Baseline != "metal.aufs" || !slices.ContainsFunc(doc.Warnings, func(w string) bool { return strings.Contains(w, "metal.local has no results in the suites") }) {
		t.Errorf("baseline %q, warnings %q", doc.Suites[0].Baseline, doc.Warnings)
	}
}

// The primary metrics of a suite are one family against each baseline, whatever they are
// called.
func TestFamiliesOfASuite(t *testing.T) {
	run, samples := multilevel(6)
	doc := Build(run, samples, Options{})
	count := map[string]int{}
	for _, e := range doc.Estimates {
		for _, c := range e.Comparisons {
			if e.Primary && c.first {
				count[c.Family]++
			}
		}
	}
	for _, f := range doc.Families {
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
	g := groupTitled(t, Build(run, samples, Options{}), "Suite disk: case by case")
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
		if got := groupTitled(t, Build(run, samples, Options{}), "Suite disk: case by case").Tables[0].Notes; len(got) != 2 || got[i] != want {
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
	main = groupTitled(t, Build(run, samples, Options{}), "Suite disk: case by case").Tables[0]
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
	of := estimateOf(t, doc, "sqlite", "vm.local", "seconds").against("metal.local")
	if vm.Name != "vm.local" || !near(vm.Values[0], 1/float64(of.Ratio)) || !near(vm.Low[0], 1/float64(of.Interval.High)) || vm.Low[0] > vm.Values[0] || vm.High[0] < vm.Values[0] {
		t.Errorf("sqlite in %s: %v [%v, %v], compared %+v", vm.Name, vm.Values[0], vm.Low[0], vm.High[0], of)
	}
	if of := estimateOf(t, doc, "dbench-1", "vm.local", throughput).against("metal.local"); vm.Values[1] != of.Ratio {
		t.Errorf("dbench-1: %v, want %v", vm.Values[1], of.Ratio)
	}
}

func TestScoreCharts(t *testing.T) {
	doc := buildSuite()
	charts := groupTitled(t, doc, "Suite disk: scores").Charts
	if len(charts) != 3 {
		t.Fatalf("%d charts, want totals, geometric means and storage", len(charts))
	}
	for i, total := range doc.Suites[0].Totals {
		if charts[0].Categories[i] != total.Configuration || charts[0].Series[0].Values[i] != total.Total {
			t.Errorf("bar %d: %s %v, want %+v", i, charts[0].Categories[i], charts[0].Series[0].Values[i], total)
		}
	}
	pairs, totals := charts[2], doc.Suites[0].Totals
	if diff := cmp.Diff([]string{"metal", "vm"}, pairs.Categories); diff != "" {
		t.Fatalf("pairs %s", diff)
	}
	for i, want := range [][2]Number{{totals[1].Total, totals[4].Total}, {totals[2].Total, totals[5].Total}} {
		if got := pairs.Series[i]; got.Name != [2]string{"aufs", "mnt"}[i] || got.Values[0] != want[0] || got.Values[1] != want[1] {
			t.Errorf("series %+v, want %v", got, want)
		}
	}
}

func TestPairs(t *testing.T) {
	conf := func(name, network, storage string) result.Configuration {
		return result.Configuration{Name: name, Stack: strings.SplitN(name, ".", 2)[0] + "/containerd", Options: map[string]string{"network": network, "storage": storage, "drive": "remote"}}
	}
	run := result.Run{Configurations: []result.Configuration{
		conf("metal.aufs.nat", "nat", "overlay"), conf("metal.aufs.host", "host", "overlay"), conf("metal.mnt.nat", "nat", "volume"),
		conf("vm.mnt.host", "host", "volume"), conf("vm.aufs.nat", "nat", "overlay"), {Name: "metal.remote", Stack: "metal"},
	}}
	tests := []struct {
		of   int
		want []string
	}{
		{0, []string{"metal.nat: metal.aufs.nat metal.mnt.nat"}},
		{1, []string{"metal.aufs: metal.aufs.nat metal.aufs.host"}},
	}
	for _, tt := range tests {
		var got []string
		for _, c := range run.Configurations {
			if p, ok := alternatives[tt.of].partner(run.Configurations, c); ok {
				got = append(got, alternatives[tt.of].category(c.Name, p.Name)+": "+c.Name+" "+p.Name)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", alternatives[tt.of].option, diff)
		}
	}
	if got := alternatives[0].category("layered", "mounted"); got != "layered, mounted" {
		t.Errorf("category of names with nothing in common: %q", got)
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
	if n := len(groupTitled(t, Build(run, samples, Options{}), "Suite disk: scores").Tables); n != 1 {
		t.Errorf("%d tables with nothing published", n)
	}
	for i := range run.Configurations {
		run.Configurations[i].Name = "x" + run.Configurations[i].Name
	}
	for i := range samples {
		samples[i].Configuration = "x" + samples[i].Configuration
	}
	run.Baselines = nil
	doc = Build(run, samples, paperDisk())
	if n := len(groupTitled(t, doc, "Suite disk: scores").Tables); n != 1 {
		t.Errorf("%d tables on configurations that are not the paper's", n)
	}
	if doc.Suites[0].Baseline != "xmetal.local" {
		t.Errorf("baseline %q without one in the run, want the first", doc.Suites[0].Baseline)
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
	if row[2].Text != "metal.aufs → vm.aufs" || row[3].Text != changeCell(step.Change).Text || row[8].Badge != "slower" {
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
	if doc = Build(run, samples, Options{}); len(doc.Groups) != 2+5 {
		t.Errorf("%d sections on a suite at the thesis' levels, want scores, cases and one for each case", len(doc.Groups))
	}
}
