package api

import (
	"cmp"
	"context"
	"maps"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostd/quota"
)

// attachWait bounds how long an attach above its tenant's rate waits, so that there is time to plug.
const attachWait = 20 * time.Second

// attaches bound how often the guests of each tenant attach something. Guests that are not at rest share the tenant's rate
// equally, so that none delays the others. The zero value is ready.
type attaches struct {
	mu sync.Mutex
	of map[string]map[string]*rate.Limiter // by tenant and guest
}

// reserve counts an attach of a guest. It returns how long that has to wait; if that is too long, it does not count.
func (a *attaches) reserve(tenant, guest string, perSecond, burst int) (wait time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string]map[string]*rate.Limiter{}
	}
	guests := a.of[tenant]
	if guests == nil {
		guests = map[string]*rate.Limiter{}
		a.of[tenant] = guests
	}
	maps.DeleteFunc(guests, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= float64(burst) })
	if guests[guest] == nil {
		guests[guest] = rate.NewLimiter(0, burst)
	}
	for _, l := range guests {
		l.SetBurst(burst)
		l.SetLimit(rate.Limit(perSecond) / rate.Limit(len(guests)))
	}
	r := guests[guest].Reserve()
	if wait = r.Delay(); wait > attachWait {
		r.Cancel()
		return maxWait, false // else it would ask again at once
	}
	return wait, true
}

// admitAttach has a request wait until its guest may attach once more, if it attaches something. What gives that back costs nothing more.
func (h *Handler) admitAttach(ctx context.Context, method string, c Client) error {
	l, name := c.Tenant.Now().Limits, path.Base(method)
	if !strings.HasPrefix(name, "Attach") && name != "JoinSegment" || l.AttachesPerSecond == 0 || len(h.Quotas().Tenants) < 2 {
		return nil
	}
	wait, ok := h.attaches.reserve(c.Tenant.Name, c.Record.Name, l.AttachesPerSecond, cmp.Or(l.NICs, quota.DefaultLimits.NICs))
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !ok {
		return grpcstatus.Errorf(codes.ResourceExhausted, "guest %s has more than its part of the %d attaches a second of tenant %s: slow down, or raise limits.attachesPerSecond", c.Record.Name, l.AttachesPerSecond, c.Tenant.Name)
	}
	return nil
}

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
