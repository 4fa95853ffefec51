package attachment

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// At most turns commands work at the same time, and all of many come to an end.
func TestTakeTurn(t *testing.T) {
	useStateDir(t, t.TempDir())
	var working, most atomic.Int32
	var all sync.WaitGroup
	for range 8 * turns() {
		all.Go(func() {
			done, err := takeTurn(t.Context(), time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			now := working.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			time.Sleep(time.Millisecond)
			working.Add(-1)
		})
	}
	all.Wait()
	if got := most.Load(); got < 2 || int(got) > turns() {
		t.Errorf("%d commands have worked at the same time, want 2 to %d", got, turns())
	}
}

// A GC that takes all turns waits for those that are taken, and keeps others from taking one.
func TestTakeAllTurns(t *testing.T) {
	useStateDir(t, t.TempDir())
	done, err := takeTurn(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var again *types.Error
	if _, err := takeAllTurns(ctx); !errors.As(err, &again) || again.Code != types.ErrTryAgainLater {
		t.Errorf("while a command works: %v, want CNI error %d", err, types.ErrTryAgainLater)
	}
	done()
	if done, err = takeAllTurns(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := takeTurn(t.Context(), 50*time.Millisecond); !errors.As(err, &again) {
		t.Errorf("a command during GC: %v, want CNI error %d", err, types.ErrTryAgainLater)
	}
	done()
	if done, err = takeTurn(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	done()
}

// A command that gets no turn in time asks the runtime to try again. Its place in the queue is free
// for others.
func TestTakeTurnLate(t *testing.T) {
	useStateDir(t, t.TempDir())
	var held []func()
	for range turns() {
		done, err := takeTurn(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, done)
	}
	_, err := takeTurn(t.Context(), 50*time.Millisecond)
	var again *types.Error
	if !errors.As(err, &again) || again.Code != types.ErrTryAgainLater {
		t.Errorf("without a free turn: %v, want CNI error %d", err, types.ErrTryAgainLater)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() { _, err := takeTurn(ctx, time.Minute); waiting <- err }()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("a command that is canceled: %v", err)
	}
	held[0]()
	done, err := takeTurn(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	done()
	for _, done := range held[1:] {
		done()
	}
}
