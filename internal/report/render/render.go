// Package render prints documents: as data (JSON, CSV), as Markdown and in the formats of
// benchmarks (Go's, PerfKitBenchmarker's) itself, as text and HTML by packages text and html. It
// adds nothing to what a document says.
package render

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/render/html"
	"unnest.io/unnest/internal/report/render/text"
)

// Format prints a document.
type Format struct {
	Name      string // as a user names it
	Extension string // of a file in this format, with its dot
	Print     func(io.Writer, document.Document) error
	Samples   bool // it prints the samples of a run, which no other document has
}

// Formats are all formats; text has its default options.
var Formats = []Format{
	{"text", ".txt", func(w io.Writer, d document.Document) error { return text.Print(w, d, text.Options{}) }, false},
	{"csv", ".csv", CSV, false},
	{"json", ".json", JSON, false},
	{"markdown", ".md", Markdown, false},
	{"html", ".html", html.Print, false},
	{"gobench", ".bench.txt", GoBench, true},
	{"pkb", ".pkb.jsonl", PKB, true},
}

// Names returns the names of the formats of documents with or without samples.
func Names(samples bool) (names []string) {
	for _, f := range Formats {
		if samples || !f.Samples {
			names = append(names, f.Name)
		}
	}
	return names
}

// FormatNamed returns a format by its name; the error lists the names.
func FormatNamed(name string) (Format, error) {
	i := slices.IndexFunc(Formats, func(f Format) bool { return f.Name == name })
	if i < 0 {
		return Format{}, fmt.Errorf("report format %q: want one of %s", name, strings.Join(Names(true), ", "))
	}
	return Formats[i], nil
}

// ErrNoData is returned by JSON and CSV for a document without them.
var ErrNoData = errors.New("the document has no data: print it as text, Markdown or HTML")

// JSON prints the data of a document, with their version before the other keys.
func JSON(w io.Writer, doc document.Document) error {
	if doc.Data == nil {
		return ErrNoData
	}
	data, err := versioned(doc.SchemaVersion, doc.Data)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(data)
}

// versioned puts the version before the other keys of data, which must be an object.
func versioned(version int, data any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(b.Bytes(), []byte("{"))
	if !ok {
		return nil, fmt.Errorf("encode %T: is not an object", data)
	}
	return fmt.Appendf(nil, `{"schema_version":%d,%s`, version, rest), nil
}

// CSV prints the records of a document.
func CSV(w io.Writer, doc document.Document) error {
	if doc.Records == nil {
		return ErrNoData
	}
	return csv.NewWriter(w).WriteAll(doc.Records)
}

// pkbSample is one line of PerfKitBenchmarker's newline-delimited JSON.
type pkbSample struct {
	Metric    string  `json:"metric"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Timestamp float64 `json:"timestamp"` // seconds since 1970
	Test      string  `json:"test"`
	RunURI    string  `json:"run_uri"`
	SampleURI string  `json:"sample_uri"`
	Product   string  `json:"product_name"`
	Official  bool    `json:"official"`
	Owner     string  `json:"owner"`
	Labels    string  `json:"labels"`
}

// PKB prints the samples as PerfKitBenchmarker publishes them: newline-delimited
// JSON with collapsed labels, "|key:value|,|key:value|".
func PKB(w io.Writer, doc document.Document) error {
	if doc.Samples.Run == "" {
		return ErrNoSamples
	}
	enc := json.NewEncoder(w)
	i := 0
	for s := range doc.Samples.All {
		if err := enc.Encode(pkbSample{
			Metric: s.Metric, Value: s.Value, Unit: s.Unit, Timestamp: float64(s.Start.UnixMicro()) / 1e6,
			Test: s.Test, RunURI: s.Run, SampleURI: s.Run + "-" + strconv.Itoa(i), Product: "unnest", Labels: pkbLabels(s.Labels),
		}); err != nil {
			return fmt.Errorf("print PerfKitBenchmarker sample %d, %s of %s: %w", i, s.Metric, s.Test, err)
		}
		i++
	}
	return nil
}

// pkbLabels collapses labels, in the order of their keys.
func pkbLabels(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if labels[k] != "" {
			parts = append(parts, "|"+pkbText(k)+":"+pkbText(labels[k])+"|")
		}
	}
	return strings.Join(parts, ",")
}

// pkbText replaces the characters that end a label.
func pkbText(s string) string { return strings.ReplaceAll(document.Clean(s), "|", "/") }
