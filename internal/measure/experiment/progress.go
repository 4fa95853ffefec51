package experiment

import "time"

// Progress hears how a run goes. Its methods are called one at a time.
type Progress interface {
	// Phase says that a step outside the executions has begun: "boot guest".
	Phase(name string)
	// Report says what happened to the executions.
	Report(Event)
}

// Kind says what an event is about.
type Kind int

// The kinds of events.
const (
	Begun    Kind = iota // the executions begin: Done of Planned are there already
	Started              // an attempt at Execution has started
	Retried              // the attempt has failed with Err, another follows
	Done                 // Execution has its samples; Value is that of its primary metric
	GivenUp              // the last attempt has failed with Err
	Ended                // no execution follows; Err says why when some are missing
	Extended             // a block was added, because Cases are not narrow enough yet
)

// Event is one step of a run.
type Event struct {
	Kind      Kind
	Execution Execution
	Attempt   int // from 1
	Value     float64
	Unit      string
	Err       error
	Done      int           // executions that have their samples or were given up
	Planned   int           // executions of the whole run, as far as they are known
	Failures  int           // executions given up
	Left      time.Duration // estimated time to the end
	Cases     []string      // of the block that was added
}
