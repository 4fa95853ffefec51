// Package report_test tests whole reports: what the builders make and the renderers print. Each
// package has the tests of what it does alone.
package report_test

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

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/comparison"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/record"
	"unnest.io/unnest/internal/report/render"
	"unnest.io/unnest/internal/report/render/html"
	"unnest.io/unnest/internal/report/render/text"
	"unnest.io/unnest/internal/report/runs"
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
	run.Planned = run.Repetitions * len(run.Configurations) * len(run.Cases)
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

// dataOf is what stands behind a document that is made of runs.
func dataOf(doc document.Document) record.Data { return doc.Data.(record.Data) }

func build(run result.Run, samples []result.Sample) document.Document {
	return runs.Build(run, samples, runs.Options{Dir: "runs/20260314-brfusion"})
}

// What every page embeds.
var (
	library = asset("echarts/echarts.min.js")
	script  = asset("report.js")
	style   = asset("report.css")
)

func asset(name string) string {
	text, err := os.ReadFile("render/html/assets/" + name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// bare prints the page without the library, style and script that it embeds.
func bare(w io.Writer, doc document.Document) error {
	var page bytes.Buffer
	if err := html.Print(&page, doc); err != nil {
		return err
	}
	_, err := strings.NewReplacer(library, "LIBRARY", style, "STYLE", script, "SCRIPT").WriteString(w, page.String())
	return err
}

func width(columns int, o text.Options) func(io.Writer, document.Document) error {
	o.Width = columns
	return func(w io.Writer, doc document.Document) error { return text.Print(w, doc, o) }
}

func TestGolden(t *testing.T) {
	full, small, gaps := build(synthetic(6)), build(few()), build(holed())
	runA, samplesA := synthetic(6)
	runB, samplesB := later()
	compared := comparison.Build(provenance.Source{Dir: "runs/a", Run: runA, Samples: samplesA}, provenance.Source{Dir: "runs/b", Run: runB, Samples: samplesB}, true, nil)
	spread, levels, suite := build(startup(24)), buildNested(), buildSuite()
	tests := []struct {
		file  string
		print func(io.Writer, document.Document) error
		doc   document.Document
	}{
		{"full.txt", width(120, text.Options{}), full},
		{"narrow.txt", width(80, text.Options{Brief: true}), full},
		{"colour.txt", width(120, text.Options{Brief: true, Colour: true}), small},
		{"holed.txt", width(120, text.Options{}), gaps},
		{"startup.txt", width(80, text.Options{Brief: true}), spread},
		{"startup.md", render.Markdown, spread},
		{"startup.html", bare, spread},
		{"startup.csv", render.CSV, spread},
		{"compared.txt", width(120, text.Options{}), compared},
		{"full.md", render.Markdown, full},
		{"holed.html", bare, gaps},
		{"compared.html", bare, compared},
		{"small.json", render.JSON, small},
		{"small.csv", render.CSV, small},
		{"compared.csv", render.CSV, comparison.Build(provenance.Source{Dir: "runs/a", Run: runA, Samples: samplesA}, provenance.Source{Dir: "runs/b", Run: runB, Samples: samplesB}, true, nil)},
		{"levels.txt", width(120, text.Options{}), levels},
		{"levels.md", render.Markdown, levels},
		{"levels.html", bare, levels},
		{"levels.csv", render.CSV, levels},
		{"levels.json", render.JSON, levels},
		{"suite.txt", width(120, text.Options{}), suite},
		{"suite.md", render.Markdown, suite},
		{"suite.html", bare, suite},
		{"suite.csv", render.CSV, suite},
		{"suite.json", render.JSON, suite},
		{"small.bench.txt", render.GoBench, small},
		{"small.pkb.jsonl", render.PKB, small},
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
	for _, f := range render.Formats {
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
