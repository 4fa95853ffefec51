package qmp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// MaxQueued is how many events a subscription keeps. When it is full it drops the
// oldest, and Next returns a *LostError.
const MaxQueued = 4096

// Names of the events that hot-plug needs.
const (
	EventDeviceDeleted    = "DEVICE_DELETED"
	EventUnplugGuestError = "DEVICE_UNPLUG_GUEST_ERROR"
	EventReset            = "RESET"
	EventShutdown         = "SHUTDOWN"
)

// Event is a message that QEMU sends without a request.
type Event struct {
	Name string
	Data json.RawMessage // nil when the event has none
	Time time.Time       // QEMU's clock
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

// DeviceDeleted returns a matcher for Await of the event that ends the unplug of
// the device with the ID.
func DeviceDeleted(id string) func(Event) bool {
	return func(e Event) bool { return e.Name == EventDeviceDeleted && e.Device() == id }
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

// Subscription is a queue of events since the call of Subscribe. It has to be
// closed, or it fills up to MaxQueued.
type Subscription struct {
	client *Client
	names  []string      // empty: all
	wake   chan struct{} // holds a token while the queue may have something
	ended  chan struct{} // closed by Close
	once   sync.Once

	mu    sync.Mutex
	queue []Event
	lost  int // dropped before queue[0]
}

// Subscribe queues the events of the given names (none: all) from now on. To wait
// for the effect of a command, subscribe, then send the command, then call Await:
// then no event is missed.
func (c *Client) Subscribe(names ...string) *Subscription {
	s := &Subscription{
		client: c,
		names:  slices.Clone(names),
		wake:   make(chan struct{}, 1),
		ended:  make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[s] = struct{}{}
	return s
}

// Close ends the subscription; a waiting Next returns an error wrapping
// ErrClosed. It may be called again.
func (s *Subscription) Close() {
	s.client.mu.Lock()
	delete(s.client.subs, s)
	s.client.mu.Unlock()
	s.once.Do(func() { close(s.ended) })
}

// Next waits for an event and returns the oldest. In place of dropped events it
// returns one *LostError. When the connection has ended, it returns the queued
// events and then an error wrapping ErrClosed.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		if e, ok, err := s.pop(); ok || err != nil {
			return e, err
		}
		select {
		case <-s.wake:
		case <-s.ended:
			return Event{}, fmt.Errorf("wait for QEMU event: %w: subscription closed", ErrClosed)
		case <-ctx.Done():
			return Event{}, fmt.Errorf("wait for QEMU event: %w", context.Cause(ctx))
		case <-s.client.Done(): // events that came before are in the queue
			e, ok, err := s.pop()
			if !ok && err == nil {
				err = fmt.Errorf("wait for QEMU event: %w", s.client.Err())
			}
			return e, err
		}
	}
}

// Await returns the first event that matches and drops those before it. Its
// errors are those of Next. After a *LostError the event may have been lost.
func (s *Subscription) Await(ctx context.Context, match func(Event) bool) (Event, error) {
	for {
		e, err := s.Next(ctx)
		if err != nil || match(e) {
			return e, err
		}
	}
}

// pop takes the oldest event, or a *LostError for dropped ones.
func (s *Subscription) pop() (e Event, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost > 0 {
		err = &LostError{Count: s.lost}
		s.lost = 0
	} else if len(s.queue) > 0 {
		e, ok = s.queue[0], true
		s.queue[0] = Event{}
		s.queue = s.queue[1:]
	}
	if len(s.queue) > 0 {
		s.signal() // for another reader
	}
	return e, ok, err
}

// push adds an event without waiting.
func (s *Subscription) push(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == MaxQueued {
		s.queue = s.queue[1:]
		s.lost++
	}
	s.queue = append(s.queue, e)
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// publish gives e to every subscription that wants it.
func (c *Client) publish(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subs {
		if len(s.names) == 0 || slices.Contains(s.names, e.Name) {
			s.push(e)
		}
	}
}
