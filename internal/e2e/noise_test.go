package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/rundir"
)

// On a busy machine a run waits before it begins, and a run that does not wait says first that
// it is too noisy, and why.
func TestNoisyMachine(t *testing.T) {
	unnest := unnestBinary(t)
	file, dir := filepath.Join(t.TempDir(), "noisy.yaml"), filepath.Join(t.TempDir(), "run")
	const experiment = `name: noisy
suite: network
baselines: [A]
configurations: [{name: A, stack: metal}, {name: B, stack: metal}]
cases: [{name: tcp_stream, workload: iperf3, protocol: tcp, sizes: [16384], duration: 1s}]
repetitions: 1
warmup: 0
`
	if err := os.WriteFile(file, []byte(experiment), 0o600); err != nil {
		t.Fatal(err)
	}
	startHog(t)

	r := launch(t, unnest, "bench", file, "-o", dir)
	for end := time.Now().Add(bringUp); !strings.Contains(r.out.String(), "waiting up to 30s"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			_ = r.Process.Signal(unix.SIGINT)
			t.Fatalf("the run does not wait; interrupted: %v:\n%s", <-r.ended, r.out.String())
		}
	}
	if !regexp.MustCompile(`most of it \S+ \(process \d+\)`).MatchString(r.out.String()) { // next to the hog others test
		t.Errorf("the run does not say why it waits:\n%s", r.out.String())
	}
	r.interrupt(t)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run that did not begin has left its directory: %v", err)
	}

	r = launch(t, unnest, "bench", "--noisy", file, "-o", dir)
	if code := r.end(t, bringUp); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	head, body, _ := strings.Cut(mustRun(t, unnest, "report", dir), "\n\n")
	const want = `^! Too noisy to conclude: in 2 of 2 executions, other processes \(most of all [^)]+\) used `
	if got := strings.Join(strings.Fields(body), " "); !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("the report begins with:\n%s\n\n%s\nwant: %s…", head, body, want)
	}
	run, samples, err := rundir.Load(dir)
	if err != nil || run.Disturbed != 0 || len(samples) == 0 {
		t.Fatalf("run %+v, %d samples, %v; want no repeated execution", run, len(samples), err)
	}
	for _, tag := range []string{"others", "steal", "switches", "busiest"} {
		if samples[0].Tags[tag] == "" {
			t.Errorf("tags %v: want %s", samples[0].Tags, tag)
		}
	}
}

// startHog starts a process that uses a processor, or what other tests leave of it, which is as
// noisy. It ends with the test, or after ten minutes of a processor.
func startHog(t *testing.T) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "ulimit -t 600; while :; do :; done")
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // the kernel's autogroups divide processors between sessions
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}
