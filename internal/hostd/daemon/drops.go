package daemon

import (
	"maps"
	"sync"
)

// portDrops sums the dropped frames of each guest. The kernel's counts end with the
// ports.
type portDrops struct {
	mu     sync.Mutex
	counts map[string]uint64 // the latest, by port
	totals map[string]uint64 // by guest
}

// add reads the counts, adds what has come since the latest, and returns the totals.
func (p *portDrops) add(read func() (map[string]uint64, error), owner func(port string) string) (map[string]uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts, err := read()
	if err != nil {
		return nil, err
	}
	if p.totals == nil {
		p.totals = map[string]uint64{}
	}
	for port, n := range counts {
		guest, before := owner(port), p.counts[port]
		if before > n { // another port of the name, or a filter that was restored
			before = 0
		}
		if guest != "" {
			p.totals[guest] += n - before
		}
	}
	p.counts = counts
	return maps.Clone(p.totals), nil
}

func (p *portDrops) forget(guest string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.totals, guest)
}

// GuestDrops returns how many frames of each guest the packet filter has dropped.
func (r reporter) GuestDrops() map[string]uint64 {
	t := r.host.ports.opened()
	if t == nil {
		return nil
	}
	guests := r.all()
	totals, err := r.host.ports.dropped.add(t.DropsOf, func(port string) string { return r.ownerOf(port, guests) })
	if err != nil {
		r.config.Logger.Warn("count dropped frames of guests", "error", err)
	}
	return totals
}

// ownerOf returns which of the guests has a port on the host, "" if none.
func (d *daemon) ownerOf(port string, guests []*guest) string {
	for _, g := range guests {
		if isPort(port, g.record.tapPrefix(), g.record.vlanPrefix()) {
			return g.record.Name
		}
		for _, n := range g.record.NICs {
			if n.TAP == port {
				return g.record.Name
			}
		}
	}
	own, _ := d.host.own.of(port)
	return own.guest
}
