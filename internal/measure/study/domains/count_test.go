package domains

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/machines/cgroup"
)

func TestParseDrops(t *testing.T) {
	const table = "entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart\n" +
		"00000010  00000000 00000000 00000000 00000002 00000000 00000000 00000000 00000000 00000000 0000000a 00000001 00000000  00000000 00000000 00000000 00000000\n" +
		"00000010  00000000 00000000 00000000 00000002 00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000000  00000000 00000000 00000000 00000000\n"
	if n, err := parseDrops([]byte(table)); n != 12 || err != nil {
		t.Errorf("%v, %v", n, err)
	}
	for _, wrong := range []string{"", "entries found\n1 2\n", "drop early_drop\nx 1\n", "drop early_drop\n1\n"} {
		if _, err := parseDrops([]byte(wrong)); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

// Processes of a group in the kernel are weighed, counted and frozen. Frozen ones end when they are killed.
func TestGroupInKernel(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	processors, _, n, err := splitProcessors()
	if err != nil || n < 1 {
		t.Fatal(n, err)
	}
	name := "unnest-group-test"
	g, err := cgroup.New(cgroup.Root, name+"/one", processors)
	t.Cleanup(func() {
		if err := cgroup.Remove(name); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	busy := startBusy(t)
	if err := g.Join(busy); err != nil {
		t.Fatal(err)
	}
	if err := g.Weigh(256); err != nil {
		t.Error(err)
	}
	if err := g.Limit(1); err != nil {
		t.Error(err)
	}
	stop, err := startCounting([]counter{countTimes}, map[string]*cgroup.Group{"one": g})
	if err != nil {
		t.Fatal(err)
	}
	before, err := g.Time()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if used, err := g.Time(); err != nil || used > before+20*time.Millisecond {
			break
		}
	}
	values, err := stop()
	if err != nil || len(values["one"]) == 0 || values["one"][0].Metric != "cpu_utilisation" || !(values["one"][0].Value > 0) {
		t.Errorf("%v, %v", values, err)
	}
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if events, err := os.ReadFile(filepath.Join(g.Counted(), "cgroup.events")); err != nil || time.Now().After(end) {
			t.Fatalf("not frozen: %s, %v", events, err)
		} else if strings.Contains(string(events), "frozen 1") {
			break
		}
	}
}

// startBusy starts a process that uses a processor until the end of the test.
func startBusy(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}
