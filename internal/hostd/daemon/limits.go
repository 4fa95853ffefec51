package daemon

import (
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
