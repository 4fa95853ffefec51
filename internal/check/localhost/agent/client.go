package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"
)

// ErrLost says that the agent has ended or is not reachable any more.
var ErrLost = errors.New("the agent has ended")

// Client sends requests to an agent. It is safe for concurrent use.
type Client struct {
	patience time.Duration

	writing sync.Mutex
	out     *json.Encoder

	mu      sync.Mutex
	waiting map[int]chan reply
	last    int // ID

	ended chan struct{} // closed when no reply can arrive any more
	why   error         // set before ended is closed
}

// NewClient returns a client of the agent that reads out and writes in. Patience is the
// time limit of immediate events.
func NewClient(in io.Reader, out io.Writer, patience time.Duration) *Client {
	c := &Client{patience: patience, out: json.NewEncoder(out), waiting: map[int]chan reply{}, ended: make(chan struct{})}
	go c.read(in)
	return c
}

func (c *Client) read(in io.Reader) {
	for lines := json.NewDecoder(in); ; {
		var r reply
		if err := lines.Decode(&r); err != nil {
			c.why = ErrLost
			if !errors.Is(err, io.EOF) {
				c.why = fmt.Errorf("%w: read a reply: %w", ErrLost, err)
			}
			close(c.ended)
			return
		}
		c.mu.Lock()
		answered := c.waiting[r.ID]
		delete(c.waiting, r.ID)
		c.mu.Unlock()
		if answered != nil {
			answered <- r
		}
	}
}

// Do sends a request and waits for the answer. Errors of the agent are an *Error.
func Do[A any](ctx context.Context, c *Client, r Request[A]) (A, error) {
	var answer A
	with, err := json.Marshal(r)
	if err != nil {
		return answer, err
	}
	name := names[reflect.TypeOf(r)]
	got, err := c.do(ctx, envelope{Do: name, Patience: c.patience, With: with})
	switch {
	case err != nil:
	case got.Error != nil:
		err = got.Error
	default:
		err = json.Unmarshal(got.Answer, &answer)
	}
	if err != nil {
		return answer, fmt.Errorf("%s: %w", name, err)
	}
	return answer, nil
}

func (c *Client) do(ctx context.Context, r envelope) (reply, error) {
	answered := make(chan reply, 1)
	c.mu.Lock()
	c.last++
	r.ID = c.last
	c.waiting[r.ID] = answered
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, r.ID)
		c.mu.Unlock()
	}()
	c.writing.Lock()
	err := c.out.Encode(r)
	c.writing.Unlock()
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	select {
	case r := <-answered:
		return r, nil
	case <-c.ended:
		return reply{}, c.why
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}
