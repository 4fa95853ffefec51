package clean

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/testbed/image"
)

// execute runs "unnest clean" with args and returns what it prints.
func execute(t *testing.T, run func(context.Context, Options) error, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCmd(terminal.Streams{Out: &out}, run)
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		dryRun bool
		want   string // the error; empty: none
	}{
		{nil, false, ""},
		{[]string{"--dry-run"}, true, ""},
		{[]string{"--dry-run", "--cache"}, true, ""},
		{[]string{"run-1"}, false, `unexpected argument "run-1"`},
	} {
		var got Options
		_, err := execute(t, func(_ context.Context, o Options) error { got = o; return nil }, tt.args...)
		if _, wrong := errors.AsType[*usage.Error](err); wrong != (tt.want != "") || wrong && err.Error() != tt.want || got.DryRun != tt.dryRun {
			t.Errorf("%v: got %+v, %v; want dry run %v, %q", tt.args, got, err, tt.dryRun, tt.want)
		}
	}
}

func TestList(t *testing.T) {
	for _, tt := range []struct {
		dryRun     bool
		labs, work []string
		cache      []image.Entry
		want       string
	}{
		{false, nil, nil, nil, "nothing to remove\n"},
		{false, []string{"/run/unnest/run-a"}, []string{"/cache/work-run-a"}, nil, "removed lab /run/unnest/run-a with its processes and network namespaces\nremoved work directory /cache/work-run-a with its control groups\n"},
		{true, nil, nil, []image.Entry{{Path: "/cache/image-a", Size: 5 << 28, Used: time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)}},
			"would remove /cache/image-a from the cache, 1.2 GiB, used last on 2026-03-14 09:26:53\n"},
		{true, []string{"/run/unnest/run-a"}, nil, nil, "would remove lab /run/unnest/run-a with its processes and network namespaces\n"},
	} {
		var out bytes.Buffer
		if err := list(Options{Streams: terminal.Streams{Out: &out}, DryRun: tt.dryRun}, tt.labs, tt.work, tt.cache); err != nil || out.String() != tt.want {
			t.Errorf("got %q, %v; want %q", out.String(), err, tt.want)
		}
	}
}

// A dry run lists the lab and the work directory of a dead run, and removes nothing.
func TestDryRun(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	state, cache := t.TempDir(), t.TempDir()
	t.Setenv("UNNEST_STATE", state)
	t.Setenv("UNNEST_CACHE", cache)
	lab, work := filepath.Join(state, "run-dead"), filepath.Join(cache, "work-run-dead")
	if err := errors.Join(os.Mkdir(lab, 0o700), os.WriteFile(filepath.Join(lab, "unnest-lab"), nil, 0o600), os.Mkdir(work, 0o700)); err != nil {
		t.Fatal(err)
	}
	out, err := execute(t, Run, "--dry-run")
	if err != nil || !strings.Contains(out, "would remove lab "+lab+" ") || !strings.Contains(out, "would remove work directory "+work+" ") {
		t.Errorf("%v, output:\n%s", err, out)
	}
	for _, dir := range []string{lab, work} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}
