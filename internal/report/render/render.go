// Package render prints documents: as data (JSON, CSV), as Markdown and in the formats of
// benchmarks (Go's, PerfKitBenchmarker's) itself, as text and HTML by packages text and html. It
// adds nothing to what a document says.
package render

import (
	"fmt"
	"io"
	"slices"
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
}

// Formats are all formats; text has its default options.
var Formats = []Format{
	{"text", ".txt", func(w io.Writer, d document.Document) error { return text.Print(w, d, text.Options{}) }},
	{"csv", ".csv", CSV},
	{"json", ".json", JSON},
	{"markdown", ".md", Markdown},
	{"html", ".html", html.Print},
	{"gobench", ".bench.txt", GoBench},
	{"pkb", ".pkb.jsonl", PKB},
}

// FormatNamed returns a format by its name; the error lists the names.
func FormatNamed(name string) (Format, error) {
	i := slices.IndexFunc(Formats, func(f Format) bool { return f.Name == name })
	if i < 0 {
		var names []string
		for _, f := range Formats {
			names = append(names, f.Name)
		}
		return Format{}, fmt.Errorf("report format %q: want one of %s", name, strings.Join(names, ", "))
	}
	return Formats[i], nil
}
