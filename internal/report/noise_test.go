package report_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/advice"
	"unnest.io/unnest/internal/report/comparison"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/render"
	"unnest.io/unnest/internal/report/runs"
)

// noisy returns a synthetic run in which every n-th execution was disturbed. Others were not.
func noisy(n, repeated int, disturbance noise.Reading) (result.Run, []result.Sample) {
	run, samples := synthetic(6)
	run.Disturbed = repeated
	quiet := noise.Reading{Elapsed: 1, Others: 0.02, Steal: 0.002, Stalled: 0.3, Switches: 1000, MHz: 2400}
	executions := map[result.Execution]int{}
	for i, s := range samples {
		if _, known := executions[s.Execution()]; !known {
			executions[s.Execution()] = len(executions)
		}
		samples[i].Tags = quiet.Tags()
		if n > 0 && executions[s.Execution()]%n == 0 {
			samples[i].Tags = disturbance.Tags()
		}
	}
	return run, samples
}

// A report of a busy machine says so first, and why.
func TestNoiseInReport(t *testing.T) {
	busy := noise.Reading{Elapsed: 1, Others: 0.9, Steal: 0.01, MHz: 3000, Busiest: []noise.Share{{Name: "spin"}, {Name: "x"}}}
	stolen := noise.Reading{Elapsed: 1, Others: 0.1, Steal: 0.5}
	for _, tc := range []struct {
		name        string
		n, repeated int
		disturbance noise.Reading
		answer      string // begins with
		warning     string // the first, begins with; empty: nothing of noise
	}{
		{"quiet", 0, 0, busy, "UDP", ""},
		{"quiet after repetitions", 0, 4, busy, "UDP", "4 disturbed executions measured again."},
		{"seldom disturbed", 20, 12, busy, "UDP", "7 of 126 executions remained disturbed: other processes (most of all spin) used 0.90 processors on average. 12 disturbed executions measured again."},
		{"busy", 2, 63, busy, "Too noisy to conclude: in 63 of 126 executions, other processes (most of all spin) used 0.90 processors on average. What follows holds for the machine in that state only. UDP", "63 disturbed executions measured again."},
		{"busy with --noisy", 1, 0, busy, "Too noisy to conclude: in 126 of 126 executions, other", ""},
		{"stolen", 1, 0, stolen, "Too noisy to conclude: in 126 of 126 executions, the hypervisor of this machine took 0.50 processors on average.", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run, samples := noisy(tc.n, tc.repeated, tc.disturbance)
			doc := runs.Build(run, samples, runs.Options{})
			if !strings.HasPrefix(doc.Answer, tc.answer) {
				t.Errorf("answer %q, want %q…", doc.Answer, tc.answer)
			}
			if len(doc.Warnings) == 0 || !strings.HasPrefix(doc.Warnings[0], tc.warning) || tc.warning == "" && strings.Contains(fmt.Sprint(doc.Warnings), "disturbed") {
				t.Errorf("warnings %q, want %q first", doc.Warnings, tc.warning)
			}
		})
	}
}

// No subject's answer hides that the run is too noisy.
func TestNoiseInAnswerOfEachSubject(t *testing.T) {
	busy := noise.Reading{Elapsed: 1, Others: 0.9}.Tags()
	disturbed := func(run result.Run, samples []result.Sample) (result.Run, []result.Sample) {
		for i := range samples {
			tags := maps.Clone(busy)
			maps.Copy(tags, samples[i].Tags)
			samples[i].Tags = tags
		}
		return run, samples
	}
	run, samples := disturbed(synthetic(6))
	domainRun, domainSamples := disturbed(domainRun(6))
	for name, doc := range map[string]document.Document{
		"network":  runs.Build(run, samples, runs.Options{}),
		"domains":  runs.Build(domainRun, domainSamples, runs.Options{}),
		"advice":   advice.Build(provenance.Source{Run: run, Samples: samples}, []string{"a note"}),
		"combined": comparison.Combine([]provenance.Source{{Run: run, Samples: samples}, {Run: run, Samples: samples}}, []string{"a note"}),
	} {
		if !strings.HasPrefix(doc.Answer, "Too noisy to conclude") {
			t.Errorf("%s: answer %q", name, doc.Answer)
		}
		var data, table bytes.Buffer
		if err := errors.Join(render.JSON(&data, doc), render.CSV(&table, doc)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(data.String(), `": "Too noisy to conclude`) || slices.Contains([]string{"advice", "combined"}, name) &&
			(!strings.Contains(data.String(), `"a note"`) || !strings.Contains(table.String(), "Too noisy to conclude") || !strings.Contains(table.String(), ",caution\n")) {
			t.Errorf("%s: the JSON or the CSV lacks the caution or the warnings:\n%.500s\n%.500s", name, &data, &table)
		}
	}
}

// Repeats are shown for each configuration, and why first measurements count.
func TestRepeatsInReport(t *testing.T) {
	run, samples := noisy(0, 3, noise.Reading{})
	for i, s := range samples {
		if s.Configuration == "NAT" && s.Block < 3 && s.Case == samples[0].Case {
			samples[i].Tags["repeats"], samples[i].Discarded = "1", 1
		}
	}
	const want = "3 disturbed executions measured again (NAT 3). How often depends on the configuration, so the first measurement of each execution counts, not the last."
	if got := runs.Build(run, samples, runs.Options{}).Warnings; len(got) == 0 || got[0] != want {
		t.Errorf("got %q, want %q first", got, want)
	}
}

// A journal that was cut at the end of a line is complete for its parser, but not for its run.
func TestJournalThatLacksExecutions(t *testing.T) {
	run, samples := synthetic(6)
	executions := map[result.Execution]bool{}
	for _, s := range samples {
		executions[s.Execution()] = true
	}
	run.State, run.Planned = result.Complete, len(executions)
	warns := func(samples []result.Sample) bool {
		return strings.Contains(fmt.Sprint(runs.Build(run, samples, runs.Options{}).Warnings), fmt.Sprintf("of %d planned executions: a part of it is lost", run.Planned))
	}
	if warns(samples) {
		t.Error("a whole journal: a warning")
	}
	if !warns(samples[:len(samples)/2]) || !warns(nil) {
		t.Error("half a journal, or none: no warning")
	}
}

func TestNoiseInProvenance(t *testing.T) {
	run, samples := noisy(2, 0, noise.Reading{Elapsed: 1, Others: 0.9, Stalled: 0.5, Switches: 3000, MHz: 3000})
	const want = "other processes 0.46 processors on average, 0.90 at most; hypervisor 0.00 processors; 2000 context switches per second; a task waited for a processor 40 % of the time; 2400 to 3000 MHz"
	if got := factOf(provenance.Facts("", run, samples), "noise"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	run, samples = synthetic(6)
	if got := factOf(provenance.Facts("", run, samples), "noise"); got != "" {
		t.Errorf("nobody looked, but: %q", got)
	}
}

func TestNoiseInComparison(t *testing.T) {
	a, samplesA := synthetic(6)
	b, samplesB := noisy(1, 0, noise.Reading{Elapsed: 1, Others: 0.9})
	doc := comparison.Build(provenance.Source{Run: a, Samples: samplesA}, provenance.Source{Run: b, Samples: samplesB}, true, nil)
	if !strings.HasPrefix(doc.Answer, "B: Too noisy to conclude: in 126 of 126 executions, other processes used 0.90 processors") {
		t.Errorf("got %q", doc.Answer)
	}
	if strings.Contains(fmt.Sprint(doc.Warnings), "noise") {
		t.Errorf("noise counts as a difference in the set-up: %q", doc.Warnings)
	}
}

// factOf returns the value of a fact, nothing if there is none.
func factOf(facts []document.Fact, name string) string {
	for _, f := range facts {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// A run that is too noisy has no emphasized answer and no card that looks decided, in any form.
func TestTooNoisyIsNoAnswer(t *testing.T) {
	run, samples := synthetic(12)
	for i := range samples {
		samples[i].Tags = map[string]string{"others": "1.500", "steal": "0.000"}
	}
	doc := build(run, samples)
	if !strings.HasPrefix(doc.Caution, "Too noisy to conclude") || !strings.HasPrefix(doc.Answer, doc.Caution) || doc.Finding() == "" || len(doc.Figures) == 0 {
		t.Fatalf("caution %q, answer %q, %d figures", doc.Caution, doc.Answer, len(doc.Figures))
	}
	for _, f := range doc.Figures {
		if !f.Open {
			t.Errorf("card %s looks decided", f.Label)
		}
	}
	for format, wrong := range map[string]string{"markdown": "**Too noisy", "html": `class="answer"`, "text": "\nToo noisy"} {
		f, err := render.FormatNamed(format)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := f.Print(&out, doc); err != nil || strings.Contains(out.String(), wrong) || !strings.Contains(out.String(), "Too noisy") {
			t.Errorf("%s: %v, prints %q or no caution", format, err, wrong)
		}
	}
}

// The main result, BrFusion against NAT, has a card.
func TestCardAgainstTheSecondBaseline(t *testing.T) {
	var labels []string
	for _, f := range build(synthetic(12)).Figures {
		labels = append(labels, f.Label)
	}
	want := []string{"NAT / NoCont", "BrFusion / NoCont", "BrFusion / NAT"}
	if len(labels) < 3 || !slices.Equal(labels[:3], want) {
		t.Errorf("cards %q, want %q first", labels, want)
	}
}
