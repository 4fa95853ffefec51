package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/lab"
)

// unnestBinary returns the path of bin/unnest, as `make build` leaves it, next to the other
// binaries. At the end of the test, nothing of the test may be left.
func unnestBinary(t *testing.T) string {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("boots guests: set UNNEST_PRIVILEGED=1")
	}
	path, err := filepath.Abs("../../bin/unnest")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make build first", err)
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
	t.Cleanup(func() { assertNothingLeft(t) })
	return path
}

// assertNothingLeft checks that no lab, process, namespace or mount of this test is left. All
// of them have the state directory in their name, or a hash of it: others test at the same time.
func assertNothingLeft(t *testing.T) {
	t.Helper()
	root := os.Getenv("UNNEST_STATE")
	if names, err := lab.List(); err != nil || len(names) > 0 {
		t.Errorf("labs left: %v, %v", names, err)
	}
	_, hash, _ := strings.Cut((&lab.Lab{Name: "run", Dir: filepath.Join(lab.Root(), "run")}).ID(), ".")
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || hash == "" {
		t.Errorf("look for mounts: %v", err)
	}
	for mount := range strings.Lines(string(mounts)) {
		if strings.Contains(mount, hash) || strings.Contains(mount, root) {
			t.Errorf("mount left: %s", mount)
		}
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(root)) {
			t.Errorf("process left: %s: %s", path, bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
		}
	}
}

// running is a process under test.
type running struct {
	*exec.Cmd
	out   output
	ended chan error
}

func launch(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{Cmd: exec.Command(args[0], args[1:]...), ended: make(chan error, 1)}
	r.Stdout, r.Stderr = &r.out, &r.out
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- r.Wait() }()
	return r
}

// endLimit bounds the end of a process that was told to end, or has to notice something, on a
// busy machine. On an idle one that takes seconds.
const endLimit = 3 * time.Minute

// interrupt sends SIGINT to a benchmark. It must end with exit code 130.
func (r *running) interrupt(t *testing.T) {
	t.Helper()
	if err := r.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := r.end(t, endLimit); code != 130 {
		t.Errorf("interrupted: exit code %d, want 130:\n%s", code, r.out.String())
	}
}

// kill sends SIGKILL and waits for the end of the process.
func (r *running) kill(t *testing.T) {
	t.Helper()
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.end(t, endLimit)
}

// end waits for the end of the process and returns its exit code.
func (r *running) end(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case err := <-r.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return r.ProcessState.ExitCode()
	case <-time.After(limit):
		_ = r.Process.Signal(unix.SIGINT)
		t.Fatalf("%v did not end within %v", r.Args, limit)
		return -1
	}
}
