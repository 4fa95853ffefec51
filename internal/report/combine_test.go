package report_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/comparison"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/render"
)

// severalRuns are runs whose boots multiply NAT's latencies by the factors.
func severalRuns(factors ...float64) (inputs []provenance.Source) {
	for i, factor := range factors {
		run, samples := synthetic(12)
		run.ID = fmt.Sprint("run", i+1)
		for j := range samples {
			if samples[j].Configuration == "NAT" && strings.HasPrefix(samples[j].Metric, "latency") {
				samples[j].Value *= factor
			}
		}
		inputs = append(inputs, provenance.Source{Dir: "runs/" + run.ID, Run: run, Samples: samples})
	}
	return inputs
}

func runsOf(inputs []provenance.Source) (runs []result.Run) {
	for _, input := range inputs {
		runs = append(runs, input.Run)
	}
	return runs
}

// Runs of separate blocks, and a metric that a part of the executions lack, are not combined.
func TestCombineOnlyWhatHasAVerdict(t *testing.T) {
	separate, selected := severalRuns(1, 1, 1), severalRuns(1, 1, 1)
	for i := range separate {
		separate[i].Run.Interleaved = false
		selected[i].Samples = slices.DeleteFunc(selected[i].Samples, func(s result.Sample) bool { return s.Metric == "latency_mean" && s.Block == 3 })
	}
	latency := func(inputs []provenance.Source) bool {
		var out bytes.Buffer
		if err := render.Markdown(&out, comparison.Combine(inputs, nil)); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(out.String(), "## UDP ping-pong")
	}
	if !latency(severalRuns(1, 1, 1)) || latency(separate) || latency(selected) {
		t.Errorf("latencies are combined: of separate blocks %v, of a part of the executions %v", latency(separate), latency(selected))
	}
}

// The interval over runs has the scatter between them, which the blocks of one run do not show.
func TestCombineRuns(t *testing.T) {
	inputs := severalRuns(0.9, 1, 1.1, 1.2)
	doc := comparison.Combine(inputs, nil)
	var effects []stats.Effect
	widest := 0.0
	for _, input := range inputs {
		of := func(configuration string) (all []stats.Observation) {
			for _, s := range input.Samples {
				if s.Configuration == configuration && s.Case == "udp_rr/1280" && s.Metric == "latency_mean" {
					all = append(all, stats.Observation{Block: s.Block, Value: s.Value})
				}
			}
			return all
		}
		e, err := stats.Compare(of("NAT"), of("NoCont"), true)
		if err != nil {
			t.Fatal(err)
		}
		effects = append(effects, e)
		i := e.Interval(0.95)
		widest = max(widest, i.High/i.Low)
	}
	want, err := stats.Combine(effects)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, row := range doc.Records[1:] {
		if row[1] != "udp_rr/1280" || row[2] != "NAT" || row[3] != "NoCont" {
			continue
		}
		found++
		var ratio, low, high, nextLow, nextHigh float64
		for field, to := range map[int]*float64{7: &ratio, 8: &low, 9: &high, 11: &nextLow, 12: &nextHigh} {
			if _, err := fmt.Sscan(row[field], to); err != nil {
				t.Fatal(err)
			}
		}
		if math.Abs(ratio-want.Ratio()) > 1e-9 || row[6] != "4" || high/low < widest || nextHigh/nextLow < high/low {
			t.Errorf("%q; want %v over 4 runs, with wider intervals than %v", row, want.Ratio(), widest)
		}
	}
	if found != 1 {
		t.Errorf("%d rows of NAT at 1280 B", found)
	}
	for _, format := range []string{"text", "markdown", "json", "csv", "html"} {
		f, err := render.FormatNamed(format)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := f.Print(&out, doc); err != nil || out.Len() == 0 {
			t.Errorf("%s: %v", format, err)
		}
	}
	if !strings.Contains(doc.Answer, "a next run reports [") || !strings.Contains(doc.Title, "4 runs combined") {
		t.Errorf("%q, %q", doc.Title, doc.Answer)
	}
}

func TestCombinable(t *testing.T) {
	for want, change := range map[string]func([]result.Run){
		"":                            func(runs []result.Run) { runs[1].ID, runs[1].Seed = runs[0].ID, runs[0].Seed+1 },
		"name runs of one experiment": func(runs []result.Run) { runs[1].Experiment = "hostlo" },
		"it is given twice":           func(runs []result.Run) { runs[1].ID = runs[0].ID },
		`network of NAT is "nat" in A and "" in B`: func(runs []result.Run) { runs[1].Configurations[1].Options = nil },
		`release of NAT is "" in A and "trixie" in B`: func(runs []result.Run) {
			runs[1].Configurations[1].Options = map[string]string{"network": "nat", "release": "trixie"}
		},
		`stack of NAT is "vm/containerd" in A and "vm/docker" in B`:                func(runs []result.Run) { runs[1].Configurations[1].Stack = "vm/docker" },
		`the accelerator is "tcg" in A and "kvm" in B`:                             func(runs []result.Run) { runs[1].Accelerator = "kvm" },
		"latency_mean of udp_rr/64 is in us (LIB) in A and in us (HIB) in B; name": func(runs []result.Run) { runs[1].Cases[0].Metrics[0].Order = result.HIB },
		"latency_mean of udp_rr/64 is in us (LIB) in A and in ms (LIB) in B; name": func(runs []result.Run) { runs[1].Cases[0].Metrics[0].Unit = "ms" },
		"each block has machines of its own (fresh) in B only; name":               func(runs []result.Run) { runs[1].Fresh = true },
	} {
		runs := runsOf(severalRuns(1, 1))
		change(runs)
		if err := comparison.Combinable(runs); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The first run decides which cases and configurations are combined: the others are named.
func TestCombineNamesWhatIsLeftOut(t *testing.T) {
	inputs := severalRuns(1, 1, 1, 1)
	without := func(i int, name, configuration string) {
		inputs[i].Run.Cases = slices.DeleteFunc(inputs[i].Run.Cases, func(c result.Case) bool { return c.Name == name })
		inputs[i].Run.Configurations = slices.DeleteFunc(inputs[i].Run.Configurations, func(c result.Configuration) bool { return c.Name == configuration })
		inputs[i].Samples = slices.DeleteFunc(inputs[i].Samples, func(s result.Sample) bool { return s.Case == name || s.Configuration == configuration })
	}
	if doc := comparison.Combine(inputs, nil); strings.Contains(fmt.Sprint(doc.Warnings), "Left out") {
		t.Errorf("equal runs: %q", doc.Warnings)
	}
	without(0, "udp_rr/256", "BrFusion")
	for i := range inputs[1:] {
		without(i+1, "udp_rr/64", "")
	}
	without(3, "udp_rr/1024", "") // the other three have it
	warnings := comparison.Combine(inputs, nil).Warnings
	for _, want := range []string{
		"Left out: case udp_rr/64, only in the first run.",
		"Left out: case udp_rr/256, only in later runs.",
		"Left out: configuration BrFusion, only in later runs.",
	} {
		if !slices.Contains(warnings, want) {
			t.Errorf("%q, want %q", warnings, want)
		}
	}
	if strings.Contains(fmt.Sprint(warnings), "udp_rr/1024") {
		t.Errorf("%q names what is combined", warnings)
	}
}

// A group whose reference case lacks the main baseline has no headline.
func TestCombineWithoutTheBaseline(t *testing.T) {
	inputs := severalRuns(1, 1)
	for i := range inputs {
		inputs[i].Samples = slices.DeleteFunc(inputs[i].Samples, func(s result.Sample) bool { return s.Case == "udp_rr/1280" && s.Configuration == "NoCont" })
	}
	doc := comparison.Combine(inputs, nil)
	for _, line := range append(doc.Headlines, doc.Answer) {
		if line == "" || strings.Contains(line, "UDP ping-pong") {
			t.Errorf("%q", line)
		}
	}
}

// A run that was too noisy, and runs of different machines, are named before the answer and in the warnings.
func TestCombineWarns(t *testing.T) {
	inputs := severalRuns(1, 1)
	for i := range inputs[1].Samples {
		inputs[1].Samples[i].Tags = map[string]string{"others": "1.500", "steal": "0.000"}
	}
	inputs[1].Run.Host.CPU = "another"
	inputs[1].Run.File += "duration: 9s\n"
	inputs[1].Run.Revision = "another"
	doc := comparison.Combine(inputs, nil)
	if !strings.HasPrefix(doc.Answer, "Too noisy to conclude: run2.") ||
		!strings.HasPrefix(doc.Warnings[0], "run1 and run2 differ in their machine (AMD EPYC 7B13 with 2 processors; another with 2 processors), experiment file and revision of unnest.") {
		t.Errorf("%q, %q", doc.Answer, doc.Warnings)
	}
}
