package segments

import (
	"errors"
	"fmt"
	"os"
	"time"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/quota"
)

// endpoint is one guest's place in a segment.
type endpoint struct {
	endpointLabel
	segment *podSegment
	guest   string
	holder  attachment.Key // the attachment; zero once it has ended
	name    string         // of the label that is on the TAP; "" without a queue
	// joining is when the endpoint became a member of which the others do not know yet; else zero.
	joining time.Time
}

// holds reports whether the endpoint is an attachment's.
func (e *endpoint) holds() bool { return e.holder != (attachment.Key{}) }

// Reserve gives an attachment of a guest an endpoint of a segment, or returns the one
// that it has there. The segment is created if there is none. No two NICs of a guest
// get the same MAC: taken are the fractions whose MAC a NIC without an endpoint has.
func (r *Registry) Reserve(t quota.Tenant, s Spec, guest string, key attachment.Key, taken segment.Set) (reserved attachment.Record, err error) {
	if err := CheckKey(key); err != nil {
		return attachment.Record{}, err
	}
	err = r.during(t.Name, func() (err error) {
		reserved, err = r.reserve(t, s, owner{guest, key}, taken)
		return err
	})
	return reserved, err
}

func (r *Registry) reserve(t quota.Tenant, s Spec, o owner, taken segment.Set) (attachment.Record, error) {
	if has := r.find(r.held(o)); has != nil {
		switch {
		case has.segment.tenant == t.Name && has.segment.dead:
			return attachment.Record{}, hotplug.ErrDetaching
		case has.segment.id() != segmentID(t.Name, s.Pod):
			return attachment.Record{}, ErrElsewhere
		}
		return has.record(has.segment.label), has.segment.match(s)
	}
	p, err := r.enter(t, s)
	if err != nil {
		return attachment.Record{}, err
	}
	e, err := r.add(t, p, o, taken)
	if err != nil {
		return attachment.Record{}, errors.Join(err, r.endIfEmpty(p)) // if enter has just created it
	}
	return e.record(p.label), nil
}

// add finds a fraction for a new endpoint.
func (r *Registry) add(t quota.Tenant, p *podSegment, o owner, taken segment.Set) (*endpoint, error) {
	for _, other := range p.endpoints {
		if other.guest == o.guest {
			return nil, fmt.Errorf("segment %s: %w", p.pod, ErrTwice)
		}
	}
	if err := t.AdmitEndpoint(len(p.endpoints)); err != nil {
		return nil, err
	}
	for _, other := range r.of(o.guest) {
		if other.segment.tenant == t.Name && !other.ownMAC {
			taken = taken.With(other.fraction)
		}
	}
	e := &endpoint{segment: p, holder: o.key, guest: o.guest}
	for f := segment.Fraction(segment.MaxFractions); f >= 1; f-- {
		if p.endpoints[f] == nil && (e.fraction == 0 || e.ownMAC || !taken.Has(f)) {
			e.fraction, e.ownMAC = f, taken.Has(f)
		}
	}
	p.endpoints[e.fraction] = e
	r.index(e)
	return e, nil
}

// Open gives an attachment's endpoint a queue, for the NIC of a slot, and returns the
// descriptor for the VMM. The label has no key yet: if this process ends here, the next
// one removes the endpoint.
func (r *Registry) Open(guest string, key attachment.Key, port string) (file *os.File, err error) {
	err = r.with(r.held(owner{guest, key}), func(e *endpoint) (err error) {
		file, err = r.open(e, port)
		return err
	})
	return file, err
}

func (r *Registry) open(e *endpoint, port string) (*os.File, error) {
	switch {
	case e == nil: // released since the request
		return nil, hotplug.ErrDetached
	case e.port != "":
		return nil, fmt.Errorf("endpoint of segment %s already has a queue as %s", e.segment.pod, e.port)
	case e.segment.dead:
		return nil, fmt.Errorf("segment %s: its TAP has been deleted: try again", e.segment.pod)
	}
	loop := e.segment.loop
	file, err := loop.Join(e.fraction)
	if err != nil {
		return nil, err
	}
	l := endpointLabel{port: port, fraction: e.fraction, ownMAC: e.ownMAC}
	if err := loop.addName(l.String()); err != nil {
		return nil, errors.Join(err, file.Close(), loop.Leave(e.fraction))
	}
	e.endpointLabel, e.name = l, l.String()
	r.index(e)
	return file, nil
}

// RestoreOffloads restores the offloads of a segment after a VMM has made a NIC of the queue
// for a port: the VMM sets them for all queues, for a guest that has not yet said which
// it takes. A port that is not an endpoint's is ignored.
func (r *Registry) RestoreOffloads(port string) error {
	return r.with(r.at(port), func(e *endpoint) error {
		if e == nil {
			return nil
		}
		return e.segment.loop.RestoreOffloads()
	})
}

// RestoreOffloadsOf does what RestoreOffloads does for all segments of a guest that was reset.
func (r *Registry) RestoreOffloadsOf(guest string) (err error) {
	for _, e := range r.of(guest) {
		err = errors.Join(err, r.during(e.segment.tenant, func() error {
			if e.segment.dead {
				return nil
			}
			return e.segment.loop.RestoreOffloads()
		}))
	}
	return err
}

// Connect makes the endpoint at a port a member of its segment. The others are told when the
// guest has asked for the endpoint by Check, or after joinTime: until the guest has connected
// the pod's lo it refuses nothing, so connects of the others to closed ports would wait for it.
func (r *Registry) Connect(port string, key attachment.Key) error {
	return r.with(r.at(port), func(e *endpoint) error {
		if e == nil || !e.holds() {
			return hotplug.ErrDetached
		}
		if err := e.relabel(key); err != nil {
			return err
		}
		e.segment.created = time.Time{}
		if !e.segment.members.Has(e.fraction) && !e.segment.dead {
			e.segment.members, e.joining = e.segment.members.With(e.fraction), time.Now()
		}
		return nil
	})
}

// relabel writes the label of an endpoint with a key or with none. It adds the new name
// before it deletes the old one, so that there always is one.
func (e *endpoint) relabel(key attachment.Key) error {
	l := e.endpointLabel
	l.key = key
	name := l.String()
	if name == e.name {
		return nil
	}
	if err := e.segment.loop.addName(name); err != nil {
		return err
	}
	old := e.name
	e.name = name
	return e.segment.loop.deleteName(old)
}

// Disconnect ends the membership of the endpoint at a port. It returns false if the
// port is not an endpoint's.
func (r *Registry) Disconnect(port string) (found bool, err error) {
	err = r.with(r.at(port), func(e *endpoint) (err error) {
		if e == nil {
			return nil
		}
		found = true
		if !e.segment.dead {
			err = e.relabel(attachment.Key{})
		}
		e.joining = time.Time{}
		r.setMembers(e.segment, e.segment.members.Without(e.fraction))
		return err
	})
	return found, err
}

// Gone reports in found whether a port is an endpoint's, and in gone whether the TAP of that endpoint's segment was deleted.
func (r *Registry) Gone(port string) (found, gone bool) {
	_ = r.with(r.at(port), func(e *endpoint) error {
		if found = e != nil; found {
			gone = e.segment.gone()
		}
		return nil
	})
	return found, gone
}

// ClosePort closes the queue of the endpoint at a port and removes the endpoint. It
// returns false if the port is not an endpoint's.
func (r *Registry) ClosePort(port string) (found bool, err error) {
	err = r.with(r.at(port), func(e *endpoint) error {
		if e == nil {
			return nil
		}
		found = true
		return r.remove(e)
	})
	return found, err
}

func (r *Registry) remove(e *endpoint) error {
	p := e.segment
	if e.port != "" && !p.gone() {
		if err := p.loop.Leave(e.fraction); err != nil {
			return err
		}
		if err := p.loop.deleteName(e.name); err != nil {
			return err
		}
	}
	delete(p.endpoints, e.fraction)
	r.unindex(e)
	r.setMembers(p, p.members.Without(e.fraction))
	return r.endIfEmpty(p)
}

// Release takes the endpoint of an attachment that has ended. If the endpoint still has
// a queue, it stays until ClosePort.
func (r *Registry) Release(guest string, key attachment.Key) error {
	return r.with(r.held(owner{guest, key}), func(e *endpoint) error {
		switch {
		case e == nil:
			return nil
		case e.port == "":
			return r.remove(e)
		}
		r.release(e)
		return nil
	})
}

// RemoveGuest removes all endpoints of a guest that is gone.
func (r *Registry) RemoveGuest(guest string) (err error) {
	for _, e := range r.of(guest) {
		err = errors.Join(err, r.during(e.segment.tenant, func() error {
			if e.segment.endpoints[e.fraction] != e { // removed meanwhile
				return nil
			}
			return r.remove(e)
		}))
	}
	return err
}

// Has reports whether a guest has an endpoint.
func (r *Registry) Has(guest string) bool { return len(r.of(guest)) > 0 }
