// Package harness is the study that compares a client run by hand with one that Unnest runs.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/clientserver"
	"unnest.io/unnest/internal/measure/workload"
)

// Suite is the suite of an experiment that compares ways to run a client.
const Suite = "harness"

// The configurations of the harness study: the same client and server, started by hand
// and by Unnest.
const (
	byHand  = "by-hand"
	through = "unnest"
)

// Wall is the time of a whole execution, with everything around the measurement.
var Wall = result.Metric{Name: "wall", Unit: "s", Order: result.LIB}

// Study compares a client run by hand with one that Unnest runs.
type Study struct{ *clientserver.Study }

// New returns the study on machines.
func New(s *machines.Set) *Study { return &Study{clientserver.New(s)} }

// Check returns an error unless the study can measure the configuration.
func (h *Study) Check(c stack.Configuration) error {
	if c.Name != byHand && c.Name != through {
		return errors.New("the suite harness compares the configurations " + byHand + " and " + through + ": use these names")
	}
	return h.Study.Check(c)
}

// isByHand reports whether the client of e runs by hand. No other client may start meanwhile: it would
// disturb what is measured.
func isByHand(e experiment.Execution) bool { return e.Configuration.Name == byHand }

// Next passes on the executions that follow, up to the first by hand.
func (h *Study) Next(following []experiment.Execution) { h.Study.Next(undisturbing(following)) }

// undisturbing returns the executions up to the first by hand.
func undisturbing(following []experiment.Execution) []experiment.Execution {
	if i := slices.IndexFunc(following, isByHand); i >= 0 {
		return following[:i]
	}
	return following
}

// Renew restarts the servers. It starts no client for an execution by hand.
func (h *Study) Renew(ctx context.Context, first experiment.Execution) error {
	if isByHand(first) {
		return h.RestartServers(ctx)
	}
	return h.Study.Renew(ctx, first)
}

// Execute runs a client by hand or by Unnest, and times that.
func (h *Study) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	start := time.Now()
	run := h.Study.Execute
	if e.Configuration.Name == byHand {
		run = h.byHand
	}
	o, err := run(ctx, e)
	o.Values = append(o.Values, workload.Value{Metric: Wall.Name, Value: time.Since(start).Seconds()})
	return o, err
}

// byHand runs the client by `ip netns exec` and does nothing else.
func (h *Study) byHand(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	h.Study.Next(nil)
	w, one := e.Case.Workload(), h.Instances[e.Configuration.Name]
	args := slices.Concat([]string{"netns", "exec", filepath.Base(h.Lab.ClientNS())}, w.Client(e.Case.Params, one.Endpoint(e.Case)))
	printed, err := exec.CommandContext(ctx, "ip", args...).Output()
	if err != nil {
		return experiment.Outcome{}, fmt.Errorf("run %s by hand: %w", w.Name(), err)
	}
	out, err := w.Parse(e.Case.Params, printed)
	return experiment.Outcome{Values: out.Values, Boot: one.Machines.Servers().Boot}, err
}
