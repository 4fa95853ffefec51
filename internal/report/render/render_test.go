package render

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/report/document"
)

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

// A document that is only a page is printed as one, and has no data and no samples.
func TestPageOnly(t *testing.T) {
	want := map[string]error{"csv": ErrNoData, "json": ErrNoData, "gobench": ErrNoSamples, "pkb": ErrNoSamples}
	for _, f := range Formats {
		if err := f.Print(io.Discard, document.Document{Title: "a page"}); !errors.Is(err, want[f.Name]) {
			t.Errorf("%s: error %v, want %v", f.Name, err, want[f.Name])
		}
	}
}

// A metric with two values in an execution takes two lines; its unit says which metric it is
// unless the test is about it.
func TestGoBenchLines(t *testing.T) {
	sample := func(execution int, metric, unit string, value float64) document.Sample {
		return document.Sample{Title: "UDP ping-pong", Keys: []document.Fact{{Name: "size", Value: "64"}, {Name: "config", Value: "a b"}}, Metric: metric,
			Primary: metric == "latency", Unit: unit, Better: "lower", Value: value, Execution: execution}
	}
	doc := document.Document{Samples: document.Samples{Run: "r1", Facts: []document.Fact{{Name: "cpu", Value: "X\n1"}, {Name: "kernel"}}, All: slices.Values([]document.Sample{
		sample(0, "latency", "us", 250), sample(0, "loss", "%", 0), sample(1, "latency", "us", 500), sample(1, "latency", "us", 750)})}}
	var out strings.Builder
	if err := GoBench(&out, doc); err != nil {
		t.Fatal(err)
	}
	const want = "unnest-run: r1\ncpu: X 1\nUnit sec/op better=lower\nUnit loss-% better=lower\n\n" +
		"BenchmarkUDPPingPong/size=64/config=a_b\t1\t0.00025 sec/op\t0 loss-%\n" +
		"BenchmarkUDPPingPong/size=64/config=a_b\t1\t0.0005 sec/op\n" +
		"BenchmarkUDPPingPong/size=64/config=a_b\t1\t0.00075 sec/op\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// A page begins with its sentence and a chart with intervals; what is not known is one folded line, and the description
// comes after what is decided.
func TestMarkdownOrder(t *testing.T) {
	series := document.ChartSeries{Name: "N`AT"}
	series.Add(1.2, document.Interval{Low: 1.1, High: 2})
	series.Add(document.Missing, document.NoInterval)
	series.Add(0.5, document.NoInterval)
	doc := document.Document{Title: "T", Answer: "NAT is slower.", Headlines: []string{"decided"}, NotKnown: []string{"a <b>", "c"}, Setting: "tcg", Description: "About.",
		Groups: []document.Group{{Charts: []document.Chart{{Kind: document.Stack, Title: "parts"},
			{Kind: document.Ratios, Title: "latency", Axis: "ratio", Categories: []string{"64 B", "1 KiB", "2 KiB"}, Series: []document.ChartSeries{series}}}}}}
	var out strings.Builder
	if err := Markdown(&out, doc); err != nil {
		t.Fatal(err)
	}
	const want = "# T\n\n**NAT is slower.**\n\n```text\nlatency\n" +
		"64 B   N'AT  1.20 [1.10, 2.00]                  │  ├──●────────────────────────┤\n" +
		"2 KiB  N'AT  0.50               ●               │\n" +
		"                                0.50            1                           2.00\nratio\n```\n\n" +
		"- decided\n\n<details><summary>Not known</summary>a &lt;b&gt;; c.</details>\n\ntcg\n\nAbout.\n\n## \n\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
