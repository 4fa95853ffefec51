// Package client runs the clients and load generators of workloads. Some are started in advance, and wait for
// their turn.
package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/output"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// ClaimGuard is how long before its load begins a client must be claimed.
const ClaimGuard = 150 * time.Millisecond

// The states of a client.
const (
	Pending int32 = iota // not started yet
	idling               // started in advance
	Claimed              // its turn has come
	expired              // it was not claimed in time
)

// Client is a client of a workload, started or to be started.
type Client struct {
	execution experiment.Execution
	workload  workload.Workload
	state     atomic.Int32
	Started   time.Time // or when it will be
	Stop      context.CancelFunc
	Done      chan struct{} // closed when it has ended
	Printed   []byte
	Err       error
	generator *generator // nil: another client
}

// New returns a client of e that starts its command in a place after delay, in the state pending or
// claimed. It is killed by its stop, or when ctx ends.
func New(ctx context.Context, e experiment.Execution, in place.Place, command []string, delay time.Duration, state int32) *Client {
	c := &Client{execution: e, workload: e.Case.Workload(), Started: time.Now().Add(delay), Done: make(chan struct{})}
	c.state.Store(state)
	run := func(ctx context.Context) ([]byte, error) { return place.Output(ctx, in, command...) }
	if IsGenerator(c.workload) {
		c.generator = newGenerator()
		run = func(ctx context.Context) ([]byte, error) { return c.generator.run(ctx, in, command) }
	}
	ctx, c.Stop = context.WithCancel(ctx)
	go c.live(ctx, delay, run)
	return c
}

// live runs the command after delay. It kills a client that is not claimed in time.
func (c *Client) live(ctx context.Context, delay time.Duration, run func(context.Context) ([]byte, error)) {
	defer close(c.Done)
	select {
	case <-ctx.Done():
		return
	case <-time.After(delay):
	}
	c.state.CompareAndSwap(Pending, idling)
	expiry := time.AfterFunc(c.workload.Lead()-ClaimGuard, func() {
		if c.state.CompareAndSwap(idling, expired) {
			c.Stop()
		}
	})
	defer expiry.Stop()
	c.Printed, c.Err = run(ctx)
}

// IsGenerator reports whether the client of w is the load generator, which waits to be told to begin.
func IsGenerator(w workload.Workload) bool { return len(w.Programs()) > 0 || workload.IsPeer(w) }

// Belongs reports whether the client was started for e.
func (c *Client) Belongs(e experiment.Execution) bool { return c.execution.Key() == e.Key() }

// Claim gives the client its turn if it still idles, and reports whether it does. A claimed client
// is not killed before its load.
func (c *Client) Claim() bool { return c.state.CompareAndSwap(idling, Claimed) }

// End is when the client is expected to end.
func (c *Client) End() time.Time { return c.Started.Add(c.workload.Wall(c.execution.Case.Params)) }

// Kill ends the client and waits for its end.
func (c *Client) Kill() {
	c.Stop()
	<-c.Done
}

// AwaitPrepared waits until the load generator waits to be told to begin, or has ended.
func (c *Client) AwaitPrepared() {
	select {
	case <-c.generator.prepared:
	case <-c.Done:
	}
}

// Begin tells the client to load the server, if it waits for that.
func (c *Client) Begin() {
	if c.generator != nil && c.generator.err == nil {
		_, _ = io.WriteString(c.generator.told, "\n") // one that has ended says why
	}
}

// Output waits for the client and returns what it measured. It parses the output also of a client that failed, because
// that names the cause best.
func (c *Client) Output(ctx context.Context) (workload.Output, error) {
	<-c.Done
	if ctx.Err() != nil {
		return workload.Output{}, fmt.Errorf("%s: %w", c.workload.Name(), context.Cause(ctx))
	}
	out, err := c.workload.Parse(c.execution.Case.Params, c.Printed)
	if c.Err != nil && (err == nil || len(c.Printed) == 0) {
		err = c.Err
	}
	return out, err
}

// generator is the load generator of an application while it runs. It connects and prepares the
// server, and loads it when it is told to begin, so that no CPU time of its start is counted.
type generator struct {
	in, told *os.File // a pipe: what the generator reads
	err      error    // of making the pipe
	said     output.Watch
	prepared <-chan string // receives when the generator waits to be told
}

func newGenerator() *generator {
	g := &generator{}
	g.prepared = g.said.Await(workload.Prepared)
	g.in, g.told, g.err = os.Pipe()
	return g
}

func (g *generator) run(ctx context.Context, p place.Place, command []string) ([]byte, error) {
	if g.err != nil {
		return nil, g.err
	}
	defer func() { _, _ = g.in.Close(), g.told.Close() }()
	var out bytes.Buffer
	process, err := p.Start(ctx, place.Command{Args: command, Stdin: g.in, Stdout: &out, Stderr: &g.said})
	if err != nil {
		return nil, err
	}
	err = process.Wait()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s on %s: %w", command[0], p, context.Cause(ctx))
	}
	return out.Bytes(), err
}
