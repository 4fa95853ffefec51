package daemon

import (
	"errors"
	"runtime/debug"
)

// errPanic is the error of a request or a guest's run that a panic has ended.
var errPanic = errors.New("the host daemon has a bug: its log has the stack")

// try calls f, and contains a panic.
func (h *host) try(what string, f func()) {
	_ = h.contain(what, func() error { f(); return nil })
}

// contain calls f. A panic ends only f, not the service of the other guests: contain logs
// it with its stack, counts it and returns errPanic.
func (h *host) contain(what string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.metrics.Panic()
			h.panics.Error("panic", "in", what, "panic", p, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return f()
}
