package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
)

// FitzGerald 2014, §3.1, note 4: S390x CPU throughput, L0 against L1.
var (
	l0 = "1068.5,2.40,6"
	l1 = "1041.3,18.60,6"
)

// compared runs the command and returns what it prints.
func compared(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCmd(terminal.Streams{Out: &out}, Run)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSummaryPrintsThePublishedP(t *testing.T) {
	got, err := compared(t, "--summary", l0, l1, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal([]byte(got), &c); err != nil {
		t.Fatal(err)
	}
	rounded := map[string]string{}
	for key, places := range map[string]int{"t": 3, "df": 3, "p": 3, "df_truncated": 0, "p_truncated": 3, "delta_percent": 2, "minimum_detectable": 2, "minimum_detectable_percent": 2} {
		v, ok := c[key].(float64)
		if !ok {
			t.Fatalf("key %s: %v", key, c[key])
		}
		rounded[key] = fmt.Sprintf("%.*f", places, v)
	}
	want := map[string]string{
		// t = 27.2/√(2.4²+18.6²); df by hand from the weights 5.76 and 345.96.
		"t": "1.450", "df": "5.166", "p": "0.205", "df_truncated": "5", "p_truncated": "0.207",
		"delta_percent": "-2.55", "minimum_detectable": "65.35", "minimum_detectable_percent": "6.12",
	}
	if diff := cmp.Diff(want, rounded); diff != "" {
		t.Errorf("comparison differs (-want +got):\n%s", diff)
	}
	if c["delta_percent_of"] != "A" {
		t.Errorf("delta_percent_of %v, want A", c["delta_percent_of"])
	}
}

func TestSummaryInWords(t *testing.T) {
	got, err := compared(t, "--summary", l0, l1)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"B 1041.3 18.6 1.79 % 6", "-2.55 % of A (p = 0.20)", "p, two-sided 0.205 0.207",
		"the probability, if the two had the same mean, of a difference at least as large", "not the probability that the means are equal"} {
		if !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
			t.Errorf("output lacks %q:\n%s", want, got)
		}
	}
}

// One level of the thesis has a standard error of 0 (Table 6, S390x, L2).
func TestSummaryTakesOneStandardErrorOf0(t *testing.T) {
	for _, args := range [][]string{{"3.8567,0.0357,6", "3.7300,0.000,6"}, {"3.7300,0,6", "3.8567,0.0357,6"}} {
		got, err := compared(t, append([]string{"--summary"}, args...)...)
		if err != nil || !strings.Contains(strings.Join(strings.Fields(got), " "), "df 5.00 5") {
			t.Errorf("%v: %v, want the df of the side that varies:\n%s", args, err, got)
		}
	}
	// Means of 0 have no percentages.
	got, err := compared(t, "--summary", "0,1,6", "1,1,6", "--json")
	if err != nil || !strings.Contains(got, `"delta_percent": null`) || !strings.Contains(got, `"minimum_detectable": 4`) {
		t.Errorf("mean of 0: %v\n%s", err, got)
	}
}

func TestSummaryRefuses(t *testing.T) {
	tests := []struct{ a, b, want string }{
		{"1068.5,2.40", l1, `argument A, "1068.5,2.40": want MEAN,STANDARD_ERROR,N, such as 1068.5,2.40,6`},
		{l0, "runs/after", `argument B, "runs/after": want MEAN,STANDARD_ERROR,N, such as 1068.5,2.40,6`},
		{"x,2.40,6", l1, `argument A, "x,2.40,6": mean "x" is not a finite number: write it as 1068.5 or 3.3e-4`},
		{l0, "NaN,1,6", `argument B, "NaN,1,6": mean "NaN" is not a finite number: write it as 1068.5 or 3.3e-4`},
		{l0, "1,1e999,6", `argument B, "1,1e999,6": standard error "1e999" is not a finite number: write it as 1068.5 or 3.3e-4`},
		{l0, "1,-1,6", `argument B, "1,-1,6": standard error -1 is negative: give the standard error of the mean, s/√n`},
		{"1,1,1", l1, `argument A, "1,1,1": N "1": give the number of runs, a whole number of at least 2`},
		{l0, "1,1,6.5", `argument B, "1,1,6.5": N "6.5": give the number of runs, a whole number of at least 2`},
		{"1,0,6", "2,0,6", `arguments A and B: both standard errors are 0, so there is no test: give at least one above 0, with more digits if it was rounded`},
	}
	for _, tt := range tests {
		out, err := compared(t, "--summary", tt.a, tt.b)
		if _, ok := errors.AsType[*usage.Error](err); !ok || err.Error() != tt.want || out != "" {
			t.Errorf("%s %s: printed %q, error\n%v, want\n%s", tt.a, tt.b, out, err, tt.want)
		}
	}
	if _, err := compared(t, "--json", "--format", "csv", "--summary", l0, l1); err == nil || !strings.Contains(err.Error(), "[format json]") {
		t.Errorf("--json with --format: %v", err)
	}
}

// Two means are printed in every format of documents, also to a file.
func TestSummaryFormats(t *testing.T) {
	file := filepath.Join(t.TempDir(), "means.csv")
	if out, err := compared(t, "-o", file, "--summary", l0, l1); err != nil || out != "" {
		t.Errorf("printed %q, %v", out, err)
	}
	records, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(records), "\n1068.5,2.4,6,1041.3,18.6,6,1.45") {
		t.Errorf("CSV: %v\n%s", err, records)
	}
	for format, want := range map[string]string{"markdown": "| B | 1041.3 | 18.6 | 1.79 % | 6 |", "html": "<h1>Two means compared</h1>", "json": `"p_truncated": 0.2`} {
		if got, err := compared(t, "--format", format, "--summary", l0, l1); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v, want %q in\n%s", format, err, want, got)
		}
	}
}
