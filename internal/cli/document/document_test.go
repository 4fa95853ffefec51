package document

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/report/render"
	"unnest.io/unnest/internal/report/runs"
)

func TestLoadTellsWhatJournalLacks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	d, err := rundir.Create(dir, result.Run{ID: "r1", Configurations: []result.Configuration{{Name: "NAT"}},
		Cases: []result.Case{{Name: "udp_rr/64", Metrics: []result.Metric{{Name: "latency_mean", Unit: "us", Order: result.LIB}}}}})
	if err != nil {
		t.Fatal(err)
	}
	sample := result.Sample{Run: "r1", Configuration: "NAT", Start: time.Unix(0, 0), Case: "udp_rr/64", Metric: "latency_mean", Unit: "us", Order: result.LIB, Value: 1}
	if err := errors.Join(d.Append([]result.Sample{sample}), d.Close()); err != nil {
		t.Fatal(err)
	}
	input, notes, err := Load(dir)
	if err != nil || input.Run.ID != "r1" || len(input.Samples) != 1 || input.Dir != dir || notes != nil {
		t.Fatalf("got %+v, %v, %v", input, notes, err)
	}
	journal, err := os.OpenFile(filepath.Join(dir, rundir.SamplesFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := journal.WriteString(`{"run":"r`); err != nil {
		t.Fatal(err)
	}
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
	input, notes, err = Load(dir)
	if err != nil || len(input.Samples) != 1 || len(notes) != 1 || !strings.Contains(notes[0], "incomplete") {
		t.Errorf("journal cut short: got %d samples, notes %q, %v", len(input.Samples), notes, err)
	}

	if d, err = rundir.Open(dir); err != nil {
		t.Fatal(err)
	}
	sample.Repetition, sample.Start = 1, time.Unix(3600, 0)
	if err := errors.Join(d.Append([]result.Sample{sample}), d.Close()); err != nil {
		t.Fatal(err)
	}
	if _, notes, err = Load(dir); err != nil || len(notes) != 1 || !strings.HasPrefix(notes[0], "In udp_rr/64, more than five minutes passed") {
		t.Errorf("an hour apart: notes %q, %v", notes, err)
	}
}

func TestFormat(t *testing.T) {
	tests := []struct{ format, file, want string }{
		{"", "", "text"},
		{"csv", "", "csv"},
		{"", "report.html", "html"},
		{"", "report.md", "markdown"},
		{"", "report.txt", "text"},
		{"", "report.bench.txt", "gobench"},
		{"", "report.pkb.jsonl", "pkb"},
		{"", "report", "text"},
		{"", "/dev/stdout", "text"},
		{"json", "report.html", "json"},
	}
	for _, tt := range tests {
		got, err := Output{Format: tt.format, File: tt.file, Samples: true}.format()
		if err != nil || got.Name != tt.want {
			t.Errorf("format %q, file %q: got %s, %v; want %s", tt.format, tt.file, got.Name, err, tt.want)
		}
	}
}

// An extension that no format has is an error, before anything is written.
func TestUnknownExtension(t *testing.T) {
	doc := runs.Build(result.Run{ID: "r1", Title: "A run"}, nil, runs.Options{})
	file := filepath.Join(t.TempDir(), "report.pdf")
	for _, err := range []error{Output{File: file}.Check(), Output{File: file}.Print(terminal.Streams{}, doc)} {
		want := ": unknown extension .pdf: want .txt (text), .csv (csv), .json (json), .md (markdown), .html (html), or add --format"
		if _, ok := errors.AsType[*usage.Error](err); !ok || err.Error() != "--output "+file+want {
			t.Errorf("got %v", err)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was written: %v", err)
	}
	if err := (Output{File: file, Format: "html"}).Print(terminal.Streams{}, doc); err != nil {
		t.Errorf("with --format: %v", err)
	}
}

// Whatever the flags, the document goes to one place only.
func TestPrint(t *testing.T) {
	doc := runs.Build(result.Run{ID: "r1", Title: "A run"}, nil, runs.Options{})
	for _, f := range render.Formats {
		var out, want bytes.Buffer
		if err := f.Print(&want, doc); err != nil {
			t.Fatal(err)
		}
		cmd, output := &cobra.Command{}, Output{Samples: true}
		output.AddFlags(cmd)
		if err := cmd.ParseFlags([]string{"--format", f.Name}); err != nil {
			t.Fatal(err)
		}
		if err := output.Print(terminal.Streams{Out: &out}, doc); err != nil || out.String() != want.String() {
			t.Errorf("%s on stdout: %v, got\n%s", f.Name, err, out.String())
		}
		output.File = filepath.Join(t.TempDir(), "report")
		if err := output.Print(terminal.Streams{Out: failing{}}, doc); err != nil {
			t.Errorf("%s to a file: %v", f.Name, err)
		}
		if got := read(t, output.File); got != want.String() {
			t.Errorf("%s in a file: got\n%s", f.Name, got)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("written to") }

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "report"), filepath.Join(dir, "link")
	if err := os.Symlink("report", link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link, link} {
		if err := WriteFile(name, say(name)); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != name {
			t.Errorf("report holds %q after writing %s", got, name)
		}
	}
	broken := func(w io.Writer) error {
		return errors.Join(say("half")(w), errors.New("broken"))
	}
	if err := WriteFile(path, broken); err == nil || read(t, path) != link {
		t.Errorf("after a write that broke off: %v, report holds %q", err, read(t, path))
	}
	if target, err := os.Readlink(link); err != nil || target != "report" {
		t.Errorf("the link is now %q, %v", target, err)
	}
	names, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// What WriteFile would refuse is refused before the work. That of a directory that the user may not write is in
// the scripts of package cli.
func TestCheckFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"": "", file: "", filepath.Join(dir, "new"): "", "/dev/null": "",
		dir:                             "it is a directory: name a file in it",
		filepath.Join(dir, "none", "x"): "no such file or directory: make its directory first",
		filepath.Join(file, "x"):        "not a directory: name a file in another directory",
	} {
		if want != "" {
			want = "write " + name + ": " + want
		}
		if err := CheckFile(name); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
}

// Only the report of a run has samples to print.
func TestFormatsOfSamples(t *testing.T) {
	for _, o := range []Output{{Format: "pkb"}, {File: "x.bench.txt"}} {
		_, err := o.format()
		if _, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(err.Error(), " prints the samples of one run: use unnest report on it, or another format: text, csv, json, markdown, html") {
			t.Errorf("%+v: got %v", o, err)
		}
	}
}

func TestWriteFileRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := WriteFile(dir, say("x")); err == nil || !strings.Contains(err.Error(), "it is a directory") {
		t.Errorf("directory: %v", err)
	}
	missing := filepath.Join(dir, "nowhere", "report")
	if err := WriteFile(missing, say("x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory that is not there: %v", err)
	}
}

// A device is written to, never replaced by a file.
func TestWriteFileToDevice(t *testing.T) {
	if err := WriteFile("/dev/null", say("x")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode()&fs.ModeDevice == 0 {
		t.Fatalf("/dev/null is now %v, %v", info.Mode(), err)
	}
	if err := WriteFile("/dev/full", say("x")); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("full device: %v", err)
	}
}

func say(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
