package daemon

import (
	"net"
	"sync"

	"golang.org/x/time/rate"
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

// limitedListener bounds the number of connections from one address, so that one guest
// cannot use up the daemon's descriptors. It closes those beyond the limit.
type limitedListener struct {
	net.Listener
	limit  int
	refuse func(net.Addr)

	mu    sync.Mutex
	count map[string]int
}

func newLimitedListener(l net.Listener, limit int, refuse func(net.Addr)) *limitedListener {
	return &limitedListener{Listener: l, limit: limit, refuse: refuse, count: map[string]int{}}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		l.mu.Lock()
		free := l.count[host] < l.limit
		if free {
			l.count[host]++
		}
		l.mu.Unlock()
		if free {
			return &limitedConn{Conn: c, closed: sync.OnceFunc(func() { l.closed(host) })}, nil
		}
		_ = c.Close()
		l.refuse(c.RemoteAddr())
	}
}

func (l *limitedListener) closed(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count[host]--; l.count[host] == 0 {
		delete(l.count, host)
	}
}

type limitedConn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
