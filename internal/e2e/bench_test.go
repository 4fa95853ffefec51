package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/testbed/lab"
)

// executions returns the number of executions of the run in dir that have samples.
func executions(dir string) int {
	_, journal, err := rundir.Read(dir)
	if err != nil {
		return 0
	}
	seen := map[result.Execution]bool{}
	for _, s := range journal.Samples {
		seen[s.Execution()] = true
	}
	return len(seen)
}

// awaitExecutions waits until the run in dir has n executions.
func (r *running) awaitExecutions(t *testing.T, dir string, n int) {
	t.Helper()
	late := time.After(bringUp)
	for executions(dir) < n {
		select {
		case err := <-r.ended:
			if r.ended <- err; executions(dir) >= n {
				return
			}
			t.Fatalf("ended before execution %d: %v:\n%s", n, err, r.out.String())
		case <-late:
			_ = r.Process.Signal(unix.SIGINT)
			t.Fatalf("fewer than %d executions after %v; interrupted: %v:\n%s", n, bringUp, <-r.ended, r.out.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// bringUp bounds the time until the first executions on a busy machine.
const bringUp = 10 * time.Minute

// planned is the number of executions of the selftest.
const planned = 12

// A complete run with its reports, interrupted once by Ctrl-C and once by SIGKILL.
func TestInterruptKillResume(t *testing.T) {
	unnest, dir := unnestBinary(t), filepath.Join(t.TempDir(), "run")

	r := launch(t, unnest, "bench", "--noisy", "selftest", "-o", dir)
	r.awaitExecutions(t, dir, 2)
	r.interrupt(t)
	if !strings.Contains(r.out.String(), "--resume "+dir) {
		t.Errorf("the interrupted run does not say how to resume:\n%s", r.out.String())
	}
	assertNothingLeft(t)
	assertState(t, dir, result.Interrupted)

	r = launch(t, unnest, "bench", "--noisy", "--resume", dir)
	r.awaitExecutions(t, dir, 5)
	r.kill(t)
	before := executions(dir)

	r = launch(t, unnest, "bench", "--noisy", "--resume", dir)
	if code := r.end(t, bringUp); code != 0 {
		t.Fatalf("resumed: exit code %d:\n%s", code, r.out.String())
	}
	out := r.out.String()
	if !strings.Contains(out, "removed the remains of run-") {
		t.Errorf("the resumed run does not say that it removed the killed one:\n%s", out)
	}
	assertState(t, dir, result.Complete)
	if n := executions(dir); n != planned || before < 5 {
		t.Errorf("%d executions, %d before the last resume; want %d, at least 5", n, before, planned)
	}
	assertReport(t, unnest, dir, out)
}

// A run whose output nobody reads any more removes its guest, daemon and namespaces.
func TestReaderEnds(t *testing.T) {
	unnest, dir := unnestBinary(t), filepath.Join(t.TempDir(), "run")
	out, err := exec.Command("bash", "-c", `"$0" bench --noisy selftest -o "$1" 2>&1 | grep -m 1 "boot the guest"; echo ${PIPESTATUS[0]}`, unnest, dir).CombinedOutput()
	if lines := strings.Fields(string(out)); err != nil || len(lines) == 0 || lines[len(lines)-1] != "141" {
		t.Errorf("got %v, %s; want exit code 141", err, out)
	}
	assertNothingLeft(t)
}

func assertState(t *testing.T, dir string, want result.State) {
	t.Helper()
	run, _, err := rundir.Load(dir)
	if err != nil || run.State != want {
		t.Errorf("run state: got %q, %v; want %q", run.State, err, want)
	}
}

// assertReport checks that the report names all configurations and cases.
func assertReport(t *testing.T, unnest, dir, terminal string) {
	t.Helper()
	html, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Error(err)
	}
	text, err := exec.Command(unnest, "report", dir).Output()
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"NoCont", "NAT", "BrFusion", "UDP ping-pong", "TCP stream", "1280 B"} {
		for name, content := range map[string]string{"page": string(html), "text": string(text), "terminal": terminal} {
			if !strings.Contains(content, want) {
				t.Errorf("the %s does not contain %q", name, want)
			}
		}
	}
	run, samples, err := rundir.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if run.Accelerator == "" || run.Image == "" || len(run.Guests) != 1 || run.Tools["sockperf"] == "" || run.Tools["containerd"] == "" {
		t.Errorf("provenance is incomplete: %+v", run)
	}
	boots := map[string]map[string]bool{}
	for _, s := range samples {
		if boots[s.Configuration] == nil {
			boots[s.Configuration] = map[string]bool{}
		}
		boots[s.Configuration][s.Boot] = true
	}
	for _, c := range run.Configurations {
		if len(boots[c.Name]) == 0 || boots[c.Name][""] {
			t.Errorf("%s was measured in the boots %v, want one boot ID or more", c.Name, boots[c.Name])
		}
	}
}

// The death of a guest ends the run with a message, and the samples stay.
func TestGuestDies(t *testing.T) {
	unnest, dir := unnestBinary(t), filepath.Join(t.TempDir(), "run")
	r := launch(t, unnest, "bench", "--noisy", "selftest", "-o", dir)
	r.awaitExecutions(t, dir, 1)
	killGuest(t)
	if code := r.end(t, endLimit); code != 1 || !strings.Contains(r.out.String(), "guest died: node1") {
		t.Errorf("exit code %d, want 1 and the reason:\n%s", code, r.out.String())
	}
	assertState(t, dir, result.Failed)
	if n := executions(dir); n < 1 {
		t.Error("the run has no samples any more")
	}
}

// killGuest kills the only QEMU of this test.
func killGuest(t *testing.T) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(os.Getenv("UNNEST_STATE"), "*/guests/*/node.json"))
	if err != nil || len(records) != 1 {
		t.Fatalf("records of guests: %v, %v; want one", records, err)
	}
	name := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(records[0]))))
	l, err := lab.View(name)
	if err != nil {
		t.Fatal(err)
	}
	pid := guestPID(t, records[0])
	line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	if err != nil || !bytes.Contains(line, []byte(l.Dir)) {
		t.Fatalf("process %s is not the guest: %q, %v", pid, line, err)
	}
	if out, err := exec.Command("kill", "-KILL", pid).CombinedOutput(); err != nil {
		t.Fatalf("kill: %v: %s", err, out)
	}
}

func guestPID(t *testing.T, record string) string {
	t.Helper()
	content, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var n struct{ PID json.Number }
	if err := json.Unmarshal(content, &n); err != nil {
		t.Fatal(err)
	}
	return n.PID.String()
}
