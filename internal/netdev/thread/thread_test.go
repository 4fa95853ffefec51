package thread

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A function never runs on the first thread of the process, which would keep its changes.
func TestDoThread(t *testing.T) {
	for range 2000 {
		_ = Do(func() error {
			if unix.Gettid() == unix.Getpid() {
				t.Error("it runs on the first thread")
			}
			return nil
		})
		if t.Failed() {
			return
		}
	}
}

// The thread that has run a function runs nothing else.
func TestDoEnds(t *testing.T) {
	for range 100 {
		_ = Do(func() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, 1234, 0, 0, 0) })
	}
	for range 100 {
		runtime.Gosched()
		if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || slack == 1234 {
			t.Fatalf("a thread has a timer slack of %d, %v", slack, err)
		}
	}
}

// Errors, panics and the end of a test's goroutine come back to the caller.
func TestDoReturns(t *testing.T) {
	if err := Do(func() error { return os.ErrClosed }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := Do(func() error { runtime.Goexit(); return nil }); err != nil {
		t.Errorf("got %v", err)
	}
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "bug") || !strings.Contains(p, "thread_test.go") {
			t.Errorf("got %q, want the panic with its stack", p)
		}
	}()
	_ = Do(func() error { panic("bug") })
}
