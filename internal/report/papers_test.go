package report_test

import (
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/suite"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/runs"
)

// buildPapers builds a report with all printed figures.
func buildPapers(input provenance.Source, notes ...string) document.Document {
	return runs.Build(input.Run, input.Samples, runs.Options{Dir: input.Dir, Notes: notes, Papers: papers.All()})
}

// suiteRun is a run of cases of a suite, with one value in each cell.
func suiteRun(t *testing.T, name string, configurations ...result.Configuration) provenance.Source {
	t.Helper()
	cases, err := suite.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	input := provenance.Source{Dir: "runs/x", Run: result.Run{ID: "x", State: result.Complete, Repetitions: 1, Configurations: configurations}}
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
	for _, e := range dataOf(levels).Estimates {
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
	for _, e := range dataOf(disk).Estimates {
		if e.Primary && (e.Score == nil || e.Score.Published == nil) {
			t.Errorf("no published score for %s in %s", e.Case, e.Configuration)
		}
	}
	if got := dataOf(disk).Suites[0].Totals[1].Published; got == nil || got.Total != "9.66" || got.Cases != 18 {
		t.Errorf("total of vm.aufs: %+v", got)
	}
	if disk.Dir != "runs/x" || disk.Warnings[len(disk.Warnings)-1] != "a note" {
		t.Errorf("directory %q, warnings %q", disk.Dir, disk.Warnings)
	}
	for _, name := range []string{"cpu", "multicore", "memory", "java"} {
		doc := buildPapers(suiteRun(t, name, configuration("metal.local", "metal"), configuration("vm.local", "vm")))
		for _, total := range dataOf(doc).Suites[0].Totals {
			if total.Published == nil || total.Published.Table != 3 {
				t.Errorf("%s: published total of %s: %+v", name, total.Configuration, total.Published)
			}
		}
	}
}
