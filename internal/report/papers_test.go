package report

import (
	"slices"
	"strings"
	"testing"

	"unnest/experiments"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/suite"
	"unnest/internal/report/papers"
)

// buildPapers builds a report with all printed figures.
func buildPapers(input Input, notes ...string) Document {
	return Build(input.Run, input.Samples, Options{Dir: input.Dir, Notes: notes, Papers: AllPapers()})
}

// suiteRun is a run of cases of a suite, with one value in each cell.
func suiteRun(t *testing.T, name string, configurations ...result.Configuration) Input {
	t.Helper()
	cases, err := suite.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	input := Input{Dir: "runs/x", Run: result.Run{ID: "x", State: result.Complete, Repetitions: 1, Configurations: configurations}}
	for _, c := range cases {
		input.Run.Cases = append(input.Run.Cases, result.Case{Suite: c.Suite, Name: c.Name, Group: c.Name, Tool: c.Package, Primary: c.Metrics[0].Name, Metrics: c.Metrics})
		for _, conf := range configurations {
			for _, m := range c.Metrics {
				input.Samples = append(input.Samples, result.Sample{Run: "x", Configuration: conf.Name, Suite: c.Suite, Case: c.Name, Metric: m.Name, Unit: m.Unit, Order: m.Order, Value: 2})
			}
		}
	}
	return input
}

func configuration(name, stack string) result.Configuration {
	return result.Configuration{Name: name, Stack: stack, Options: map[string]string{"profile": "quick"}}
}

// Reports of runs that repeat a paper show its figures.
func TestBuildShowsPapers(t *testing.T) {
	levels := buildPapers(suiteRun(t, "sysbench", configuration("L0", "metal"), configuration("L1", "vm"), configuration("L2", "vm/vm")))
	published := map[string]int{}
	for _, e := range levels.Estimates {
		if e.Step != nil {
			published[e.Case] += len(e.Step.Published)
		}
	}
	for _, name := range []string{"sysbench-cpu", "sysbench-threads", "sysbench-memory-write", "sysbench-memory-read", "sysbench-oltp"} {
		if published[name] == 0 {
			t.Errorf("no published mean for %s", name)
		}
	}
	disk := buildPapers(suiteRun(t, "disk", configuration("metal.local", "metal"), configuration("vm.aufs", "vm/containerd")), "a note")
	for _, e := range disk.Estimates {
		if e.Primary && (e.Score == nil || e.Score.Published == nil) {
			t.Errorf("no published score for %s in %s", e.Case, e.Configuration)
		}
	}
	if got := disk.Suites[0].Totals[1].Published; got == nil || got.Total != "9.66" || got.Cases != 18 {
		t.Errorf("total of vm.aufs: %+v", got)
	}
	if disk.Dir != "runs/x" || disk.Warnings[len(disk.Warnings)-1] != "a note" {
		t.Errorf("directory %q, warnings %q", disk.Dir, disk.Warnings)
	}
	for _, name := range []string{"cpu", "multicore", "memory", "java"} {
		doc := buildPapers(suiteRun(t, name, configuration("metal.local", "metal"), configuration("vm.local", "vm")))
		for _, total := range doc.Suites[0].Totals {
			if total.Published == nil || total.Published.Table != 3 {
				t.Errorf("%s: published total of %s: %+v", name, total.Configuration, total.Published)
			}
		}
	}
}

// The scores of Table 4 are of the cases of the study that repeats it.
func TestNetworkScores(t *testing.T) {
	file, data, err := experiments.Open("multilevel-network")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := experiment.ParseProfile(file, data, "")
	if err != nil {
		t.Fatal(err)
	}
	published := 0
	for _, s := range AllPapers().Scores {
		if s.Table == 4 {
			published++
			if !slices.ContainsFunc(spec.Cases, func(c experiment.Case) bool { return c.Name == s.Case }) {
				t.Errorf("the study has no case %s", s.Case)
			}
		}
	}
	if want := len(spec.Cases) * len(spec.Configurations); published != want {
		t.Errorf("%d scores, want %d", published, want)
	}
}

// Every row of the thesis has a throughput and a response time with standard errors.
func TestLevels(t *testing.T) {
	rows := AllPapers().Levels
	if len(rows) != 60 {
		t.Fatalf("%d rows, want 60", len(rows))
	}
	if r := rows[1]; r.Architecture != "S390x" || r.Level != "L1" || !r.Overcommitted || r.Test != "cpu" || r.Throughput.Mean != "1041.3" || r.Throughput.StdErr != "18.60" || r.Response.Mean != "3.8450" || r.Response.StdErr != "0.0707" {
		t.Errorf("Table 5, L1: %+v", r)
	}
	for _, r := range rows {
		for _, name := range []string{throughput, response} {
			mean, stdErr, ok := publishedMean(r, result.Metric{Name: name, Unit: "ms"})
			if printed := map[string]papers.Mean{throughput: r.Throughput, response: r.Response}[name]; ok != (printed.Mean != "") || ok && (!mean.Defined() || printed.StdErr != "" && !stdErr.Defined()) {
				t.Errorf("%s of %+v: %v, %v, %v", name, r, mean, stdErr, ok)
			}
		}
	}
}

// Every row of Tables 4, 5 and 6 has a case of ours; Table 4 has scores without values.
func TestScoresAreComplete(t *testing.T) {
	if n := len(AllPapers().Scores); n != 108+12 {
		t.Errorf("%d scores, want 18 cases and 2 of network, in 6 configurations each", n)
	}
	for _, s := range AllPapers().Scores {
		network := s.Suite == "network"
		if !network && s.Suite != "disk" || strings.ToLower(s.Case) != s.Case || s.Score == "" || (s.Value == "") != network {
			t.Errorf("%+v", s)
		}
	}
	for _, total := range AllPapers().Totals {
		if total.Cases == 0 || total.Total == "" || strings.ToLower(total.Suite) != total.Suite {
			t.Errorf("%+v", total)
		}
	}
}

// Each ratio that Bacou et al. print of Netperf is of a metric that the study hostlo
// has, in a configuration that one of the studies has. We do not measure the others,
// which are of whole applications, apart from NGINX's latencies.
func TestRatios(t *testing.T) {
	netperf := 0
	for _, p := range AllPapers().Ratios {
		if p.Benchmark != "UDP_RR" && p.Benchmark != "TCP_STREAM" {
			continue
		}
		netperf++
		metric := paperMetrics[p.Metric]
		if metric[0] == "" || (metric[1] == "") != (p.Baseline != "") {
			t.Errorf("no metric of ours: %+v", p)
		}
		if !slices.Contains([]string{"", "about", "worst", "best"}, p.Extent) || !(p.Factor() > 0) || p.Section == "" {
			t.Errorf("got %+v", p)
		}
		if !slices.Contains([]string{"BrFusion", "Hostlo", "SameNode"}, p.Configuration) {
			t.Errorf("no configuration of ours: %+v", p)
		}
	}
	for _, p := range AllPapers().Ratios {
		if p.Benchmark == "NGINX" && p.Section < "5.3.4" && paperMetrics[p.Metric][0] == "" {
			t.Errorf("no metric of ours: %+v", p)
		}
	}
	if netperf != 14 {
		t.Errorf("%d ratios, want the 14 of UDP_RR and TCP_STREAM", netperf)
	}
}
