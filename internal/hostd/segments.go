package hostd

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"unnest/internal/hostlo"
	"unnest/internal/hotplug"
	"unnest/internal/policy"
	"unnest/internal/segment"
)

// announceTime is how often each segment's members are told who they are: a NIC
// that was not up yet has missed it.
const announceTime = 2 * time.Second

// emptyTime is how long a segment that was created waits for its first endpoint.
const emptyTime = time.Minute

// Reasons to refuse what is asked of a segment.
var (
	errKey       = errors.New("the key is not that of the segment: want the one that the pod's other guests have")
	errDiffers   = errors.New("the segment is another")
	errElsewhere = errors.New("the attachment has an endpoint of another segment: leave that first")
	errTwice     = errors.New("the guest has an endpoint in the segment, which is still there: a pod has one fraction on a guest")
	errNoSegment = errors.New("no such segment")
)

// segments are the Hostlo segments of the host, for all its guests. Who has an
// endpoint has a seat: from the request until nothing of it is left. Which NIC goes
// where is not decided here.
type segments struct {
	log    *slog.Logger
	create func(hostlo.Options) (loopback, error)

	mu    sync.Mutex
	all   map[string]*podSegment // by id
	seats map[string]*seat       // by attachment, as owner writes it
	ports map[string]*seat       // by the name of the slot's port, once it has a queue
}

// podSegment is one segment.
type podSegment struct {
	title
	loop  loopback
	seats map[segment.Fraction]*seat
	// members are those fractions whose endpoint is ready and not on its way out.
	members segment.Set
	created time.Time // by CreateSegment; zero once there was an endpoint
	dead    bool      // its TAP was deleted, by whomever
}

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

func newSegments(log *slog.Logger, create func(hostlo.Options) (loopback, error)) *segments {
	return &segments{log: log, create: create, all: map[string]*podSegment{}, seats: map[string]*seat{}, ports: map[string]*seat{}}
}

// wanted is what a request says of a segment. An empty mode is any.
type wanted struct{ pod, key, mode, network string }

// enter returns the segment that is wanted, and makes it if there is none.
func (s *segments) enter(t policy.Tenant, w wanted) (*podSegment, error) {
	id := segmentID(t.Name, w.pod)
	if p := s.all[id]; p != nil {
		return p, p.fits(w)
	}
	if err := t.AdmitSegment(s.count(t.Name)); err != nil {
		return nil, err
	}
	mode, err := t.SegmentModeFor(w.mode)
	if err != nil {
		return nil, err
	}
	p := &podSegment{
		title: title{tenant: t.Name, pod: w.pod, network: w.network, mode: mode, digest: keyDigest(id, w.key)},
		seats: map[segment.Fraction]*seat{},
	}
	if p.loop, err = s.create(loopbackOptions(t, p.title)); err != nil {
		return nil, err
	}
	if err := p.loop.setAlias(p.alias()); err != nil {
		return nil, errors.Join(err, p.loop.Delete())
	}
	s.all[id] = p
	s.log.Info("create segment", "tenant", p.tenant, "pod", p.pod, "mode", p.mode, "network", p.network, "tap", segmentTAP(id))
	return p, nil
}

// loopbackOptions are those of a tenant's segment. As many broadcasts as a tenth of
// a second has may come at once.
func loopbackOptions(t policy.Tenant, p title) hostlo.Options {
	rate := uint32(t.Limits.Broadcasts)
	if rate == 0 {
		rate = uint32(time.Second) // one a nanosecond: no limit
	}
	return hostlo.Options{
		Name: segmentTAP(p.id()), Mode: hostlo.Mode(p.mode), Limit: hostlo.Limit{Rate: rate, Burst: max(1, rate/10)},
	}
}

// fits returns an error unless the segment is the one that is wanted. Without the
// key nobody learns more of it.
func (p *podSegment) fits(w wanted) error {
	digest := keyDigest(p.id(), w.key)
	switch {
	case subtle.ConstantTimeCompare(digest[:], p.digest[:]) != 1:
		return fmt.Errorf("segment %s: %w", w.pod, errKey)
	case w.mode != "" && w.mode != p.mode:
		return fmt.Errorf("%w: %s has mode %s, not %s", errDiffers, w.pod, p.mode, w.mode)
	case w.network != p.network:
		return fmt.Errorf("%w: %s is of network %q, not %q", errDiffers, w.pod, p.network, w.network)
	}
	return nil
}

func (s *segments) count(tenant string) int {
	n := 0
	for _, p := range s.all {
		if p.tenant == tenant {
			n++
		}
	}
	return n
}

func (s *segments) countOf(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count(tenant)
}

// make makes a segment that is empty for a while, unless it is there.
func (s *segments) make(t policy.Tenant, w wanted) (SegmentStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.enter(t, w)
	if err != nil {
		return SegmentStatus{}, err
	}
	if len(p.seats) == 0 {
		p.created = time.Now()
	}
	return p.status(), nil
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
		return st.segment.loop.Adapt()
	}
	return nil
}

// adaptAll does so for all segments of a guest that starts anew.
func (s *segments) adaptAll(guest string) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.of(guest) {
		err = errors.Join(err, st.segment.loop.Adapt())
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

// change says who is in the segment from now on, if that is another set.
func (s *segments) change(p *podSegment, members segment.Set) {
	if members == p.members || p.dead {
		return
	}
	p.members = members
	s.renew(p)
}

// renew tells the members who they are in a new generation, which is written down
// before: the next daemon's are to be later.
func (s *segments) renew(p *podSegment) {
	p.generation++
	err := p.loop.setAlias(p.alias())
	if err = errors.Join(err, p.loop.Announce(p.membership())); err != nil {
		s.log.Warn("announce members", "tenant", p.tenant, "pod", p.pod, "error", err)
	}
	s.log.Info("members of segment", "tenant", p.tenant, "pod", p.pod, "members", p.members, "generation", p.generation)
}

func (p *podSegment) membership() segment.Membership {
	return segment.Membership{Generation: p.generation, Members: p.members}
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

// end destroys a segment in which nobody is.
func (s *segments) end(p *podSegment) error {
	if len(p.seats) > 0 || p.dead || time.Since(p.created) < emptyTime {
		return nil
	}
	return s.destroy(p)
}

func (s *segments) destroy(p *podSegment) error {
	p.dead = true
	delete(s.all, p.id())
	s.log.Info("destroy segment", "tenant", p.tenant, "pod", p.pod)
	return p.loop.Delete()
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

// tick announces all members once more, and ends what nobody wants. It returns the
// guests of segments whose TAP has been deleted by somebody: their endpoints are
// lost.
func (s *segments) tick() (hurt []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		if p.loop.gone() {
			s.log.Warn("segment is lost: its TAP has been deleted", "tenant", p.tenant, "pod", p.pod)
			for _, st := range p.seats {
				hurt = append(hurt, st.guest)
			}
			if err := s.destroy(p); err != nil {
				s.log.Warn("destroy segment", "tenant", p.tenant, "pod", p.pod, "error", err)
			}
			continue
		}
		if err := errors.Join(p.loop.Adapt(), p.loop.Announce(p.membership()), s.end(p)); err != nil {
			s.log.Warn("announce members", "tenant", p.tenant, "pod", p.pod, "error", err)
		}
	}
	return hurt
}

// letGo leaves all segments to the next daemon. What no VMM has a queue of ends.
func (s *segments) letGo() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		err = errors.Join(err, p.loop.Close())
	}
	clear(s.all)
	return err
}
