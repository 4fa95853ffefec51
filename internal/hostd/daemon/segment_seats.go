package daemon

import (
	"errors"
	"fmt"
	"os"
	"time"

	"unnest/internal/hostapi/segment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/policy"
)

// seat is one endpoint's place in a segment.
type seat struct {
	segment  *podSegment
	owner    string // the attachment, as owner writes it; "": it is given up
	guest    string
	fraction segment.Fraction
	ownMAC   bool   // the NIC has the slot's MAC, not the fraction's
	port     string // "" while it has no queue
	name     string // its ticket on the TAP
}

// reserve gives an attachment of a guest a seat in the segment, or the one that it
// has there, and returns the note for it. taken are fractions whose MAC the guest
// has already; those of its seats need not be among them.
func (s *segments) reserve(t policy.Tenant, w wanted, guest, owner string, taken segment.Set) (note, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if has := s.seats[owner]; has != nil {
		if has.segment.dead {
			return note{}, hotplug.ErrDetaching
		}
		if has.segment.id() != segmentID(t.Name, w.pod) {
			return note{}, errElsewhere
		}
		return has.note(), has.segment.fits(w)
	}
	p, err := s.enter(t, w)
	if err != nil {
		return note{}, err
	}
	got, err := s.sit(t, p, guest, owner, taken)
	if err != nil {
		return note{}, errors.Join(err, s.end(p)) // if it was made just now
	}
	return got.note(), nil
}

// sit finds a fraction for a new seat. Its MAC is one that no NIC of the guest has,
// so that the guest cannot take one for another.
func (s *segments) sit(t policy.Tenant, p *podSegment, guest, owner string, taken segment.Set) (*seat, error) {
	for _, other := range p.seats {
		if other.guest == guest {
			return nil, fmt.Errorf("segment %s: %w", p.pod, errTwice)
		}
	}
	if err := t.AdmitEndpoint(len(p.seats)); err != nil {
		return nil, err
	}
	for _, other := range s.of(guest) {
		if !other.ownMAC {
			taken = taken.With(other.fraction)
		}
	}
	st := &seat{segment: p, owner: owner, guest: guest}
	for f := segment.Fraction(segment.MaxFractions); f >= 1; f-- {
		if p.seats[f] == nil && (st.fraction == 0 || st.ownMAC || !taken.Has(f)) {
			st.fraction, st.ownMAC = f, taken.Has(f)
		}
	}
	p.seats[st.fraction], s.seats[owner] = st, st
	return st, nil
}

func (st *seat) note() note {
	p := st.segment
	return note{pod: p.pod, network: p.network, fraction: st.fraction, ownMAC: st.ownMAC}
}

// open gives an attachment's seat a queue, for the NIC of a slot, and returns the
// descriptor for the VMM. The ticket has no key yet: what comes of it if this
// process ends here is taken away.
func (s *segments) open(owner, port string) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.seats[owner]
	switch {
	case st == nil: // who asked for it has given up
		return nil, hotplug.ErrDetached
	case st.port != "":
		return nil, fmt.Errorf("endpoint of segment %s has a queue as %s", st.segment.pod, st.port)
	case st.segment.dead:
		return nil, fmt.Errorf("segment %s: somebody has deleted its TAP: try again", st.segment.pod)
	}
	loop := st.segment.loop
	file, err := loop.Join(st.fraction)
	if err != nil {
		return nil, err
	}
	name := ticket{port: port, fraction: st.fraction, ownMAC: st.ownMAC}.String()
	if err := loop.addName(name); err != nil {
		return nil, errors.Join(err, file.Close(), loop.Leave(st.fraction))
	}
	st.port, st.name = port, name
	s.ports[port] = st
	return file, nil
}

// adapt mends what a VMM that has made a NIC of a queue has changed for all of the
// segment: it assumes a guest that has not said yet which headers it takes.
func (s *segments) adapt(port string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.ports[port]; st != nil {
		return st.segment.loop.RestoreOffloads()
	}
	return nil
}

// adaptAll does so for all segments of a guest that starts anew.
func (s *segments) adaptAll(guest string) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.of(guest) {
		err = errors.Join(err, st.segment.loop.RestoreOffloads())
	}
	return err
}

// connect makes an endpoint a member of its segment.
func (s *segments) connect(port string, key hotplug.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.ports[port]
	if st == nil || st.owner == "" {
		return hotplug.ErrDetached
	}
	if err := st.rename(key); err != nil {
		return err
	}
	st.segment.created = time.Time{}
	s.change(st.segment, st.segment.members.With(st.fraction))
	return nil
}

// rename writes the ticket of a seat, with a key or with none. At no time is there
// none.
func (st *seat) rename(key hotplug.Key) error {
	plain, _ := plainKey(key)
	name := ticket{port: st.port, fraction: st.fraction, ownMAC: st.ownMAC, key: plain}.String()
	if name == st.name {
		return nil
	}
	if err := st.segment.loop.addName(name); err != nil {
		return err
	}
	old := st.name
	st.name = name
	return st.segment.loop.deleteName(old)
}

// disconnect takes an endpoint out of its segment's members: it is on its way out.
// It reports false if the port is no endpoint's.
func (s *segments) disconnect(port string) (endpoint bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.ports[port]
	if st == nil {
		return false, nil
	}
	if !st.segment.dead {
		err = st.rename(hotplug.Key{})
	}
	s.change(st.segment, st.segment.members.Without(st.fraction))
	return true, err
}

// close gives an endpoint's queue back, and its seat. It reports false if the port
// is no endpoint's.
func (s *segments) close(port string) (endpoint bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.ports[port]
	if st == nil {
		return false, nil
	}
	return true, s.leave(st)
}

func (s *segments) leave(st *seat) error {
	p := st.segment
	if st.port != "" && !p.dead && !p.loop.gone() {
		if err := p.loop.Leave(st.fraction); err != nil {
			return err
		}
		if err := p.loop.deleteName(st.name); err != nil {
			return err
		}
	}
	delete(s.ports, st.port)
	delete(p.seats, st.fraction)
	if s.seats[st.owner] == st {
		delete(s.seats, st.owner)
	}
	s.change(p, p.members.Without(st.fraction))
	return s.end(p)
}

// release takes a seat back from an attachment that has ended. One that still has a
// queue goes with that.
func (s *segments) release(owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.seats[owner]
	if st == nil {
		return nil
	}
	if st.port == "" {
		return s.leave(st)
	}
	delete(s.seats, owner)
	st.owner = ""
	return nil
}

// drop takes a guest that is gone out of all its segments.
func (s *segments) drop(guest string) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.of(guest) {
		err = errors.Join(err, s.leave(st))
	}
	return err
}

// of lists a guest's seats.
func (s *segments) of(guest string) (all []*seat) {
	for _, p := range s.all {
		for _, st := range p.seats {
			if st.guest == guest {
				all = append(all, st)
			}
		}
	}
	return all
}

// has reports whether a guest has a seat anywhere.
func (s *segments) has(guest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of(guest)) > 0
}
