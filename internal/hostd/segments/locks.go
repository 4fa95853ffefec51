package segments

import (
	"slices"
	"sync"

	"unnest.io/unnest/internal/hostd/attachment"
)

// This file has the locks: one per tenant, held while one of its segments changes, and one
// of the maps, held for a moment and never while the kernel works. So a tenant whose
// segment is slow does not stop the others. A tenant's lock is taken before that of the
// maps, and no two tenants' are held at once.

// during calls f while no other call changes segments of a tenant.
func (r *Registry) during(tenant string, f func() error) error {
	l := r.lockOf(tenant)
	l.Lock()
	defer l.Unlock()
	return f()
}

// unlessBusy does what during does, unless another call changes the segments now.
func (r *Registry) unlessBusy(tenant string, f func()) {
	l := r.lockOf(tenant)
	if l.TryLock() {
		defer l.Unlock()
		f()
	}
}

func (r *Registry) lockOf(tenant string) *sync.Mutex {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.tenants[tenant]
	if l == nil {
		l = &sync.Mutex{}
		r.tenants[tenant] = l
	}
	return l
}

// with calls f with the endpoint that find returns from the maps, nil if there is none,
// while no other call changes segments of its tenant.
func (r *Registry) with(find func() *endpoint, f func(*endpoint) error) error {
	for {
		e := r.find(find)
		if e == nil {
			return f(nil)
		}
		found := false
		err := r.during(e.segment.tenant, func() error {
			if found = r.find(find) == e; found {
				return f(e)
			}
			return nil
		})
		if found {
			return err
		}
	}
}

func (r *Registry) find(find func() *endpoint) *endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return find()
}

// at finds the endpoint at a port, and held that of an attachment.
func (r *Registry) at(port string) func() *endpoint { return func() *endpoint { return r.ports[port] } }

func (r *Registry) held(o owner) func() *endpoint {
	return func() *endpoint { return r.endpoints[o] }
}

// of lists a guest's endpoints.
func (r *Registry) of(guest string) []*endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[*endpoint]bool{}
	for _, e := range r.endpoints {
		all[e] = e.guest == guest
	}
	for _, e := range r.ports { // also of attachments that have ended
		all[e] = e.guest == guest
	}
	var own []*endpoint
	for e, is := range all {
		if is {
			own = append(own, e)
		}
	}
	return own
}

// all lists the segments of a tenant, or of all tenants.
func (r *Registry) all(tenant string) (all []*podSegment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.segments {
		if tenant == "" || p.tenant == tenant {
			all = append(all, p)
		}
	}
	return all
}

// Tenants lists the tenants that have segments.
func (r *Registry) Tenants() (names []string) {
	for _, p := range r.all("") {
		names = append(names, p.tenant)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// segment returns a segment, or the one that is left alone, if there is one.
func (r *Registry) segment(id string) (p *podSegment, l leftSegment, left bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, left = r.left[id]
	return r.segments[id], l, left
}

func (r *Registry) put(p *podSegment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.segments[p.id()] = p
}

func (r *Registry) drop(p *podSegment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.segments[p.id()] == p {
		delete(r.segments, p.id())
	}
}

// index adds an endpoint to the maps under its attachment and its port, as far as it has
// them.
func (r *Registry) index(e *endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.holds() {
		r.endpoints[owner{e.guest, e.holder}] = e
	}
	if e.port != "" {
		r.ports[e.port] = e
	}
}

// unindex removes an endpoint from the maps.
func (r *Registry) unindex(e *endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ports[e.port] == e {
		delete(r.ports, e.port)
	}
	if at := (owner{e.guest, e.holder}); r.endpoints[at] == e {
		delete(r.endpoints, at)
	}
}

// release ends the attachment of an endpoint, which keeps its port.
func (r *Registry) release(e *endpoint) {
	r.unindex(e)
	e.holder = attachment.Key{}
	r.index(e)
}
