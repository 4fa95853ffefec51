// Package agent is the part of unnest-localhost that runs in a fraction. It opens sockets
// and runs tools on request, and answers with what happened. Requests and replies are JSON,
// one per line, over any pair of streams. Requests may overlap. The package has both ends:
// Execute and Client.
//
// What a pod's localhost must do does not belong here.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// envelope is a request on the wire. Its reply has the same ID.
type envelope struct {
	ID int    `json:"id"`
	Do string `json:"do"`
	// Patience is the time limit of immediate events, see job.limit.
	Patience time.Duration   `json:"patience_ns"`
	With     json.RawMessage `json:"with"`
}

type reply struct {
	ID     int             `json:"id"`
	Answer json.RawMessage `json:"answer,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// Error says why a request failed.
type Error struct {
	Code string `json:"code"` // as in Attempt.Code
	Text string `json:"text"`
}

func (e *Error) Error() string { return e.Text }

// resource exists until it is stopped, longer than the request that created it.
type resource interface {
	// stop ends it and waits for its end.
	stop() error
}

// agent executes requests.
type agent struct {
	writing sync.Mutex
	out     *json.Encoder

	mu        sync.Mutex
	resources map[int]resource // by handle
	last      int              // handle
}

// files is how many descriptors an agent may have.
const files = 1 << 16

// job is one request that is being executed.
type job struct {
	*agent
	ctx      context.Context
	patience time.Duration
}

// limit bounds the wait for events that need not be immediate.
func (j *job) limit() time.Duration { return 10 * j.patience }

func (j *job) deadline() time.Time { return time.Now().Add(j.limit()) }

// Execute executes the requests in in until in or ctx ends, and then stops all resources.
// An error says that in or out is broken.
func Execute(ctx context.Context, in io.Reader, out io.Writer) error {
	// As root; else the limit stays as it is. A server may have thousands of connections.
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files})
	a := &agent{out: json.NewEncoder(out), resources: map[int]resource{}}
	ctx, cancel := context.WithCancel(ctx)
	requests, failed := make(chan envelope), make(chan error, 1)
	go func() { failed <- read(ctx, in, requests) }()
	var running sync.WaitGroup
	defer func() {
		cancel()
		a.stopAll() // ends the waits of running requests
		running.Wait()
		a.stopAll()
	}()
	for {
		select {
		case r := <-requests:
			running.Go(func() {
				if err := a.answer(ctx, r); err != nil {
					select {
					case failed <- err:
					default: // one error is enough
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

// read sends the requests of in to the channel. It returns nil at the end of in.
func read(ctx context.Context, in io.Reader, requests chan<- envelope) error {
	for lines := json.NewDecoder(in); ; {
		var r envelope
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return nil
		}
	}
}

// answer executes a request and sends the reply. An error says that it cannot be sent.
func (a *agent) answer(ctx context.Context, r envelope) error {
	sent := reply{ID: r.ID}
	handle, ok := handlers[r.Do]
	err := fmt.Errorf("unknown request %q: the agent is of another version", r.Do)
	if ok {
		var answer any
		if answer, err = handle(&job{agent: a, ctx: ctx, patience: r.Patience}, r.With); err == nil {
			sent.Answer, err = json.Marshal(answer)
		}
	}
	if err != nil {
		sent.Error = &Error{Code: codeOf(err), Text: err.Error()}
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if err := a.out.Encode(sent); err != nil {
		return fmt.Errorf("send a reply: %w", err)
	}
	return nil
}

// keep stores a resource and returns its handle.
func (a *agent) keep(r resource) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	a.resources[a.last] = r
	return a.last
}

// find returns the resource of a handle, which must be a T.
func find[T resource](a *agent, handle int) (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.resources[handle].(T)
	if !ok {
		return r, fmt.Errorf("handle %d is %T, want %T", handle, a.resources[handle], r)
	}
	return r, nil
}

func (j *job) stop(r Stop) (Nothing, error) {
	j.mu.Lock()
	found, ok := j.resources[r.Handle]
	delete(j.resources, r.Handle)
	j.mu.Unlock()
	if !ok {
		return Nothing{}, fmt.Errorf("stop: there is no handle %d", r.Handle)
	}
	return Nothing{}, found.stop()
}

func (a *agent) stopAll() {
	a.mu.Lock()
	resources := a.resources
	a.resources = map[int]resource{}
	a.mu.Unlock()
	for _, r := range resources {
		_ = r.stop() // the client is gone
	}
}

// The codes that are not an errno.
const (
	Timeout  = "timeout"
	End      = "end"
	Mismatch = "mismatch"
	Surplus  = "surplus"
	other    = "error"
)

// mismatch is the error of an answer that differs from what was sent.
type mismatch struct{ text string }

func (m mismatch) Error() string { return m.text }

// codeOf returns the Attempt.Code of an error.
func codeOf(err error) string {
	var number syscall.Errno
	var timeout net.Error
	var wrong mismatch
	switch {
	case err == nil:
		return ""
	case errors.As(err, &wrong):
		return Mismatch
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return End
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return Timeout
	case errors.As(err, &number):
		if name := unix.ErrnoName(number); name != "" {
			return name
		}
		return fmt.Sprintf("errno %d", int(number))
	}
	return other
}
