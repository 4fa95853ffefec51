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

	"unnest/internal/lab"
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
	t.Cleanup(func() { assertNothingLeft(t) })
	return path
}

// assertNothingLeft checks that no lab, namespace, mount or process of this test
// is left.
func assertNothingLeft(t *testing.T) {
	t.Helper()
	root := os.Getenv("UNNEST_STATE")
	if names, err := lab.List(); err != nil || len(names) > 0 {
		t.Errorf("labs are left: %v, %v", names, err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), "/netns/unnest-run-") {
		t.Errorf("a namespace is left: %v\n%s", err, mounts)
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
