package api

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
)

const (
	// attachWait bounds how long an attach above its tenant's rate waits, so that there is time to plug.
	attachWait = 20 * time.Second
	// attachBurst is how many a guest may attach at once that may have any number of NICs.
	attachBurst = 128
)

// attaching are the requests that change the host's network or its VMMs. What gives back what they have made costs nothing more.
var attaching = map[string]bool{
	hostdpb.HostDaemon_AttachNIC_FullMethodName: true, hostdpb.HostDaemon_JoinSegment_FullMethodName: true,
	hostdpb.HostDaemon_AttachVolume_FullMethodName: true, hostdpb.HostDaemon_AttachSharedMemory_FullMethodName: true,
}

// attaches bound how often the guests of each tenant attach something. Guests above their burst share the tenant's rate equally,
// so that none delays the others. The zero value is ready.
type attaches struct {
	mu sync.Mutex
	of map[string]*owed // by tenant
}

// owed is by guest how many attaches the tenant's rate has not made up for.
type owed struct {
	guests map[string]float64
	at     time.Time
}

// reserve counts an attach of a guest. It returns how long that has to wait; if that is too long, it does not count.
func (a *attaches) reserve(tenant, guest string, perSecond, burst int) (wait time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string]*owed{}
	}
	o := a.of[tenant]
	if o == nil {
		o = &owed{guests: map[string]float64{}}
		a.of[tenant] = o
	}
	now := time.Now()
	each := float64(perSecond) * now.Sub(o.at).Seconds() / float64(max(1, len(o.guests)))
	o.at = now
	for name := range o.guests {
		if o.guests[name] -= each; o.guests[name] <= 0 {
			delete(o.guests, name)
		}
	}
	o.guests[guest]++
	seconds := (o.guests[guest] - float64(burst)) * float64(len(o.guests)) / float64(perSecond)
	if seconds > attachWait.Seconds() {
		o.guests[guest]--
		return 0, false
	}
	return time.Duration(max(0, seconds) * float64(time.Second)), true
}

// admitAttach has a request wait until its guest may attach once more, if it attaches something.
func (h *Handler) admitAttach(ctx context.Context, method string, c Client) error {
	l := c.Tenant.Now().Limits
	if !attaching[method] || l.AttachesPerSecond == 0 || len(h.Quotas().Tenants) < 2 {
		return nil
	}
	wait, ok := h.attaches.reserve(c.Tenant.Name, c.Record.Name, l.AttachesPerSecond, cmp.Or(l.NICs, attachBurst))
	if !ok {
		wait = maxWait // else it would ask again at once
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !ok {
		return grpcstatus.Errorf(codes.ResourceExhausted, "guest %s attaches more than its part of the %d attaches a second of tenant %s: slow down, or raise limits.attachesPerSecond",
			c.Record.Name, l.AttachesPerSecond, c.Tenant.Name)
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
