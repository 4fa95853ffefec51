package daemon

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"unnest/internal/hostapi/segment"
	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/reflector"
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
	create func(reflector.Options) (loopback, error)

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

func newSegments(log *slog.Logger, create func(reflector.Options) (loopback, error)) *segments {
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
func loopbackOptions(t policy.Tenant, p title) reflector.Options {
	rate := uint32(t.Limits.Broadcasts)
	if rate == 0 {
		rate = uint32(time.Second) // one a nanosecond: no limit
	}
	return reflector.Options{
		Name: segmentTAP(p.id()), Mode: reflector.Mode(p.mode), Limit: reflector.Limit{Rate: rate, Burst: max(1, rate/10)},
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
		if err := errors.Join(p.loop.RestoreOffloads(), p.loop.Announce(p.membership()), s.end(p)); err != nil {
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
