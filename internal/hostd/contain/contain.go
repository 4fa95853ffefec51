// Package contain keeps a panic from ending more than the work that it is in.
package contain

import (
	"errors"
	"log/slog"
	"runtime/debug"

	"unnest.io/unnest/internal/hostd/guestlog"
	"unnest.io/unnest/internal/hostd/metrics"
)

// ErrPanic is the error of a request or a guest's run that a panic has ended.
var ErrPanic = errors.New("the host daemon has a bug: its log has the stack")

// Panics logs and counts panics.
type Panics struct {
	metrics *metrics.Metrics
	log     *slog.Logger
}

// New returns the panics that log limits.
func New(m *metrics.Metrics, log *slog.Logger) *Panics {
	return &Panics{metrics: m, log: guestlog.Limit(log)}
}

// Try calls f, and contains a panic.
func (p *Panics) Try(what string, f func()) {
	_ = p.Contain(what, func() error { f(); return nil })
}

// Contain calls f. A panic ends only f, not the service of the other guests: Contain logs
// it with its stack, counts it and returns ErrPanic.
func (p *Panics) Contain(what string, f func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			p.metrics.Panic()
			p.log.Error("panic", "in", what, "panic", cause, "stack", string(debug.Stack()))
			err = ErrPanic
		}
	}()
	return f()
}
