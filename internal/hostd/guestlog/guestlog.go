// Package guestlog bounds the lines that one guest can cause in the daemon's log.
package guestlog

import (
	"context"
	"log/slog"
	"sync"

	"golang.org/x/time/rate"
)

// How many lines one guest may cause: at once, and then per second.
const (
	problemBurst, problemRate = 10, 1   // warnings and errors
	routineBurst, routineRate = 200, 20 // attachments and detachments that succeed
)

// limitedHandler writes the lines that one peer causes up to its quotas. A line that
// follows suppressed ones has their number. Lines for debugging are not limited.
type limitedHandler struct {
	slog.Handler
	problems, routine *budget
}

type budget struct {
	limit *rate.Limiter

	mu         sync.Mutex
	suppressed int
}

// Limit returns a log with the quotas of one peer.
func Limit(l *slog.Logger) *slog.Logger {
	return slog.New(limitedHandler{
		l.Handler(), &budget{limit: rate.NewLimiter(problemRate, problemBurst)}, &budget{limit: rate.NewLimiter(routineRate, routineBurst)},
	})
}

// take reports whether a line may be written, and how many were suppressed before it.
func (b *budget) take() (suppressed int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.limit.Allow() {
		b.suppressed++
		return 0, false
	}
	suppressed, b.suppressed = b.suppressed, 0
	return suppressed, true
}

// Handle implements slog.Handler.
func (h limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return h.Handler.Handle(ctx, r)
	}
	q := h.routine
	if r.Level >= slog.LevelWarn {
		q = h.problems
	}
	suppressed, ok := q.take()
	if !ok {
		return nil
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h limitedHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// Logs are the logs of the guests, each with quotas of its own, so that no guest can
// suppress another's lines.
type Logs struct {
	base *slog.Logger

	mu   sync.Mutex
	logs map[string]*slog.Logger
}

// New returns the logs of guests whose lines go to base.
func New(base *slog.Logger) *Logs {
	return &Logs{base: base, logs: map[string]*slog.Logger{}}
}

// Of returns the log of a guest of the lab; of "", that of peers that are not identified.
func (g *Logs) Of(name string) *slog.Logger {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.logs[name]
	if l == nil {
		l = Limit(g.base)
		g.logs[name] = l
	}
	return l
}

// Forget forgets the quotas of a guest that is gone.
func (g *Logs) Forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.logs, name)
}
