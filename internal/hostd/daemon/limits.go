package daemon

import (
	"log/slog"
	"net"
	"sync"

	"golang.org/x/time/rate"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/ratelimit"
)

// allow reports whether a guest may make one more request now.
func (d *daemon) allow(c client) bool {
	l := c.tenant.Limits
	if l.RequestsPerSecond == 0 {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.rates[c.record.Name]
	if r == nil {
		r = rate.NewLimiter(rate.Limit(l.RequestsPerSecond), l.Burst)
		d.rates[c.record.Name] = r
	}
	return r.Allow()
}

// limitsFor is the bandwidth of an attachment: what it asks for, at most what
// the tenant allows.
func limitsFor(t policy.Tenant, asked *hostdpb.Bandwidth) ratelimit.Limits {
	b := t.BandwidthFor(policy.Bandwidth{
		IngressRate: asked.GetIngressRate(), IngressBurst: asked.GetIngressBurst(),
		EgressRate: asked.GetEgressRate(), EgressBurst: asked.GetEgressBurst(),
	})
	return ratelimit.Limits{
		IngressRate: b.IngressRate, IngressBurst: b.IngressBurst, EgressRate: b.EgressRate, EgressBurst: b.EgressBurst,
	}
}

// few is a log of what anybody may cause at will: ten lines, then one a second.
type few struct{ limit *rate.Limiter }

func newFew() few { return few{rate.NewLimiter(1, 10)} }

func (f few) log(l *slog.Logger, what string, args ...any) {
	if f.limit.Allow() {
		l.Warn(what, args...)
	}
}

// gate is a listener that has a bounded number of connections with one address,
// so that one guest cannot take the descriptors of all. What is too much is
// closed.
type gate struct {
	net.Listener
	most   int
	refuse func(net.Addr)

	mu    sync.Mutex
	count map[string]int
}

func newGate(l net.Listener, most int, refuse func(net.Addr)) *gate {
	return &gate{Listener: l, most: most, refuse: refuse, count: map[string]int{}}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		g.mu.Lock()
		free := g.count[host] < g.most
		if free {
			g.count[host]++
		}
		g.mu.Unlock()
		if free {
			return &gated{Conn: c, leave: sync.OnceFunc(func() { g.leave(host) })}, nil
		}
		_ = c.Close()
		g.refuse(c.RemoteAddr())
	}
}

func (g *gate) leave(host string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count[host]--; g.count[host] == 0 {
		delete(g.count, host)
	}
}

// gated is a connection that has passed the gate.
type gated struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *gated) Close() error {
	c.leave()
	return c.Conn.Close()
}
