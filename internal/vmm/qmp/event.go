package qmp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// MaxQueued is how many events a subscription keeps. When it is full it drops the
// oldest, and Next returns a *LostError.
const MaxQueued = 1024

// Names of the events that hot-plug needs.
const (
	EventDeviceDeleted    = "DEVICE_DELETED"
	EventUnplugGuestError = "DEVICE_UNPLUG_GUEST_ERROR"
	EventReset            = "RESET"
)

// Event is a message that QEMU sends without a request.
type Event struct {
	Name string
	Data json.RawMessage // nil when the event has none
	Time time.Time       // when QEMU sent it
}

// Device returns the ID of the device that the event is about, or "". QEMU sends
// DEVICE_DELETED also for inner parts without an ID (virtio-backend).
func (e Event) Device() string {
	var d struct{ Device string }
	if json.Unmarshal(e.Data, &d) != nil {
		return ""
	}
	return d.Device
}

// LostError says that a subscription dropped events, because it was read too
// slowly.
type LostError struct {
	Count int // events dropped
}

// Error gives the number of dropped events and the fix.
func (e *LostError) Error() string {
	return fmt.Sprintf("%d QEMU events lost: read the subscription faster, and query QEMU's present state", e.Count)
}

// Subscription is a queue of events since the call of Subscribe. It is safe for
// concurrent use.
type Subscription struct {
	client *Client
	names  []string // empty: all
	queue  chan Event
	lost   atomic.Int64  // dropped and not reported
	ended  chan struct{} // closed by Close
	once   sync.Once
}

// Subscribe queues the events of the given names (none: all) until the
// subscription is closed. To wait for the effect of a command, subscribe, then send
// the command, then call Next: then no event is missed.
func (c *Client) Subscribe(names ...string) *Subscription {
	s := &Subscription{
		client: c, names: slices.Clone(names),
		queue: make(chan Event, MaxQueued), ended: make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[s] = struct{}{}
	return s
}

// Close ends the subscription; a waiting Next returns an error wrapping
// ErrClosed. It may be called again.
func (s *Subscription) Close() {
	s.client.unsubscribe(s)
	s.once.Do(func() { close(s.ended) })
}

func (c *Client) unsubscribe(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subs, s)
}

// Next waits for an event and returns the oldest. When events were dropped it first
// returns one *LostError. When the connection has ended, it returns the queued
// events and then an error wrapping ErrClosed.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	if n := s.lost.Swap(0); n > 0 {
		return Event{}, &LostError{Count: int(n)}
	}
	select {
	case e := <-s.queue:
		return e, nil
	case <-s.ended:
		return Event{}, fmt.Errorf("wait for QEMU event: %w: subscription closed", ErrClosed)
	case <-ctx.Done():
		return Event{}, fmt.Errorf("wait for QEMU event: %w", context.Cause(ctx))
	case <-s.client.Done():
	}
	select {
	case e := <-s.queue: // it came before the connection ended
		return e, nil
	default:
		return Event{}, fmt.Errorf("wait for QEMU event: %w", s.client.Err())
	}
}

// publish queues e in every subscription that wants it. Only the reader of the
// connection calls it, so a queue has room once its oldest event is removed.
func (c *Client) publish(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subs {
		if len(s.names) > 0 && !slices.Contains(s.names, e.Name) {
			continue
		}
		if len(s.queue) == cap(s.queue) {
			select {
			case <-s.queue:
				s.lost.Add(1)
			default: // a reader was faster
			}
		}
		s.queue <- e
	}
}
