package qmp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

const deleted = `{"event": "DEVICE_DELETED", "data": {"device": %q, "path": "/machine/peripheral/x"}, "timestamp": {"seconds": 1641385071, "microseconds": 121684}}`

// To unplug, subscribe, send device_del, and await the event. QEMU may send the event
// before the reply, among events of other devices.
func TestDeviceDeleted(t *testing.T) {
	c := dialFake(t, func(f *fake) error {
		cmd, err := f.next()
		if err != nil {
			return err
		}
		return errors.Join(
			f.say(deleted, "nic2-1"),
			f.say(`{"event": "DEVICE_DELETED", "data": {"path": "/machine/peripheral/nic1-1/virtio-backend"}}`),
			f.say(`{"event": "RESET", "data": {"guest": false}}`),
			f.say(deleted, "nic1-1"),
			f.say(`{"return": {}, "id": %s}`, cmd.ID),
			f.say(deleted, "nic3-1"))
	})
	s := c.Subscribe(EventDeviceDeleted)
	defer s.Close()
	if err := c.DeviceDel(t.Context(), "nic1-1"); err != nil {
		t.Fatal(err)
	}
	if err := awaitDeleted(t.Context(), s, "nic1-1"); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Next(t.Context()); err != nil || e.Device() != "nic3-1" {
		t.Errorf("next event is of device %q, error %v, want nic3-1", e.Device(), err)
	}
}

// awaitDeleted waits for the end of the unplug of a device.
func awaitDeleted(ctx context.Context, s *Subscription, id string) error {
	for {
		e, err := s.Next(ctx)
		if err != nil || e.Name == EventDeviceDeleted && e.Device() == id {
			return err
		}
	}
}

func TestEventDevice(t *testing.T) {
	for data, want := range map[string]string{
		`{"device": "nic1", "path": "/x"}`: "nic1",
		`{"path": "/x"}`:                   "",
		`{"device": 1}`:                    "",
		``:                                 "",
	} {
		if got := (Event{Data: []byte(data)}).Device(); got != want {
			t.Errorf("device of %q is %q, want %q", data, got, want)
		}
	}
}

func TestSubscriptionNames(t *testing.T) {
	release := make(chan struct{})
	c := dialFake(t, func(f *fake) error {
		<-release
		for _, name := range []string{"A", "B", "C"} {
			if err := f.say(`{"event": %q}`, name); err != nil {
				return err
			}
		}
		return f.echo()
	})
	all, some, closed := c.Subscribe(), c.Subscribe("C", "A"), c.Subscribe()
	defer all.Close()
	defer some.Close()
	closed.Close()
	closed.Close()
	close(release)
	if err := c.Execute(t.Context(), "sync", nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		s    *Subscription
		want []string
	}{{all, []string{"A", "B", "C"}}, {some, []string{"A", "C"}}} {
		for _, want := range tt.want {
			if e, err := tt.s.Next(t.Context()); err != nil || e.Name != want {
				t.Errorf("got event %q, error %v, want %q", e.Name, err, want)
			}
		}
	}
	if _, err := closed.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed subscription: got error %v, want ErrClosed", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := some.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("empty subscription: got error %v, want deadline exceeded", err)
	}
}

// A subscription that is not read does not delay replies, has a limited size, and reports
// the number of dropped events.
func TestSlowSubscription(t *testing.T) {
	const extra = 100
	release := make(chan struct{})
	c := dialFake(t, func(f *fake) error {
		<-release
		for i := range MaxQueued + extra {
			if err := f.say(`{"event": "E%d"}`, i); err != nil {
				return err
			}
		}
		return f.echo()
	})
	s := c.Subscribe()
	defer s.Close()
	close(release)
	if err := c.Execute(t.Context(), "sync", nil, nil); err != nil {
		t.Fatal(err)
	}
	_, err := s.Next(t.Context())
	if lost, ok := errors.AsType[*LostError](err); !ok || lost.Count != extra || !strings.HasPrefix(err.Error(), "100 QEMU events lost") {
		t.Fatalf("got error %v, want %d events lost", err, extra)
	}
	for i := extra; i < MaxQueued+extra; i++ {
		if e, err := s.Next(t.Context()); err != nil || e.Name != fmt.Sprintf("E%d", i) {
			t.Fatalf("got event %q, error %v, want E%d", e.Name, err, i)
		}
	}
}

// Events that came before the end of the connection are still delivered.
func TestEventsBeforeEnd(t *testing.T) {
	release := make(chan struct{})
	c := dialFake(t, func(f *fake) error {
		<-release
		return errors.Join(f.say(`{"event": "SHUTDOWN"}`), f.conn.Close())
	})
	s := c.Subscribe()
	defer s.Close()
	close(release)
	<-c.Done()
	if e, err := s.Next(t.Context()); err != nil || e.Name != "SHUTDOWN" {
		t.Errorf("got event %q, error %v, want SHUTDOWN", e.Name, err)
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("got error %v, want ErrClosed", err)
	}
}

func TestManyReadersOfOneSubscription(t *testing.T) {
	const events = 1000
	release := make(chan struct{})
	c := dialFake(t, func(f *fake) error {
		<-release
		for range events {
			if err := f.say(`{"event": "E"}`); err != nil {
				return err
			}
		}
		return nil
	})
	s := c.Subscribe()
	defer s.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range events / 4 {
				if _, err := s.Next(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	close(release)
	wg.Wait()
}
