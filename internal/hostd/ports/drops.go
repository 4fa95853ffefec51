package ports

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

// DropsOf returns how many frames of each guest the packet filter has dropped. owner returns
// the guest that has a port, "" if none.
func (p *Ports) DropsOf(owner func(port string) string) (map[string]uint64, error) {
	t := p.Opened()
	if t == nil {
		return nil, nil
	}
	return p.dropped.add(t.DropsOf, owner)
}

// ForgetDrops forgets the drops of a guest that is gone.
func (p *Ports) ForgetDrops(guest string) { p.dropped.forget(guest) }

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
