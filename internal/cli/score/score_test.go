package score

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/measure/score"
	"unnest.io/unnest/internal/report/papers"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// execute runs the command with args and returns what it has printed.
func execute(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := NewCmd(terminal.Streams{In: strings.NewReader(stdin), Out: &out, Err: &stderr}, Run)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&stderr)
	err := cmd.ExecuteContext(t.Context())
	if stderr.Len() > 0 {
		t.Errorf("%v: stderr %q", args, stderr.String())
	}
	return out.String(), err
}

// publishedFile holds the results of Lubomski et al., Tables 5 and 6.
const publishedFile = "../../report/papers/lubomski_disk.csv"

func TestGolden(t *testing.T) {
	tests := []struct {
		golden string
		args   []string
	}{
		{"published.txt", []string{publishedFile}},
		{"missing.txt", []string{"testdata/missing.csv"}},
		{"partial.txt", []string{"--partial", "--baseline", "plain", "testdata/missing.csv"}},
		{"missing.json", []string{"--json", "testdata/missing.csv"}},
		{"partial.json", []string{"--json", "--partial", "--baseline", "plain", "testdata/missing.csv"}},
		{"missing.scores.csv", []string{"--format", "csv", "testdata/missing.csv"}},
		{"missing.md", []string{"--format", "markdown", "testdata/missing.csv"}},
	}
	for _, tt := range tests {
		out, err := execute(t, "", tt.args...)
		if err != nil {
			t.Errorf("%v: %v", tt.args, err)
		}
		golden := filepath.Join("testdata", tt.golden)
		if *update {
			if err := os.WriteFile(golden, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out); diff != "" {
			t.Errorf("%v: output differs (-want +got):\n%s", tt.args, diff)
		}
	}
}

// The totals of the paper come out of the file of its results.
func TestPublishedJSON(t *testing.T) {
	out, err := execute(t, "", publishedFile, "--json", "--baseline", "vm.local")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Suites map[string]struct {
			Total, GeoMean map[string]float64
			Rounded        map[string]float64 `json:"total_rounded"`
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	disk, checked := got.Suites["disk"], 0
	for _, total := range papers.Totals() {
		if total.Suite != "disk" {
			continue
		}
		checked++
		if disk.Rounded[total.Configuration] != total.Total.Float() {
			t.Errorf("%s: total_rounded %v, printed %s", total.Configuration, disk.Rounded[total.Configuration], total.Total)
		}
		if disk.Total[total.Configuration] == disk.Rounded[total.Configuration] {
			t.Errorf("%s: total %v is rounded", total.Configuration, disk.Total[total.Configuration])
		}
	}
	if checked != 6 || disk.GeoMean["vm.local"] != 1 || !(disk.GeoMean["metal.local"] < 1) {
		t.Errorf("checked %d totals, geometric means %v", checked, disk.GeoMean)
	}
}

// Standard input, with a byte order mark, carriage returns and quoted names, is
// the same file.
func TestStandardInput(t *testing.T) {
	text, err := os.ReadFile("testdata/missing.csv")
	if err != nil {
		t.Fatal(err)
	}
	want, err := execute(t, "", "testdata/missing.csv")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(text), "\n")
	foreign := "\ufeff" + strings.ReplaceAll(strings.Replace(rows, "configuration", `"configuration"`, 1), "\n", "\r\n")
	for _, stdin := range []string{string(text), foreign} {
		if got, err := execute(t, stdin, "-"); err != nil || got != want {
			t.Errorf("%q: %v, got\n%s", stdin, err, got)
		}
	}
}

func TestErrors(t *testing.T) {
	const header = "suite,case,order,unit,configuration,value\n"
	const fix = "begin the file with a line suite,case,order,unit,configuration,value"
	tests := []struct{ stdin, want string }{
		{"", "the file is empty: " + fix},
		{"# nothing\n", "the file is empty: " + fix},
		{"disk,read,HIB,MB/s,plain,1\n", "line 1: the header lacks suite, case, order, unit, configuration, value: " + fix},
		{"suite;case;order\n", "line 1: the header lacks suite, case, order, unit, configuration, value: " + fix},
		{"# x\nsuite,case,value\n", "line 2: the header lacks order, unit, configuration: " + fix},
		{"suite,case,order,unit,configuration,value,value\n", "line 1, column value: appears twice: remove or rename one"},
		{header + "d,r,HIB,MB/s,plain\n", "line 2: 5 fields, but the header has 6: give each column one field, and quote fields that contain commas"},
		{header + "d,r,HIB,MB/s,plain,1\n\nd,r,HIB,MB/s,nested,fast\n", `line 4, column value: "fast" is not a number: write one such as 12.5`},
		{header + "d,r,HIB,MB/s,plain,\n", `line 2, column value: "" is not a number: write one such as 12.5`},
		{header + "d,r,HIB,MB/s,plain,-3\n", "line 2, column value: -3: want a positive number, from 1e-100 to 1e+100"},
		{header + "d,r,HIB,MB/s,plain,NaN\n", "line 2, column value: NaN: want a positive number, from 1e-100 to 1e+100"},
		{header + "d,r,HIB,MB/s,plain,1e999\n", "line 2, column value: +Inf: want a positive number, from 1e-100 to 1e+100"},
		{header + "d,r,higher,MB/s,plain,1\n", `line 2, column order: "higher": want HIB (higher is better) or LIB (lower is better)`},
		{header + "d,r,HIB,MB/s,plain,1\nd,\"r\",LIB,MB/s,nested,1\n", `line 3, column order: LIB, but case "r" was HIB before: give a case one order`},
		{header + "d,r,HIB,MB/s, ,1\n", "line 2, column configuration: is empty: give it a name"},
		{header + "d,\"r\n\",HIB,MB/s,plain,1\nd,r,HIB,s,plain,1\n", `line 4, column unit: "s", but case "r" was in "MB/s" before: give a case one unit`},
		{header + "d,r\"x,HIB,MB/s,plain,1\n", `line 2, character 4: bare " in non-quoted-field: quote fields that contain quotes, and double the quotes inside`},
		{"suite,\"case\n", `line 1, character 13: extraneous or missing " in quoted-field: quote fields that contain quotes, and double the quotes inside`},
	}
	for _, tt := range tests {
		out, err := execute(t, tt.stdin, "-")
		if err == nil || err.Error() != "read standard input: "+tt.want || out != "" {
			t.Errorf("%q: got %v\nwant %s; stdout %q", tt.stdin, err, tt.want, out)
		}
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-"}, "score standard input: no results: give at least one row"},
		{[]string{"nowhere.csv"}, "read nowhere.csv: no such file or directory: name a CSV file, or - for standard input"},
		{[]string{"testdata"}, "read testdata: is a directory"},
		{[]string{"testdata/missing.csv", "--baseline", "bare"}, `score testdata/missing.csv: no results of baseline "bare": choose one of plain, nested, fused`},
	} {
		if _, err := execute(t, header, tt.args...); err == nil || err.Error() != tt.want {
			t.Errorf("%v: got %v, want %s", tt.args, err, tt.want)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestCannotPrint(t *testing.T) {
	for format, asJSON := range map[string]bool{"text": false, "json": true} {
		err := Run(t.Context(), Options{Streams: terminal.Streams{Out: failing{}}, File: "testdata/missing.csv", Output: document.Output{JSON: asJSON}})
		if err == nil || err.Error() != "print score as "+format+": no space left" {
			t.Errorf("%s: got %v", format, err)
		}
	}
}

func TestNewCmd(t *testing.T) {
	tests := []struct {
		args []string
		want Options
	}{
		{[]string{"a.csv"}, Options{File: "a.csv"}},
		{[]string{"--json", "-", "--baseline", "x"}, Options{File: "-", Output: document.Output{JSON: true}, Score: score.Options{Baseline: "x"}}},
		{[]string{"--partial", "a.csv"}, Options{File: "a.csv", Score: score.Options{Partial: true}}},
	}
	for _, tt := range tests {
		var got Options
		cmd := NewCmd(terminal.Streams{}, func(_ context.Context, o Options) error { got = o; return nil })
		cmd.SetArgs(tt.args)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%v: %v", tt.args, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v: options differ (-want +got):\n%s", tt.args, diff)
		}
	}
}
