package procfs

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/noise"
)

// A process that spins is another process, unless it is the experiment's.
func TestSeesAProcessThatSpins(t *testing.T) {
	spin := exec.Command("sh", "-c", "while :; do :; done")
	if err := spin.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = spin.Process.Kill()
		_ = spin.Wait()
	}()
	before := read(t)
	after, spun := before, time.Duration(0)
	for end := time.Now().Add(time.Minute); spun < 300*time.Millisecond; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the process has spun for %v in a minute", spun)
		}
		after = read(t)
		spun = find(t, after, spin.Process.Pid).Spent - find(t, before, spin.Process.Pid).Spent
	}
	if p := find(t, after, spin.Process.Pid); p.Name != "sh" || p.Parent != os.Getpid() || p.Started == 0 {
		t.Errorf("got %+v", p)
	}
	least := spun.Seconds() / (after.At - before.At).Seconds()
	for _, experiment := range []int{os.Getpid(), spin.Process.Pid} {
		if with, without := others(t, before, after, -1), others(t, before, after, experiment); with < without+least-1e-9 {
			t.Errorf("%.3f processors without the experiment's, %.3f with; want a difference of %.3f", without, with, least)
		}
	}
}

func read(t *testing.T) noise.Snapshot {
	t.Helper()
	s, err := Read()
	if err != nil || s.Switches == 0 || s.Host.User == 0 {
		t.Fatalf("got %+v, %v", s, err)
	}
	return s
}

func find(t *testing.T, s noise.Snapshot, pid int) noise.Process {
	t.Helper()
	i := slices.IndexFunc(s.Processes, func(p noise.Process) bool { return p.PID == pid })
	if i < 0 {
		t.Fatalf("process %d is not seen", pid)
	}
	return s.Processes[i]
}

func others(t *testing.T, before, after noise.Snapshot, root int) float64 {
	t.Helper()
	r, err := after.Since(before, root)
	if err != nil {
		t.Fatal(err)
	}
	return r.Others
}
