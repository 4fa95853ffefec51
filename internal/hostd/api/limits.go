package api

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxWait bounds how long a request above its guest's rate waits before it is read.
const maxWait = time.Second

// budgets bound how often each guest may do something. The zero value is ready.
type budgets struct {
	mu      sync.Mutex
	limits  map[string]*rate.Limiter
	waiting map[string]int // requests
}

// wait counts a request of a guest that has to wait until the guest may do it once more, behind those that wait
// already. It returns 0 if none has to.
func (b *budgets) wait(guest string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limits[guest]
	if l == nil || l.Limit() <= 0 || l.Tokens() >= 1 {
		return 0
	}
	wait := (float64(b.waiting[guest]) + 1 - l.Tokens()) / float64(l.Limit())
	if b.waiting == nil {
		b.waiting = map[string]int{}
	}
	b.waiting[guest]++
	return min(maxWait, time.Duration(wait*float64(time.Second)))
}

// waited ends a wait.
func (b *budgets) waited(guest string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[guest]--; b.waiting[guest] == 0 {
		delete(b.waiting, guest)
	}
}

// allow reports whether a guest may do it once more now.
func (b *budgets) allow(guest string, limit rate.Limit, burst int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limits[guest]
	if l == nil {
		if b.limits == nil {
			b.limits = map[string]*rate.Limiter{}
		}
		l = rate.NewLimiter(limit, burst)
		b.limits[guest] = l
	}
	return l.Allow()
}

func (b *budgets) forget(guest string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.limits, guest)
}

// reset forgets how often guests have done it.
func (b *budgets) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limits = nil
}

// hold delays a request above its guest's rate, and the requests behind it on its connection. If the daemon refused it at
// once, the guest would ask again at once, and the daemon would do nothing else.
func (h *Handler) hold(ctx context.Context, guest string) {
	wait := h.rates.wait(guest)
	if wait == 0 {
		return
	}
	defer h.rates.waited(guest)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	case <-h.serving.Done():
	}
}

// allow reports whether a guest may make one more request now.
func (h *Handler) allow(c Client) bool {
	l := c.Tenant.Now().Limits
	if l.RequestsPerSecond == 0 {
		return true
	}
	return h.rates.allow(c.Record.Name, rate.Limit(l.RequestsPerSecond), l.Burst)
}
