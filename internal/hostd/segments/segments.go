// Package segments holds the Hostlo segments of one host and their endpoints (Bacou et
// al. 2019, §4): which pods have a segment, which guests have joined it, and what
// the segment's TAP records about that for the next daemon.
//
// An endpoint goes through Reserve, Open, Connect, Disconnect and Close. It has a
// fraction of the segment from Reserve until nothing of it is left.
//
// Which slot an endpoint's NIC is plugged into belongs to package hotplug, passing
// frames on to package reflector, and the limits of a tenant to package quota.
package segments

import (
	"cmp"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/netdev/reflector"
)

// AnnounceInterval is how often the daemon has to call Tick: each segment's members
// are told their membership again, because a NIC that was down has missed it.
const AnnounceInterval = 2 * time.Second

// joinTime is how long a member may take until the others are told of it.
const joinTime = 10 * time.Second

// silentTime is how long a member may answer no announcement until the others stop waiting for
// its refusals.
const silentTime = 5 * time.Second

// emptyTime is how long a segment made by Create waits for its first endpoint.
const emptyTime = time.Minute

// Reasons to refuse a request, to be told apart with errors.Is.
var (
	ErrKey       = errors.New("the key is not that of the segment: use the key that the pod's other guests have")
	ErrDiffers   = errors.New("the segment exists with different settings")
	ErrElsewhere = errors.New("the attachment has an endpoint of another segment: leave that first")
	ErrTwice     = errors.New("the guest still has an endpoint in the segment: a pod has one fraction on a guest")
	ErrNoSegment = errors.New("no such segment")
	ErrLeft      = errors.New("the host daemon could not take over the pod's segment after its restart: its log has the cause")
)

// Registry holds the segments of the host. Its methods may be called from several
// goroutines.
type Registry struct {
	log    *slog.Logger
	create func(reflector.Options) (loopback, error)

	mu        sync.Mutex             // of the maps
	tenants   map[string]*sync.Mutex // of what the maps' values have, by tenant
	segments  map[string]*podSegment // by id
	endpoints map[owner]*endpoint    // by attachment
	ports     map[string]*endpoint   // by the name of the slot's port, once there is a queue
	left      map[string]leftSegment // by id
}

// owner is an attachment of one guest.
type owner struct {
	guest string
	key   attachment.Key
}

type podSegment struct {
	label
	loop      loopback
	endpoints map[segment.Fraction]*endpoint
	// members are the fractions whose endpoint is connected.
	members segment.Set
	silent  segment.Set // of the members: the others do not wait for them
	created time.Time   // by Create; zero once there was an endpoint
	dead    bool        // its TAP is deleted
}

// gone reports whether the TAP is deleted, also by another program.
func (p *podSegment) gone() bool { return p.dead || p.loop.gone() }

// leftSegment is a segment of an earlier daemon that is left alone, and why.
type leftSegment struct {
	label
	why string
}

// New returns a registry without segments.
func New(log *slog.Logger) *Registry {
	return &Registry{
		log: log, create: createLoopback,
		tenants: map[string]*sync.Mutex{}, segments: map[string]*podSegment{}, endpoints: map[owner]*endpoint{}, ports: map[string]*endpoint{},
	}
}

// Spec is the segment that a request asks for. An empty mode matches any.
type Spec struct{ Pod, Key, Mode, Network string }

// enter returns the segment of the spec, and creates it if there is none.
func (r *Registry) enter(t quota.Tenant, s Spec) (*podSegment, error) {
	id := segmentID(t.Name, s.Pod)
	p, l, left := r.segment(id)
	if p != nil {
		return p, p.match(s)
	}
	if left {
		return nil, cmp.Or(l.match(s), fmt.Errorf("segment %s: %w", s.Pod, ErrLeft))
	}
	if err := t.AdmitSegment(r.Count(t.Name)); err != nil {
		return nil, err
	}
	mode, err := t.SegmentModeFor(s.Mode)
	if err != nil {
		return nil, err
	}
	p = &podSegment{
		label:     label{tenant: t.Name, pod: s.Pod, network: s.Network, mode: mode, digest: Digest(t.Name, s.Pod, s.Key)},
		endpoints: map[segment.Fraction]*endpoint{},
	}
	if p.loop, err = r.create(loopbackOptions(t, p.label)); err != nil {
		return nil, err
	}
	if err := p.loop.setAlias(p.alias()); err != nil {
		return nil, errors.Join(err, p.loop.Delete())
	}
	r.put(p)
	r.log.Info("create segment", "tenant", p.tenant, "pod", p.pod, "mode", p.mode, "network", p.network, "tap", tapName(id))
	return p, nil
}

// loopbackOptions returns the options of a tenant's segment. The burst is what the rate
// allows in a second: a program may connect to thousands of ports at once.
func loopbackOptions(t quota.Tenant, l label) reflector.Options {
	rate := cmp.Or(uint32(t.Limits.Broadcasts), uint32(time.Second)) // one per nanosecond: no limit
	return reflector.Options{
		Name: tapName(l.id()), Mode: reflector.Mode(l.mode), Limit: reflector.Limit{Rate: rate, Burst: rate},
	}
}

// match returns an error unless the segment is as the spec says. It compares the key
// first: without the key a guest learns nothing about the segment.
func (l label) match(s Spec) error {
	digest := Digest(l.tenant, l.pod, s.Key)
	switch {
	case subtle.ConstantTimeCompare(digest[:], l.digest[:]) != 1:
		return fmt.Errorf("segment %s: %w", s.Pod, ErrKey)
	case s.Mode != "" && s.Mode != l.mode:
		return fmt.Errorf("%w: %s has mode %s, not %s", ErrDiffers, s.Pod, l.mode, s.Mode)
	case s.Network != l.network:
		return fmt.Errorf("%w: %s is of network %q, not %q", ErrDiffers, s.Pod, l.network, s.Network)
	}
	return nil
}

// Count returns how many segments a tenant has.
func (r *Registry) Count(tenant string) int { return len(r.all(tenant)) }

// Create makes a segment without endpoints, unless it exists. If no endpoint joins
// it within a minute, it is destroyed.
func (r *Registry) Create(t quota.Tenant, s Spec) (made status.Segment, err error) {
	err = r.during(t.Name, func() error {
		p, err := r.enter(t, s)
		if err != nil {
			return err
		}
		if len(p.endpoints) == 0 {
			p.created = time.Now()
		}
		made = p.status()
		return nil
	})
	return made, err
}

// setMembers announces the members of a segment, if they have changed.
func (r *Registry) setMembers(p *podSegment, members segment.Set) {
	if members != p.members && !p.dead {
		p.members = members
		r.announce(p)
	}
}

// announce tells the members about each other in a new generation. It records the
// generation first, because the next daemon has to continue with a later one.
func (r *Registry) announce(p *podSegment) {
	p.generation++
	err := p.loop.setAlias(p.alias())
	if err = errors.Join(err, p.loop.Announce(p.announcement())); err != nil {
		r.log.Warn("announce members", "tenant", p.tenant, "pod", p.pod, "error", err)
	}
	r.log.Info("members of segment", "tenant", p.tenant, "pod", p.pod, "members", p.announcement().Members, "generation", p.generation)
}

// announcement is the membership without the members of which the others do not know yet.
func (p *podSegment) announcement() segment.Membership {
	m := segment.Membership{Generation: p.generation, Members: p.members, Silent: p.silent & p.members}
	for f, e := range p.endpoints {
		if !e.joining.IsZero() {
			m.Members = m.Members.Without(f)
		}
	}
	return m
}

// endIfEmpty destroys a segment that has no endpoints.
func (r *Registry) endIfEmpty(p *podSegment) error {
	if len(p.endpoints) > 0 || p.dead || time.Since(p.created) < emptyTime {
		return nil
	}
	return r.destroy(p)
}

func (r *Registry) destroy(p *podSegment) error {
	p.dead = true
	r.drop(p)
	r.log.Info("destroy segment", "tenant", p.tenant, "pod", p.pod)
	return p.loop.Delete()
}

// Tick announces all members of a tenant's segments again and destroys empty segments. It
// returns the guests of segments whose TAP somebody else has deleted: their endpoints are
// lost. It does nothing while another call changes the tenant's segments.
func (r *Registry) Tick(tenant string) (affected []string) {
	r.unlessBusy(tenant, func() {
		for _, p := range r.all(tenant) {
			affected = append(affected, r.tick(p)...)
		}
	})
	return affected
}

func (r *Registry) tick(p *podSegment) (affected []string) {
	if !p.loop.gone() {
		for _, e := range p.endpoints {
			if !e.joining.IsZero() && time.Since(e.joining) > joinTime {
				e.joining = time.Time{}
				r.announce(p)
			}
		}
		err := r.listen(p)
		if err := errors.Join(err, p.loop.RestoreOffloads(), p.loop.Announce(p.announcement()), r.endIfEmpty(p)); err != nil {
			r.log.Warn("announce members", "tenant", p.tenant, "pod", p.pod, "error", err)
		}
		return nil
	}
	r.log.Warn("segment is lost: its TAP has been deleted", "tenant", p.tenant, "pod", p.pod)
	for _, e := range p.endpoints {
		affected = append(affected, e.guest)
	}
	if err := r.destroy(p); err != nil {
		r.log.Warn("destroy segment", "tenant", p.tenant, "pod", p.pod, "error", err)
	}
	return affected
}

// listen finds the members that have become silent, and those that answer again.
func (r *Registry) listen(p *podSegment) error {
	silent, err := p.loop.Silent(silentTime)
	if err != nil {
		return err
	}
	silent &= p.members
	for f := range (silent ^ p.silent).All() {
		guest := ""
		if e := p.endpoints[f]; e != nil {
			guest = e.guest
		}
		if silent.Has(f) {
			r.log.Warn("member of segment does not answer: the others refuse ports without a server without it",
				"tenant", p.tenant, "pod", p.pod, "fraction", f, "guest", guest, "for", silentTime)
		} else if p.members.Has(f) {
			r.log.Info("member of segment answers again", "tenant", p.tenant, "pod", p.pod, "fraction", f, "guest", guest)
		}
	}
	p.silent = silent
	return nil
}

// Close leaves all segments to the next daemon. A segment of which no VMM has a queue
// ends.
func (r *Registry) Close() (err error) {
	for _, p := range r.all("") {
		err = errors.Join(err, r.during(p.tenant, func() error {
			r.drop(p)
			return p.loop.Close()
		}))
	}
	return err
}
