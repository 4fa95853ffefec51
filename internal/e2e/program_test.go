package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest/internal/testbed/lab"
)

// program returns the unnest that `make build` has left, with the programs that
// it needs beside it.
func program(t *testing.T) string {
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
	elsewhere := namespacesOfRuns(t)
	t.Cleanup(func() { assertNothingLeft(t, elsewhere) })
	return path
}

// namespacesOfRuns are the mounts of the namespaces of all runs on this machine:
// somebody else's are none of a test's business.
func namespacesOfRuns(t *testing.T) []string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var runs []string
	for mount := range strings.Lines(string(mounts)) {
		if strings.Contains(mount, "/netns/unnest-run-") {
			runs = append(runs, mount)
		}
	}
	return runs
}

// assertNothingLeft checks that no lab, process or namespace of this test is left,
// beside the namespaces that were there before it.
func assertNothingLeft(t *testing.T, elsewhere []string) {
	t.Helper()
	root := os.Getenv("UNNEST_STATE")
	if names, err := lab.List(); err != nil || len(names) > 0 {
		t.Errorf("labs are left: %v, %v", names, err)
	}
	for _, mount := range namespacesOfRuns(t) {
		if !slices.Contains(elsewhere, mount) {
			t.Errorf("a namespace is left: %s", mount)
		}
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(root)) {
			t.Errorf("a process is left: %s: %s", path, bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
		}
	}
}

// running is an unnest under test.
type running struct {
	*exec.Cmd
	out   bytes.Buffer
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

// end waits for the program's end and returns its exit code.
func (r *running) end(t *testing.T, patience time.Duration) int {
	t.Helper()
	select {
	case err := <-r.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return r.ProcessState.ExitCode()
	case <-time.After(patience):
		_ = r.Process.Signal(unix.SIGINT)
		t.Fatalf("%v has not ended after %v", r.Args, patience)
		return -1
	}
}
