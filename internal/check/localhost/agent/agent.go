// Package agent is the part of the localhost suite that runs in a fraction: it
// opens sockets and runs programs as it is ordered to, and tells what came of it.
// Orders and answers are JSON, one a line, over any pair of streams; orders may
// overlap. The package has both ends: Obey and Client.
//
// What a pod's localhost has to do does not belong here.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// request is an order on its way, reply the answer to the order of the same ID.
type request struct {
	ID int    `json:"id"`
	Do string `json:"do"`
	// Patience is what "at once" means: see job.limit.
	Patience time.Duration   `json:"patience_ns"`
	With     json.RawMessage `json:"with"`
}

type reply struct {
	ID     int             `json:"id"`
	Answer json.RawMessage `json:"answer,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// Error says why an order could not be carried out.
type Error struct {
	Code string `json:"code"` // as in Attempt.Code
	Text string `json:"text"`
}

func (e *Error) Error() string { return e.Text }

// thing is what lives longer than the order that made it.
type thing interface {
	// stop ends it and waits for its end.
	stop() error
}

// agent carries out orders.
type agent struct {
	writing sync.Mutex
	out     *json.Encoder

	mu     sync.Mutex
	things map[int]thing // by handle
	last   int           // handle
}

// job is one order under way.
type job struct {
	*agent
	ctx      context.Context
	patience time.Duration
}

// limit is how long a job waits for what has to happen before it gives up.
func (j *job) limit() time.Duration { return 10 * j.patience }

// deadline is limit from now.
func (j *job) deadline() time.Time { return time.Now().Add(j.limit()) }

// Obey carries out the orders in in until it ends or ctx does, and then ends all that
// they have made. An error says that in or out is broken.
func Obey(ctx context.Context, in io.Reader, out io.Writer) error {
	a := &agent{out: json.NewEncoder(out), things: map[int]thing{}}
	ctx, cancel := context.WithCancel(ctx)
	requests, failed := make(chan request), make(chan error, 1)
	go func() { failed <- read(ctx, in, requests) }()
	var orders sync.WaitGroup
	defer func() {
		cancel()
		a.stopAll() // what orders wait for ends with it
		orders.Wait()
		a.stopAll()
	}()
	for {
		select {
		case r := <-requests:
			orders.Go(func() {
				if err := a.obey(ctx, r); err != nil {
					select {
					case failed <- err:
					default: // one is enough
					}
				}
			})
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// read passes requests on. The end of in is no error.
func read(ctx context.Context, in io.Reader, requests chan<- request) error {
	for lines := json.NewDecoder(in); ; {
		var r request
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return nil
		}
	}
}

// obey carries out an order and answers. It fails when nobody takes the answer.
func (a *agent) obey(ctx context.Context, r request) error {
	answer, err := a.carryOut(&job{agent: a, ctx: ctx, patience: r.Patience}, r)
	sent := reply{ID: r.ID}
	if err == nil {
		sent.Answer, err = json.Marshal(answer)
	}
	if err != nil {
		sent.Error = &Error{Code: codeOf(err), Text: err.Error()}
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if err := a.out.Encode(sent); err != nil {
		return fmt.Errorf("answer an order: %w", err)
	}
	return nil
}

func (a *agent) carryOut(j *job, r request) (any, error) {
	do, ok := verbs[r.Do]
	if !ok {
		return nil, fmt.Errorf("the agent knows no order %q: is it of another version?", r.Do)
	}
	return do(j, r.With)
}

// keep gives a thing a handle.
func (a *agent) keep(t thing) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	a.things[a.last] = t
	return a.last
}

// find returns the thing of a handle, which has to be a T.
func find[T thing](a *agent, handle int) (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, ok := a.things[handle].(T)
	if !ok {
		return t, fmt.Errorf("handle %d is no %T but %T", handle, t, a.things[handle])
	}
	return t, nil
}

func (j *job) stop(o Stop) (Nothing, error) {
	j.mu.Lock()
	t, ok := j.things[o.Handle]
	delete(j.things, o.Handle)
	j.mu.Unlock()
	if !ok {
		return Nothing{}, fmt.Errorf("stop: there is no handle %d", o.Handle)
	}
	return Nothing{}, t.stop()
}

func (a *agent) stopAll() {
	a.mu.Lock()
	things := a.things
	a.things = map[int]thing{}
	a.mu.Unlock()
	for _, t := range things {
		_ = t.stop() // nobody to tell any more
	}
}
