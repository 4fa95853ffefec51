package segments

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/link"
	"unnest.io/unnest/internal/vmm"
)

// Guest is a guest that may have endpoints.
type Guest struct {
	Name, Tenant string
	// OwnsPort reports whether a port is named for one of the guest's slots.
	OwnsPort func(port string) bool
	// Process returns the ID of the VMM's process. The error wraps vmm.ErrNotRunning
	// when the VMM has ended.
	Process func(context.Context) (int, error)
}

// Recover takes over the segments of an earlier daemon: their TAPs exist as long as a
// VMM has a queue. Call it before any guest is connected. It duplicates the queues from
// each VMM's process and needs no answer of the VMM.
//
// A segment that cannot be taken over may be in use, so Recover leaves it alone and logs
// why. Its pod gets no new segment. The next Recover tries again; a TAP whose VMMs have
// ended is gone.
func (r *Registry) Recover(ctx context.Context, tenant func(name string) (quota.Tenant, error), guests []Guest) error {
	links, err := link.List()
	if err != nil {
		return fmt.Errorf("list segments: %w", err)
	}
	left := map[string]leftSegment{}
	for _, found := range links {
		l, ok := parseLabel(found.Alias)
		if !ok || !found.TAP || found.Name != tapName(l.id()) || r.has(l.id()) {
			continue
		}
		t, err := tenant(l.tenant)
		if err == nil {
			err = r.recover(ctx, t, l, found.AltNames, guests)
		}
		if err != nil {
			left[l.id()] = leftSegment{l, err.Error()}
			r.logLeft(l, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = left
	return nil
}

func (r *Registry) has(id string) bool {
	p, _, _ := r.segment(id)
	return p != nil
}

// logLeft logs why a segment is left alone, unless the log has it already.
func (r *Registry) logLeft(l label, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left[l.id()].why != err.Error() {
		r.log.Error("take over segment: it is left as it is", "tenant", l.tenant, "pod", l.pod, "tap", tapName(l.id()), "error", err)
	}
}

// Left returns how many segments of an earlier daemon are left alone.
func (r *Registry) Left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.left)
}

// recover takes over one segment, with those endpoints whose VMM still has the queue.
func (r *Registry) recover(ctx context.Context, t quota.Tenant, l label, names []string, guests []Guest) error {
	holders, endpoints := map[int]segment.Fraction{}, map[segment.Fraction]*endpoint{}
	for _, e := range endpointLabels(names) {
		i := slices.IndexFunc(guests, func(g Guest) bool { return g.Tenant == l.tenant && g.OwnsPort(e.port) })
		if i < 0 {
			continue
		}
		pid, err := guests[i].Process(ctx)
		if errors.Is(err, vmm.ErrNotRunning) {
			continue
		}
		if err != nil {
			return err
		}
		if other, twice := holders[pid]; twice {
			return fmt.Errorf("guest %s is both fraction %d and %d", guests[i].Name, other, e.fraction)
		}
		holders[pid] = e.fraction
		endpoints[e.fraction] = &endpoint{endpointLabel: e, guest: guests[i].Name, holder: e.key, name: e.String()}
	}
	if len(holders) == 0 {
		return errors.New("none of its guests that the daemon knows runs, but a process has a queue")
	}
	loop, err := recoverLoopback(loopbackOptions(t, l), holders)
	if err != nil {
		return err
	}
	r.takeOver(&podSegment{label: l, loop: loop, endpoints: endpoints}, names)
	return nil
}

// takeOver adds an existing segment. Endpoints that were connected become its members;
// endpoints without a queue are removed, and so are all names of no endpoint.
func (r *Registry) takeOver(p *podSegment, names []string) {
	_ = r.during(p.tenant, func() error {
		kept := map[string]bool{}
		for f, e := range p.endpoints {
			if !p.loop.Members().Has(f) {
				delete(p.endpoints, f)
				continue
			}
			e.segment, kept[e.name] = p, true
			r.index(e)
			if e.holds() {
				p.members = p.members.With(f)
			}
		}
		for _, name := range names {
			if _, ours := parseEndpointLabel(name); ours && !kept[name] {
				if err := p.loop.deleteName(name); err != nil {
					r.log.Warn("leave name behind", "error", err)
				}
			}
		}
		r.put(p)
		r.log.Info("take over segment", "tenant", p.tenant, "pod", p.pod, "members", p.members)
		r.announce(p)
		return nil
	})
}
