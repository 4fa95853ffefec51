package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
)

// harnessSuite is the suite of an experiment that compares ways to run a client.
const harnessSuite = "harness"

// The configurations of the harness study: the same client and server, started by hand
// and by Unnest.
const (
	byHand  = "by-hand"
	through = "unnest"
)

// wall is the time of a whole execution, with everything around the measurement.
var wall = result.Metric{Name: "wall", Unit: "s", Order: result.LIB}

// harness compares a client run by hand with one run by services.
type harness struct{ *services }

func (h *harness) check(c stack.Configuration) error {
	if c.Name != byHand && c.Name != through {
		return errors.New("the suite harness compares the configurations " + byHand + " and " + through + ": use these names")
	}
	return h.services.check(c)
}

// isByHand reports whether the client of e runs by hand. No other client may start meanwhile: it would
// disturb what is measured.
func isByHand(e experiment.Execution) bool { return e.Configuration.Name == byHand }

// Next passes on the executions that follow, up to the first by hand.
func (h *harness) Next(following []experiment.Execution) {
	if i := slices.IndexFunc(following, isByHand); i >= 0 {
		following = following[:i]
	}
	h.services.Next(following)
}

// Renew restarts the servers. It starts no client for an execution by hand.
func (h *harness) Renew(ctx context.Context, first experiment.Execution) error {
	if isByHand(first) {
		return h.restartServers(ctx)
	}
	return h.services.Renew(ctx, first)
}

// Execute runs a client by hand or by services, and times that.
func (h *harness) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	start := time.Now()
	run := h.services.Execute
	if e.Configuration.Name == byHand {
		run = h.byHand
	}
	o, err := run(ctx, e)
	o.Values = append(o.Values, workload.Value{Metric: wall.Name, Value: time.Since(start).Seconds()})
	return o, err
}

// byHand runs the client by `ip netns exec` and does nothing else.
func (h *harness) byHand(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	h.next = nil
	w, one := lookup(e.Case), h.instances[e.Configuration.Name]
	args := slices.Concat([]string{"netns", "exec", filepath.Base(h.lab.ClientNS())}, w.Client(e.Case.Params, one.endpoint(e.Case)))
	printed, err := exec.CommandContext(ctx, "ip", args...).Output()
	if err != nil {
		return experiment.Outcome{}, fmt.Errorf("run %s by hand: %w", w.Name(), err)
	}
	out, err := w.Parse(e.Case.Params, printed)
	return experiment.Outcome{Values: out.Values, Boot: one.machines.servers().boot}, err
}
