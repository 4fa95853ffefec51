package papers

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
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
