package xen

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/place"
)

// hostWithFakes is this machine as a Xen host, with an xl and an xentrace that do what the scripts say.
func hostWithFakes(t *testing.T, xl, xentrace string) (h *Host, calls string) {
	t.Helper()
	env, calls := withFakes(t, map[string]string{"xl": xl, "xentrace": xentrace})
	t.Setenv("PATH", strings.TrimPrefix(env[len(env)-1], "PATH="))
	dir := filepath.Join(t.TempDir(), "unnest-run-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &Host{Dom0: place.Local{}, Dir: dir}, calls
}

// xentraceFake writes half of the records of a file when it begins, and the rest at its end.
const xentraceFake = `for last; do :; done
head -c 16 FILE >"$last"
trap 'tail -c +17 FILE >>"$last"; exit 0' TERM
while :; do sleep 0.05; done`

func TestTracing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records")
	records := append(becomes(1000, 1, 0, running, blocked), becomes(2000, 1, 0, blocked, runnable)...)
	records = append(records, becomes(4_000_010, 1, 0, runnable, '\n'&3)...)
	if err := os.WriteFile(file, records, 0o600); err != nil {
		t.Fatal(err)
	}
	h, calls := hostWithFakes(t, `echo "cpu_mhz                : 2000.000"`, strings.ReplaceAll(xentraceFake, "FILE", file))
	for range 2 {
		tracing, err := h.Trace(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(h.Dir + "/trace"); err != nil {
			t.Errorf("nothing says that Xen records: %v", err)
		}
		trace, err := tracing.Stop()
		if err != nil || trace.Window != 1999505*time.Nanosecond || trace.Domains[1].Waiting != 1999005*time.Nanosecond {
			t.Errorf("got %+v, %v", trace, err)
		}
		if left, err := os.ReadDir(h.Dir); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
	if got := called(t, calls); strings.Count(got, "xentrace -D -e 0x00021000 -S 128 "+h.Dir+"/trace\n") != 2 {
		t.Errorf("called %q", got)
	}
}

// A recording that cannot begin says why, at once.
func TestTracingRefused(t *testing.T) {
	for name, test := range map[string]struct{ xl, xentrace, want string }{
		"ended":        {`echo "cpu_mhz : 2000.0"`, "echo Failed to bind to VIRQ port >&2; exit 1", "Failed to bind to VIRQ port"},
		"no frequency": {"exit 1", strings.ReplaceAll(xentraceFake, "FILE", "/bin/sh"), "no cpu_mhz"},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := hostWithFakes(t, test.xl, test.xentrace)
			begin := time.Now()
			if tracing, err := h.Trace(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %+v, %v", tracing, err)
			}
			if took := time.Since(begin); took > tracePatience/2 {
				t.Errorf("took %v", took)
			}
		})
	}
}

// A recording that is killed leaves its file, from which the removal knows that Xen records.
func TestTracingKilled(t *testing.T) {
	h, calls := hostWithFakes(t, `[ "$1" != info ] || echo "cpu_mhz : 2000.0"`, `[ "$2" != -T ] || exit 0
`+strings.ReplaceAll(xentraceFake, "FILE", "/bin/sh"))
	ctx, kill := context.WithCancel(t.Context())
	tracing, err := h.Trace(ctx)
	if err != nil {
		t.Fatal(err)
	}
	kill()
	time.Sleep(time.Second) // for what the end of ctx starts
	if trace, err := tracing.Stop(); err == nil {
		t.Errorf("got %+v", trace)
	}
	if err := os.WriteFile(h.Dir+"/.xen", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := called(t, calls); !strings.HasSuffix(got, "xl list\nxentrace -D -T 1 /dev/null\n") {
		t.Errorf("called %q", got)
	}
	if left, err := os.ReadDir(h.Dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
