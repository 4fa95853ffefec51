package machines

import (
	"os/exec"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
)

// A process that this one has started is the experiment, and a host of the user is not
// observed.
func TestObserve(t *testing.T) {
	parse := func(text string) experiment.Execution {
		s, err := stack.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return experiment.Execution{Configuration: stack.Configuration{Stack: s}}
	}
	spin := exec.Command("sh", "-c", "while :; do :; done")
	if err := spin.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = spin.Process.Kill()
		_ = spin.Wait()
	}()
	end, err := (&Set{}).Observe(parse("metal"))
	if err != nil {
		t.Fatal(err)
	}
	far, err := (&Set{}).Observe(parse("ssh"))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	r, err := end()
	if err != nil || r.Elapsed < 300*time.Millisecond || r.Switches == 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, b := range r.Busiest {
		if b.PID == spin.Process.Pid {
			t.Errorf("a process of the experiment is noise: %+v", r)
		}
	}
	if r, err := far(); err != nil || r.Elapsed != 0 {
		t.Errorf("a host over SSH: got %+v, %v, want no reading", r, err)
	}
}
