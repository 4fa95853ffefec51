package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/rundir"
)

// With fresh: true each block has a guest of its own, also the first one after a resumption, and each is gone at the end.
func TestFreshMachines(t *testing.T) {
	unnest := unnestBinary(t)
	file, dir := filepath.Join(t.TempDir(), "fresh.yaml"), filepath.Join(t.TempDir(), "run")
	const experiment = `name: fresh
suite: network
baselines: [A]
configurations: [{name: A, stack: vm}]
cases: [{name: udp_rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}]
repetitions: 3
fresh: true
`
	if err := os.WriteFile(file, []byte(experiment), 0o600); err != nil {
		t.Fatal(err)
	}
	guests := map[string]bool{}
	watch := func(r *running, until func() bool) {
		for end := time.Now().Add(bringUp); !until(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				_ = r.Process.Signal(unix.SIGINT)
				t.Fatalf("no end; interrupted: %v:\n%s", <-r.ended, r.out.String())
			}
			for _, pid := range vmms(r) {
				guests[pid] = true
			}
		}
	}
	r := launch(t, unnest, "bench", "--noisy", file, "-o", dir)
	watch(r, func() bool { return len(guests) == 2 && strings.Contains(r.out.String(), "executions to do") })
	r.interrupt(t)
	first := len(guests)
	r = launch(t, unnest, "bench", "--noisy", "--resume", dir)
	watch(r, func() bool { return len(r.ended) > 0 })
	if err := <-r.ended; err != nil {
		t.Fatalf("%v:\n%s", err, r.out.String())
	}
	t.Logf("%d guests before the interruption, %d in all", first, len(guests))
	run, samples, err := rundir.Load(dir)
	if err != nil || !run.Fresh || len(samples) == 0 || first != 2 || len(guests) < 4 {
		t.Errorf("run %+v, %d samples, %v, %d guests", run, len(samples), err, len(guests))
	}
	for pid := range guests {
		if comm, err := os.ReadFile("/proc/" + pid + "/comm"); err == nil && strings.HasPrefix(string(comm), "qemu-system") {
			t.Errorf("QEMU %s is left", pid)
		}
	}
}

// vmms returns the processes of QEMU that a run has started.
func vmms(r *running) (found []string) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.Process.Pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for _, pid := range strings.Fields(string(children)) {
			// QEMU is also asked what it can do.
			if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && strings.HasPrefix(string(line), "qemu-system") && strings.Contains(string(line), "guest=") {
				found = append(found, pid)
			}
		}
	}
	return found
}
