package report_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/comparison"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/render"
)

// changed compares the synthetic run with itself after change.
func changed(change func(*result.Run, []result.Sample)) document.Document {
	a, samplesA := synthetic(6)
	b, samplesB := synthetic(6)
	change(&b, samplesB)
	return comparison.Build(provenance.Source{Dir: "a", Run: a, Samples: samplesA}, provenance.Source{Dir: "b", Run: b, Samples: samplesB}, true, nil)
}

func TestCompareSeesNoDifferenceBetweenEqualRuns(t *testing.T) {
	doc := changed(func(*result.Run, []result.Sample) {})
	if want := "No difference found in 21 comparisons."; doc.Answer != want {
		t.Errorf("answer %q, want %q", doc.Answer, want)
	}
	for _, e := range dataOf(doc).Estimates {
		for _, c := range e.Comparisons {
			if c.Ratio.Defined() && c.Ratio != 1 {
				t.Errorf("%s of %s in %s: ratio %v", e.Metric, e.Case, e.Configuration, c.Ratio)
			}
		}
	}
	if !strings.Contains(doc.Warnings[0], "measured at different times") || !strings.Contains(doc.Warnings[0], "measure both in one run") {
		t.Errorf("first warning %q", doc.Warnings[0])
	}
}

func TestCompareFindsTheDifference(t *testing.T) {
	doc := changed(func(_ *result.Run, samples []result.Sample) {
		for i := range samples {
			if samples[i].Case == "tcp_stream/64" && samples[i].Configuration == "BrFusion" {
				samples[i].Value *= 1.5
			}
		}
	})
	want := []string{"tcp_stream/64, BrFusion: B is faster: 50 % higher throughput than A."}
	if doc.Answer != "B differs from A in 1 of 21 comparisons." || !slices.Equal(doc.Headlines, want) {
		t.Errorf("answer %q, headlines %q, want %q", doc.Answer, doc.Headlines, want)
	}
	for _, e := range dataOf(doc).Estimates {
		if e.Run == estimate.SideB && e.Primary && e.Case == "tcp_stream/64" && e.Configuration == "BrFusion" && e.Comparisons[0].Verdict != stats.Better {
			t.Errorf("verdict %s, want better: throughput rose", e.Comparisons[0].Verdict)
		}
	}
}

func TestCompareWarnsWhereTheRunsDiffer(t *testing.T) {
	doc := changed(func(r *result.Run, _ []result.Sample) {
		r.Accelerator, r.Host.CPU, r.Image, r.File = "kvm", "Xeon", "sha256:0", "other"
		r.Configurations = r.Configurations[:2]
		r.Cases = r.Cases[1:]
		r.Cases[0].Metrics = []result.Metric{{Name: "latency_mean", Unit: "ms", Order: result.LIB}}
	})
	all := strings.Join(doc.Warnings, "\n")
	for _, want := range []string{"accelerator, host CPU", "guest image, experiment file", "Left out: configuration BrFusion, only in A.",
		"Left out: case udp_rr/64, only in A.", "Left out: latency_mean of udp_rr/256, in us (LIB) in A but in ms (LIB) in B.",
		"A: Guests ran under TCG"} {
		if !strings.Contains(all, want) {
			t.Errorf("warnings lack %q:\n%s", want, all)
		}
	}
	if doc.Setting != "A: 6 repetitions, tcg; B: 6 repetitions, kvm" {
		t.Errorf("setting %q", doc.Setting)
	}
}

func TestCompareWithNothingInCommon(t *testing.T) {
	a, samples := synthetic(6)
	doc := comparison.Build(provenance.Source{Dir: "a", Run: a, Samples: samples}, provenance.Source{Dir: "b", Run: result.Run{ID: "empty"}, Samples: nil}, true, nil)
	if doc.Answer != "The two runs have no samples in common." {
		t.Errorf("answer %q", doc.Answer)
	}
	doc = comparison.Build(provenance.Source{Dir: "a", Run: a, Samples: samples}, provenance.Source{Dir: "b", Run: a, Samples: nil}, true, nil)
	if cell := doc.Groups[0].Tables[0].Rows[0][7]; cell.Text != "B missing" || !cell.Missing {
		t.Errorf("verdict of a cell that B lacks: %+v", cell)
	}
}

func TestComparisonsHaveNoSamplesOfTheirOwn(t *testing.T) {
	doc := changed(func(*result.Run, []result.Sample) {})
	for _, name := range []string{"gobench", "pkb"} {
		f, err := render.FormatNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Print(&bytes.Buffer{}, doc); !errors.Is(err, render.ErrNoSamples) {
			t.Errorf("%s: error %v, want ErrNoSamples", name, err)
		}
	}
}

// Two runs share no block: there is no verdict on them unless it is asked for.
func TestCompareHasNoVerdict(t *testing.T) {
	run, samples := synthetic(12)
	later, faster := synthetic(12)
	for i := range faster {
		faster[i].Value *= 2
	}
	a, b := provenance.Source{Dir: "a", Run: run, Samples: samples}, provenance.Source{Dir: "b", Run: later, Samples: faster}
	for _, verdicts := range []bool{false, true} {
		doc := comparison.Build(a, b, verdicts, nil)
		for _, e := range dataOf(doc).Estimates {
			for _, c := range e.Comparisons {
				if c.Ratio.Defined() && (c.Verdict != "") != verdicts || verdicts == strings.Contains(c.Badge, estimate.NoVerdict) && c.Ratio.Defined() {
					t.Fatalf("verdicts %v: %s in %s: %q, %q", verdicts, e.Case, e.Configuration, c.Verdict, c.Badge)
				}
			}
		}
		if strings.Contains(doc.Answer, "without a verdict") == verdicts {
			t.Errorf("verdicts %v: %q", verdicts, doc.Answer)
		}
	}
}
