package papers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/cli/terminal"
)

// bench stands for unnest bench: it logs its arguments, writes the published run of levels, fails for hostlo
// before it begins, and begins every other experiment and fails then.
const bench = `#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
"bench levels --output "*) cp -r "$RUNS/levels" "$4" ;;
*hostlo*) exit 1 ;;
*--resume*) exit 1 ;;
*) for dir; do :; done; mkdir -p "$dir"; echo '{"state":"interrupted"}' >"$dir/run.json"; exit 1 ;;
esac
`

// Each experiment that the claims need is measured once, those with the most claims for their time first. One that
// fails is named, while the others go on, unless it fails before it begins.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	program, log, runsDir := filepath.Join(dir, "unnest"), filepath.Join(dir, "log"), filepath.Join(dir, "runs")
	if err := os.WriteFile(program, []byte(bench), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(runsDir, 0o755); err != nil {
		t.Fatal(err)
	}
	published, err := published()
	if err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs("../../../docs/results/runs")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("RUNS", source)
	t.Setenv("LOG", log)
	all := studies(published)[:3]
	for i, want := range []string{
		"bench levels --suite reserved --output DIR/levels-reserved\nbench levels --output DIR/levels\nbench multilevel --suite network --output DIR/multilevel-network\n",
		"bench --resume DIR/levels-reserved\nbench --resume DIR/multilevel-network\n", // what is complete stays
	} {
		var progress bytes.Buffer
		err := measure(t.Context(), Options{Streams: terminal.Streams{Err: &progress}, Run: runsDir}, program, all)
		if err == nil || !strings.Contains(err.Error(), ": levels-reserved, multilevel-network failed; repeat") {
			t.Errorf("%d: got %v", i, err)
		}
		got, err := os.ReadFile(log)
		if err != nil || os.Remove(log) != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, strings.ReplaceAll(string(got), runsDir, "DIR")); diff != "" {
			t.Errorf("%d: commands differ (-want +got):\n%s", i, diff)
		}
		if first, _, _ := strings.Cut(progress.String(), "\n"); !strings.HasPrefix(first, "[1/3] unnest bench ") || !strings.HasSuffix(first, "/levels-reserved (claims: 20)") {
			t.Errorf("%d: %s", i, &progress)
		}
	}
	all = []study{{experiment: "hostlo"}, {experiment: "levels-reserved"}}
	if err := measure(t.Context(), Options{Streams: terminal.Streams{Err: io.Discard}, Run: runsDir}, program, all); !errors.Is(err, errNotBegun) {
		t.Errorf("one that fails before it begins: got %v", err)
	}
	if got, err := os.ReadFile(log); err != nil || strings.Count(string(got), "\n") != 1 {
		t.Errorf("after one that has failed before it began: %v, commands:\n%s", err, got)
	}
	all = studies(published)[:3]
	if got := complete(runsDir, all); len(got) != 1 || filepath.Base(got[0]) != "levels" {
		t.Errorf("complete: %q", got)
	}
}

// An interrupt reaches the experiment, and the measurement ends with it.
func TestMeasureInterrupted(t *testing.T) {
	program := filepath.Join(t.TempDir(), "unnest")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntrap 'echo removed >&2; exit 130' INT\necho up >&2\nwhile :; do sleep 0.05; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("interrupted")
	var said bytes.Buffer
	up := writer(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("up\n")) {
			cancel(reason)
		}
		return said.Write(p)
	})
	err := measure(ctx, Options{Streams: terminal.Streams{Err: up}, Run: t.TempDir()}, program, []study{{experiment: "levels"}, {experiment: "hostlo"}})
	if !errors.Is(err, reason) || !strings.HasSuffix(said.String(), "removed\n") || strings.Contains(said.String(), "[2/2]") {
		t.Errorf("got %v, said %s", err, &said)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
