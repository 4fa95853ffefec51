package segments

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/status"
)

// Status describes all segments, ordered by tenant and pod.
func (r *Registry) Status() (all []status.Segment) {
	for _, p := range r.all("") {
		_ = r.during(p.tenant, func() error {
			if !p.dead {
				all = append(all, p.status())
			}
			return nil
		})
	}
	slices.SortFunc(all, func(a, b status.Segment) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Pod, b.Pod))
	})
	return all
}

func (p *podSegment) status() status.Segment {
	s := status.Segment{
		Tenant: p.tenant, Pod: p.pod, TAP: tapName(p.id()), Mode: p.mode, Network: p.network, Generation: p.generation,
		Members: p.members, Counts: map[segment.Fraction]status.Frames{},
	}
	for f, e := range p.endpoints {
		s.Fractions = append(s.Fractions, status.Fraction{Fraction: f, Guest: e.guest, Member: p.members.Has(f), Silent: p.silent.Has(f)})
	}
	slices.SortFunc(s.Fractions, func(a, b status.Fraction) int { return cmp.Compare(a.Fraction, b.Fraction) })
	counters, _ := p.loop.Counters() // a closed segment has none
	for f, c := range counters {
		s.Counts[f] = status.Frames(c)
	}
	return s
}

// Find describes a pod's segment to a guest of its tenant that has an endpoint in it,
// or that shows its key.
func (r *Registry) Find(tenant, pod, key, guest string) (found status.Segment, err error) {
	err = r.during(tenant, func() error {
		p, l, left := r.segment(segmentID(tenant, pod))
		if left {
			return cmp.Or(l.match(Spec{Pod: pod, Key: key, Network: l.network}), ErrLeft)
		}
		if p == nil {
			return ErrNoSegment
		}
		member := false
		for _, e := range p.endpoints {
			member = member || e.guest == guest
		}
		if key != "" || !member {
			if err := p.match(Spec{Pod: pod, Key: key, Network: p.network}); err != nil {
				return err
			}
		}
		found = p.status()
		return nil
	})
	return found, err
}

// CheckPodKey returns an error, which wraps ErrKey, when the pod has a segment with
// another key.
func (r *Registry) CheckPodKey(tenant, pod, key string) error {
	if _, err := r.Find(tenant, pod, key, ""); !errors.Is(err, ErrNoSegment) && !errors.Is(err, ErrLeft) {
		return err
	}
	return nil
}

// Membership returns the mode of the segment of the endpoint at a port, and the members that have been announced, with the endpoint.
func (r *Registry) Membership(port string) (mode string, m segment.Membership) {
	_ = r.with(r.at(port), func(e *endpoint) error {
		if e != nil {
			mode, m = e.segment.mode, e.segment.announcement()
			m.Members, m.Silent = m.Members.With(e.fraction), 0
		}
		return nil
	})
	return mode, m
}

// Check returns an error when an attachment's endpoint is not complete. If it is, the
// segment's members are announced at once, now with the endpoint: one that was moved into its
// pod a moment ago has missed the earlier announcements.
func (r *Registry) Check(guest string, key attachment.Key) error {
	return r.with(r.held(owner{guest, key}), func(e *endpoint) error {
		switch {
		case e == nil || e.port == "":
			return errors.New("it has no queue")
		case e.segment.gone():
			return errors.New("the segment's TAP has been deleted")
		case !e.segment.members.Has(e.fraction):
			return errors.New("it is not a member of its segment")
		case !e.segment.loop.Members().Has(e.fraction):
			return errors.New("its queue has been closed")
		case !e.joining.IsZero():
			e.joining = time.Time{}
			r.announce(e.segment)
			return nil
		default:
			return e.segment.loop.Announce(e.segment.announcement())
		}
	})
}
