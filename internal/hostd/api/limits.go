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

	"unnest.io/unnest/internal/hostd/quota"
)

const (
	maxWait    = time.Second      // the longest wait of a request above its guest's rate, and the wait before a refusal
	attachWait = 10 * time.Second // the longest wait of an attach above its tenant's rate, which leaves time to plug
)

// budgets bound how often each guest may do something. The zero value is ready.
type budgets struct {
	mu     sync.Mutex
	limits map[string]*rate.Limiter
}

// of returns the limiter of a guest, and sets its rate and its burst.
func (b *budgets) of(guest string, limit rate.Limit, burst int) *rate.Limiter {
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
	l.SetLimit(limit)
	l.SetBurst(burst)
	return l
}

func (b *budgets) known(guest string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limits[guest]
}

func (b *budgets) forget(guest string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.limits, guest)
}

// reserve takes a token of a limiter, and returns how long to wait for it. If that is longer than most, it takes none and returns
// maxWait: a client that is refused at once asks again at once, and the daemon does nothing else.
func reserve(l *rate.Limiter, most time.Duration) (wait time.Duration, counts bool) {
	r := l.Reserve()
	if wait = r.Delay(); wait > most {
		r.Cancel()
		return maxWait, false
	}
	return wait, true
}

// hold delays a request above its guest's rate, and those behind it on its connection. Its certificate may be refused later.
func (h *Handler) hold(ctx context.Context, guest string) {
	l := h.holds.known(guest)
	if l == nil {
		return
	}
	wait, _ := reserve(l, maxWait)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	case <-h.serving.Done():
	}
}

// allow reports whether a guest may make one more request now.
func (h *Handler) allow(c Client) bool {
	name, l := c.Record.Name, c.Tenant.Now().Limits
	if l.RequestsPerSecond == 0 {
		h.holds.forget(name)
		return true
	}
	h.holds.of(name, rate.Limit(l.RequestsPerSecond), l.Burst)
	return h.rates.of(name, rate.Limit(l.RequestsPerSecond), l.Burst).Allow()
}

// reserveAttach counts an attach of a guest, as reserve. Guests of a tenant that are not at rest share its rate equally.
func (h *Handler) reserveAttach(tenant, guest string, perSecond, burst int) (wait time.Duration, counts bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.attaches == nil {
		h.attaches = map[string]*budgets{}
	}
	guests := h.attaches[tenant]
	if guests == nil {
		guests = &budgets{}
		h.attaches[tenant] = guests
	}
	own := guests.of(guest, 0, burst)
	for _, l := range guests.limits {
		l.SetBurst(burst)
	}
	maps.DeleteFunc(guests.limits, func(_ string, l *rate.Limiter) bool { return l != own && l.Tokens() >= float64(burst) })
	for _, l := range guests.limits {
		l.SetLimit(rate.Limit(perSecond) / rate.Limit(len(guests.limits)))
	}
	return reserve(own, attachWait)
}

// admitAttach has a request wait until its guest may attach once more, if it attaches something. What gives that back costs nothing more.
func (h *Handler) admitAttach(ctx context.Context, method string, c Client) error {
	l, name := c.Tenant.Now().Limits, path.Base(method)
	if !strings.HasPrefix(name, "Attach") && name != "JoinSegment" || l.AttachesPerSecond == 0 || len(h.Quotas().Tenants) < 2 {
		return nil
	}
	wait, counts := h.reserveAttach(c.Tenant.Name, c.Record.Name, l.AttachesPerSecond, cmp.Or(l.NICs, quota.DefaultLimits.NICs))
	if wait > 0 {
		h.Host.Turns.Above(c.Record.Name, wait+attachWait)
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !counts {
		return grpcstatus.Errorf(codes.ResourceExhausted, "guest %s has more than its part of the %d attaches a second of tenant %s: slow down, or raise limits.attachesPerSecond", c.Record.Name, l.AttachesPerSecond, c.Tenant.Name)
	}
	return nil
}
