package experiment

import (
	"context"
	"errors"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/workload"
)

// ErrFatal is wrapped by a Bench's error after which no execution can succeed, such as
// a dead guest. Unless the bench is a Restarter, the run stops at once and can be
// resumed.
var ErrFatal = errors.New("the machine is gone")

// ErrUnsupported is wrapped by a Bench's error if the case can never run in the
// configuration: its tool is missing, or its machine is too small. Neither this
// execution nor those of later blocks are retried, and the run continues.
var ErrUnsupported = errors.New("the case cannot run in this configuration")

// ErrDied is wrapped by a Bench's error if a server or a container ended right after its
// start. The error names it, where it ran, its last output and its exit status. The execution is
// retried. If all attempts, two at least, end like this and none has worked before, the run stops and
// can be resumed.
var ErrDied = errors.New("it ended at once")

// Bench has the configurations running and executes one case in one of them at a
// time. It must refuse options of a configuration that it does not implement.
type Bench interface {
	// Execute runs the case once and returns its values. When ctx ends, it stops what it
	// started and returns soon. Errors are retried, except those that wrap ErrFatal or
	// ErrUnsupported.
	Execute(ctx context.Context, e Execution) (Outcome, error)
}

// Lookahead is implemented by a Bench that can prepare the next executions.
type Lookahead interface {
	// Next announces the executions that follow the current one in the same block, two at most.
	// It is a hint: another execution may follow, or none.
	Next(following []Execution)
}

// Renewer is implemented by a Bench with processes, such as servers, that outlive an
// execution. Two processes of the same binary differ for as long as they live, and no
// interval shows that difference, so they are replaced for each block.
type Renewer interface {
	// Renew replaces them. It is called before the first execution of each block, of the
	// warm-up, and of the rest of a block when a run is resumed. If it fails, so does the
	// execution, and Renew is called again before the next one.
	Renew(ctx context.Context, first Execution) error
}

// Restarter is implemented by a Bench that can restart its machines.
type Restarter interface {
	// Restart is called after an error that wraps ErrFatal. The execution counts as
	// failed and is retried, so a case that kills its machine each time does not end the
	// run. An error of Restart does.
	Restart(ctx context.Context) error
}

// Observer is implemented by a Bench that sees what else its machine does.
type Observer interface {
	// Observe begins to observe the machine during the execution. The function that it returns
	// says what the machine has done besides the experiment since then. It returns the zero
	// reading if the bench does not see the machine of the execution.
	Observe(Execution) (func() (noise.Reading, error), error)
}

// Outcome is the result of one execution.
type Outcome struct {
	Values []workload.Value  // metrics of the case, including its primary one
	Boot   string            // kernel boot ID of the measured guest
	Tags   map[string]string // further properties to group samples by
	Parts  []Part            // what was measured of each domain
	// Intervals are the values of a metric in the intervals of the execution.
	Intervals map[string][]float64
}

// Part are values of a part of what was measured, such as one of several domains. Its tags
// distinguish them from values of the same metrics of other parts.
type Part struct {
	Tags   map[string]string
	Values []workload.Value
}
