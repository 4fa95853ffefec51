package bench

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// The configurations of the harness study: the same client against the same
// server, started as a person would and as Unnest does.
const (
	byHand  = "by-hand"
	through = "unnest"
)

// wall is the time that an execution takes in all, beside what it measures.
var wall = result.Metric{Name: "wall", Unit: "s", Order: result.LIB}

// HarnessMetrics lists what the harness study measures beside the workloads.
func HarnessMetrics() []result.Metric { return append(Metrics(), wall) }

// Harness compares a client run by hand with one run through a Bench.
type Harness struct{ *Bench }

// UpHarness brings the harness study up: one guest without containers.
func UpHarness(ctx context.Context, spec *experiment.Spec, o Options) (Running, error) {
	b, err := Up(ctx, spec, o)
	if err != nil {
		return nil, err
	}
	return Harness{b}, nil
}

// Next passes on what follows, but never into an execution by hand.
func (h Harness) Next(e experiment.Execution) {
	if e.Configuration.Name == through {
		h.Bench.Next(e)
	}
}

// Execute runs a client by hand or through the bench, and times that.
func (h Harness) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	start := time.Now()
	run := h.Bench.Execute
	if e.Configuration.Name == byHand {
		run = h.byHand
	}
	o, err := run(ctx, e)
	o.Values = append(o.Values, workload.Value{Metric: wall.Name, Value: time.Since(start).Seconds()})
	return o, err
}

// byHand runs the client by `ip netns exec`, and does nothing else.
func (h Harness) byHand(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	h.next = nil
	w, target := lookup(e.Case), h.targets[e.Configuration.Name]
	args := slices.Concat([]string{"netns", "exec", filepath.Base(h.lab.ClientNS())}, w.Client(e.Case.Params, target.endpoint(e.Case)))
	printed, err := exec.CommandContext(ctx, "ip", args...).Output()
	if err != nil {
		return experiment.Outcome{}, fmt.Errorf("run %s by hand: %w", w.Name(), err)
	}
	out, err := w.Parse(e.Case.Params, printed)
	return experiment.Outcome{Values: out.Values, Boot: target.machines.servers().boot}, err
}
