package experiment

import (
	"time"

	"unnest.io/unnest/internal/measure/noise"
)

// Progress receives the events of a run. Its methods are called one at a time.
type Progress interface {
	// Phase starts a step other than an execution, such as "boot guest".
	Phase(name string)
	// Report reports an event of the executions.
	Report(Event)
}

// Kind is the kind of an event.
type Kind int

// The kinds of events.
const (
	Begun     Kind = iota // the executions begin; Done of Planned have samples already
	Started               // an attempt at Execution has started
	Retried               // the attempt has failed with Err, another one follows
	Done                  // Execution has its samples; Value is that of its primary metric
	GivenUp               // the last attempt has failed with Err
	Ended                 // no execution follows; Err is the error of the run
	Disturbed             // Execution is repeated because of what else the machine did: Reading
	Extended              // a block was added, because the ratios of Precisions are not precise enough
	TooNoisy              // no block is added, although some ratio is not precise enough: the machine is too noisy
)

// Event is one step of a run.
type Event struct {
	Kind      Kind
	Execution Execution
	Attempt   int // from 1
	Value     float64
	Unit      string
	Err       error
	Done      int           // executions that have samples or were given up
	Planned   int           // executions of the whole run, as far as they are known
	Failures  int           // executions given up
	Left      time.Duration // estimated time to the end

	Reading    noise.Reading
	Precisions []Precision // the reasons for the added block, one for each case
	Until      float64     // the precision that the run continues to, a fraction
}
