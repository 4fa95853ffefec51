package papers

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/report/claims"
)

func TestNewCmd(t *testing.T) {
	var got Options
	cmd := NewCmd(terminal.Streams{}, func(_ context.Context, o Options) error { got = o; return nil })
	cmd.SetArgs([]string{"a", "b", "--format", "csv"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Options{Dirs: []string{"a", "b"}, Output: document.Output{Format: "csv"}}, got); diff != "" {
		t.Errorf("options differ (-want +got):\n%s", diff)
	}
}

// csvOf returns the CSV of the claims with runs of the user.
func csvOf(t *testing.T, dirs ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Run(t.Context(), Options{Streams: terminal.Streams{Out: &out}, Dirs: dirs, Output: document.Output{Format: "csv"}})
	return out.String(), err
}

// The published runs are in the program: it needs no directory. A run of the user replaces that of its experiment.
func TestRun(t *testing.T) {
	kept, err := filepath.Abs("../../../docs/results/runs")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	published, err := csvOf(t)
	if err != nil || !strings.Contains(published, "bacou-5.2.1-udp_rr-latency--brfusion-nat,") {
		t.Fatalf("%v:\n%s", err, published)
	}
	if again, err := csvOf(t, filepath.Join(kept, "brfusion")); err != nil || again != published {
		t.Errorf("the published run in place of itself: %v, other claims", err)
	}
	if _, err := csvOf(t, filepath.Join(kept, "aa")); err == nil || !strings.Contains(err.Error(), "no claim is about experiment aa") {
		t.Errorf("a run of another experiment: %v", err)
	}
}

// publishedRuns is the directory of the published runs.
const publishedRuns = "../../../docs/results/runs"

// halfOf writes the published run called name with half of its journal, as a run that has not ended, with more vCPUs.
func halfOf(t *testing.T, name string) string {
	t.Helper()
	run, err := rundir.ReadRun(filepath.Join(publishedRuns, name))
	if err != nil {
		t.Fatal(err)
	}
	run.State, run.Configurations[0].Options["vcpus"] = result.Running, "64"
	text, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.Open(filepath.Join(publishedRuns, name, rundir.SamplesFile+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	journal, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, data := range map[string][]byte{rundir.RunFile: text, rundir.SamplesFile: journal[:len(journal)/2]} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The document and the JSON name what is wrong with a run of the user.
func TestWarnsOfRun(t *testing.T) {
	dir := halfOf(t, "hostlo")
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		if err := Run(t.Context(), Options{Streams: terminal.Streams{Out: &out, OutWidth: 10000}, Dirs: []string{dir}, Output: document.Output{Format: format}}); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(strings.ReplaceAll(out.String(), `\"`, `"`)), " ")
		for _, want := range []string{
			dir + ": The run is running, not complete: ", "dropped the incomplete execution at byte ",
			dir + ": The run (B) is not set up as the published one (A): vcpus of SameNode is \"1\" in A and \"64\" in B.",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", format, want)
			}
		}
	}
}

// A run of one case, as of bench --case, decides no claim about all cases, and that about its case as the whole run does.
func TestRunOfOneCase(t *testing.T) {
	run, samples, err := rundir.Load(filepath.Join(publishedRuns, "hostlo"))
	if err != nil {
		t.Fatal(err)
	}
	const chosen = "udp_rr/1024"
	run.Cases = slices.DeleteFunc(run.Cases, func(c result.Case) bool { return c.Name != chosen })
	dir := filepath.Join(t.TempDir(), "part")
	d, err := rundir.Create(dir, run)
	if err != nil {
		t.Fatal(err)
	}
	var execution []result.Sample
	for i, s := range samples {
		if s.Case != chosen {
			continue
		}
		if execution = append(execution, s); i+1 == len(samples) || samples[i+1].Execution() != s.Execution() {
			err, execution = errors.Join(err, d.Append(execution)), nil
		}
	}
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	rows := func(dirs ...string) map[string][]string {
		text, err := csvOf(t, dirs...)
		if err != nil {
			t.Fatal(err)
		}
		all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		of := map[string][]string{}
		for _, row := range all {
			of[row[1]] = row
		}
		return of
	}
	whole, part := rows(), rows(dir)
	ours, answer, why := slices.Index(part["id"], "ours"), slices.Index(part["id"], "answer"), slices.Index(part["id"], "why")
	many := 0
	for _, c := range claims.All() {
		row := part[c.ID]
		switch {
		case c.Run == "hostlo" && strings.HasSuffix(c.Case, "*"):
			if many++; row[answer] != "not decided" || row[ours] != "" {
				t.Errorf("of all cases: %q", row)
			}
			if strings.HasPrefix(c.Case, "udp_rr") && row[why] != "the run has only a part of the cases" {
				t.Errorf("why: %q", row[why])
			}
		case c.Run == "hostlo" && c.Case == chosen:
			if row[ours] != whole[c.ID][ours] || row[ours] == "" {
				t.Errorf("%s: %q, the whole run has %q", c.ID, row[ours], whole[c.ID][ours])
			}
		}
	}
	if many == 0 {
		t.Error("no claim of hostlo is about all cases")
	}
}

// Two runs of one experiment are refused.
func TestRefusesSecondRun(t *testing.T) {
	kept, again := filepath.Join(publishedRuns, "levels"), filepath.Join(t.TempDir(), "levels")
	if err := os.CopyFS(again, os.DirFS(kept)); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), Options{Streams: terminal.Streams{Out: io.Discard, Err: io.Discard}, Dirs: []string{kept, again}})
	if err == nil || err.Error() != "read run "+again+": "+kept+" is a run of experiment levels, too; name one run of each experiment" {
		t.Errorf("got %v", err)
	}
}
