package api

import (
	"sync"

	"golang.org/x/time/rate"
)

// budgets bound how often each guest may do something. The zero value is ready.
type budgets struct {
	mu     sync.Mutex
	limits map[string]*rate.Limiter
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

// allow reports whether a guest may make one more request now.
func (h *Handler) allow(c Client) bool {
	l := c.Tenant.Now().Limits
	if l.RequestsPerSecond == 0 {
		return true
	}
	return h.rates.allow(c.Record.Name, rate.Limit(l.RequestsPerSecond), l.Burst)
}
