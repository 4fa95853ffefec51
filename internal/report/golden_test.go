package report

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest/internal/measure/result"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// few is the synthetic run with one case of each group and three repetitions,
// for the formats that print every number.
func few() (result.Run, []result.Sample) {
	run, samples := synthetic(3)
	kept := []string{"udp_rr/1280", "tcp_stream/1280"}
	run.Cases = slices.DeleteFunc(run.Cases, func(c result.Case) bool { return !slices.Contains(kept, c.Name) })
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool {
		return !slices.Contains(kept, s.Case) || strings.HasPrefix(s.Metric, "host_")
	})
	for i := range run.Cases {
		run.Cases[i].Metrics = slices.DeleteFunc(slices.Clone(run.Cases[i].Metrics), func(m result.Metric) bool {
			return strings.HasPrefix(m.Name, "host_")
		})
	}
	return run, samples
}

// holed is the synthetic run, interrupted: NAT never yielded a value at 256 B,
// one repetition of BrFusion at 64 B was given up, and TCP was not reached.
func holed() (result.Run, []result.Sample) {
	run, samples := synthetic(6)
	run.State, run.Error = result.Interrupted, "interrupt signal"
	run.Failures = []result.Failure{
		{Configuration: "NAT", Case: "udp_rr/256", Block: 0, Attempts: 3, Error: "run sockperf in container web: exit status 1: Connection refused"},
		{Configuration: "BrFusion", Case: "udp_rr/64", Block: 4, Attempts: 3, Error: "parse output of sockperf: no summary line"},
	}
	return run, slices.DeleteFunc(samples, func(s result.Sample) bool {
		return s.Case == "udp_rr/256" && s.Configuration == "NAT" ||
			s.Case == "udp_rr/64" && s.Configuration == "BrFusion" && s.Block == 4 ||
			strings.HasPrefix(s.Case, "tcp_stream")
	})
}

// later is the synthetic run again, on another kernel, with NAT made faster and
// one configuration renamed.
func later() (result.Run, []result.Sample) {
	run, samples := synthetic(6)
	run.ID, run.Seed, run.Host.Kernel = "20260401-120000-brfusion", 43, "6.12.9-amd64"
	for i := range samples {
		s := &samples[i]
		s.Run = run.ID
		if s.Configuration == "NAT" && s.Metric == "latency_mean" {
			s.Value *= 0.9
		} else {
			s.Value *= 1 + 0.004*float64(i%3-1)
		}
	}
	return run, samples
}

func build(run result.Run, samples []result.Sample) Document {
	return Build(run, samples, Options{Dir: "runs/20260314-brfusion"})
}

// bare prints the page without the library, style and script that it embeds.
func bare(w io.Writer, doc Document) error {
	var page bytes.Buffer
	if err := HTML(&page, doc); err != nil {
		return err
	}
	_, err := strings.NewReplacer(chartLibrary, "LIBRARY", pageStyle, "STYLE", pageScript, "SCRIPT").WriteString(w, page.String())
	return err
}

func width(columns int, o TextOptions) func(io.Writer, Document) error {
	o.Width = columns
	return func(w io.Writer, doc Document) error { return Text(w, doc, o) }
}

func TestGolden(t *testing.T) {
	full, small, gaps := build(synthetic(6)), build(few()), build(holed())
	runA, samplesA := synthetic(6)
	runB, samplesB := later()
	compared := Compare(Input{"runs/a", runA, samplesA}, Input{"runs/b", runB, samplesB}, Options{})
	spread, levels, suite := build(startup(24)), buildNested(), buildSuite()
	tests := []struct {
		file  string
		print func(io.Writer, Document) error
		doc   Document
	}{
		{"full.txt", width(120, TextOptions{}), full},
		{"narrow.txt", width(80, TextOptions{Brief: true}), full},
		{"colour.txt", width(120, TextOptions{Brief: true, Colour: true}), small},
		{"holed.txt", width(120, TextOptions{}), gaps},
		{"startup.txt", width(80, TextOptions{Brief: true}), spread},
		{"startup.md", Markdown, spread},
		{"startup.html", bare, spread},
		{"startup.csv", CSV, spread},
		{"compared.txt", width(120, TextOptions{}), compared},
		{"full.md", Markdown, full},
		{"holed.html", bare, gaps},
		{"compared.html", bare, compared},
		{"small.json", JSON, small},
		{"small.csv", CSV, small},
		{"compared.csv", CSV, Compare(Input{"runs/a", runA, samplesA}, Input{"runs/b", runB, samplesB}, Options{})},
		{"levels.txt", width(120, TextOptions{}), levels},
		{"levels.md", Markdown, levels},
		{"levels.html", bare, levels},
		{"levels.csv", CSV, levels},
		{"levels.json", JSON, levels},
		{"suite.txt", width(120, TextOptions{}), suite},
		{"suite.md", Markdown, suite},
		{"suite.html", bare, suite},
		{"suite.csv", CSV, suite},
		{"suite.json", JSON, suite},
		{"small.bench.txt", GoBench, small},
		{"small.pkb.jsonl", PKB, small},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			var got bytes.Buffer
			if err := tt.print(&got, tt.doc); err != nil {
				t.Fatal(err)
			}
			checkGolden(t, tt.file, got.Bytes())
		})
	}
}

func checkGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got), rewrite it with -update if that is right:\n%s", path, diff)
	}
}

// Two reports of the same samples are the same to the last byte, in whatever
// order the samples came.
func TestReportsAreDeterministic(t *testing.T) {
	run, samples := synthetic(4)
	reversed := slices.Clone(samples)
	slices.Reverse(reversed)
	for _, f := range Formats {
		var first, second, third bytes.Buffer
		for _, out := range []struct {
			to      *bytes.Buffer
			samples []result.Sample
		}{{&first, samples}, {&second, samples}, {&third, reversed}} {
			if err := f.Print(out.to, build(run, out.samples)); err != nil {
				t.Fatal(err)
			}
		}
		if first.String() != second.String() {
			t.Errorf("%s: two reports of the same samples differ", f.Name)
		}
		if f.Name != "gobench" && f.Name != "pkb" && first.String() != third.String() {
			t.Errorf("%s: the report depends on the order of the samples", f.Name)
		}
	}
}

func TestFormatNamed(t *testing.T) {
	for _, f := range Formats {
		got, err := FormatNamed(f.Name)
		if err != nil || got.Extension != f.Extension {
			t.Errorf("format %s: %v, %v", f.Name, got.Extension, err)
		}
	}
	if _, err := FormatNamed("pdf"); err == nil || !strings.Contains(err.Error(), `"pdf"`) || !strings.Contains(err.Error(), "markdown") {
		t.Errorf("unknown format: error %v should name it and those there are", err)
	}
}
