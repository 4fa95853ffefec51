package document

import (
	"math"
	"slices"
	"strings"
	"testing"

	"unnest/experiments"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/suite"
	"unnest/internal/report"
)

// suiteRun is a run of cases of a suite, with one value in each cell.
func suiteRun(t *testing.T, name string, configurations ...result.Configuration) report.Input {
	t.Helper()
	cases, err := suite.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	input := report.Input{Dir: "runs/x", Run: result.Run{ID: "x", State: result.Complete, Repetitions: 1, Configurations: configurations}}
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

// What the papers print stands beside the runs that repeat it.
func TestBuildSetsPublishedBeside(t *testing.T) {
	levels := Build(suiteRun(t, "sysbench", configuration("L0", "metal"), configuration("L1", "vm"), configuration("L2", "vm/vm")), nil)
	beside := map[string]int{}
	for _, e := range levels.Estimates {
		if e.Step != nil {
			beside[e.Case] += len(e.Step.Published)
		}
	}
	for _, name := range []string{"sysbench-cpu", "sysbench-threads", "sysbench-memory-write", "sysbench-memory-read", "sysbench-oltp"} {
		if beside[name] == 0 {
			t.Errorf("no published mean beside %s", name)
		}
	}
	disk := Build(suiteRun(t, "disk", configuration("metal.local", "metal"), configuration("vm.aufs", "vm/containerd")), []string{"a note"})
	for _, e := range disk.Estimates {
		if e.Primary && (e.Score == nil || e.Score.Published == nil) {
			t.Errorf("no published score beside %s in %s", e.Case, e.Configuration)
		}
	}
	if got := disk.Suites[0].Totals[1].Published; got == nil || got.Total != "9.66" || got.Cases != 18 {
		t.Errorf("total of vm.aufs: %+v", got)
	}
	if disk.Dir != "runs/x" || disk.Warnings[len(disk.Warnings)-1] != "a note" {
		t.Errorf("directory %q, warnings %q", disk.Dir, disk.Warnings)
	}
	for _, name := range []string{"cpu", "multicore", "memory", "java"} {
		doc := Build(suiteRun(t, name, configuration("metal.local", "metal"), configuration("vm.local", "vm")), nil)
		for _, total := range doc.Suites[0].Totals {
			if total.Published == nil || total.Published.Table != 3 {
				t.Errorf("%s: total of %s beside %+v", name, total.Configuration, total.Published)
			}
		}
	}
}

// The cases of the study of Table 4 are those that its scores stand beside.
func TestNetworkScores(t *testing.T) {
	file, data, err := experiments.Open("multilevel-network")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := experiment.ParseProfile(file, data, "")
	if err != nil {
		t.Fatal(err)
	}
	beside := 0
	for _, s := range scores() {
		if s.Table == 4 {
			beside++
			if !slices.ContainsFunc(spec.Cases, func(c experiment.Case) bool { return c.Name == s.Case }) {
				t.Errorf("the study has no case %s", s.Case)
			}
		}
	}
	if want := len(spec.Cases) * len(spec.Configurations); beside != want {
		t.Errorf("%d scores, want %d", beside, want)
	}
}

// A number that a paper lacks is 0 here, never one that is none.
func TestLevels(t *testing.T) {
	if got := orZero(""); got != 0 {
		t.Errorf("a dash is %v, want 0", got)
	}
	rows := levels()
	if len(rows) != 60 {
		t.Fatalf("%d rows, want 60", len(rows))
	}
	want := report.PublishedLevel{Architecture: "S390x", Level: "L1", Overcommitted: true, Test: "cpu",
		Throughput: 1041.3, ThroughputSE: 18.6, Response: 3.845, ResponseSE: 0.0707}
	if rows[1] != want {
		t.Errorf("Table 5, L1: %+v, want %+v", rows[1], want)
	}
	for _, r := range rows {
		for _, x := range []float64{r.Throughput, r.ThroughputSE, r.Response, r.ResponseSE} {
			if math.IsNaN(x) {
				t.Errorf("%+v", r)
			}
		}
	}
}

// Every row of Tables 4, 5 and 6 has a case of ours; Table 4 has scores without values.
func TestScoresAreComplete(t *testing.T) {
	if n := len(scores()); n != 108+12 {
		t.Errorf("%d scores, want 18 cases and 2 of network, in 6 configurations each", n)
	}
	for _, s := range scores() {
		network := s.Suite == "network"
		if !network && s.Suite != "disk" || strings.ToLower(s.Case) != s.Case || s.Score == "" || (s.Value == "") != network {
			t.Errorf("%+v", s)
		}
	}
	for _, total := range totals() {
		if total.Cases == 0 || total.Total == "" || strings.ToLower(total.Suite) != total.Suite {
			t.Errorf("%+v", total)
		}
	}
}

// Each ratio that Bacou et al. print of Netperf stands beside a metric that the study
// hostlo has, of a configuration that one of the studies has; those of whole
// applications stand beside nothing yet.
func TestRatios(t *testing.T) {
	metrics := map[string][]string{"udp_rr": {"latency_mean", "latency_stddev"}, "tcp_stream": {"throughput"}}
	all := ratios()
	if len(all) != 14 {
		t.Errorf("%d ratios, want the 14 of UDP_RR and TCP_STREAM", len(all))
	}
	for _, p := range all {
		if !slices.Contains(metrics[p.Group], p.Metric) || p.Of != "" && p.Of != "latency_mean" || (p.Of == "") != (p.Baseline != "") {
			t.Errorf("no metric of ours: %+v", p)
		}
		if p.Extent != "" && p.Extent != report.Worst && p.Extent != report.Best || p.Printed == "" || !(p.Factor > 0) || p.Section == "" {
			t.Errorf("got %+v", p)
		}
		if !slices.Contains([]string{"BrFusion", "Hostlo", "SameNode"}, p.Configuration) {
			t.Errorf("no configuration of ours: %+v", p)
		}
	}
}
