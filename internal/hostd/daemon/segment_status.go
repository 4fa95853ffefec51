package daemon

import (
	"cmp"
	"errors"
	"slices"

	"unnest/internal/hostapi/segment"
)

// SegmentStatus is one segment.
type SegmentStatus struct {
	Tenant     string           `json:"tenant"`
	Pod        string           `json:"pod"`
	TAP        string           `json:"tap"`
	Mode       string           `json:"mode"`
	Network    string           `json:"network,omitempty"`
	Generation uint32           `json:"generation"`
	Fractions  []FractionStatus `json:"fractions"`
	// Counts are by the number of the frames' sender, 0 of those that were nobody's.
	// They begin anew with the daemon.
	Counts map[segment.Fraction]FrameCounts `json:"counts"`

	members segment.Set
}

// FractionStatus is one endpoint of a segment.
type FractionStatus struct {
	Fraction segment.Fraction `json:"fraction"`
	Guest    string           `json:"guest"`
	Member   bool             `json:"member"` // else it is on its way in or out
}

// FrameCounts say what became of frames; see hostlo.Counters.
type FrameCounts struct {
	Frames    uint64 `json:"frames"` // that were passed on
	Bytes     uint64 `json:"bytes"`
	Broadcast uint64 `json:"broadcast"` // of the frames
	Spoofed   uint64 `json:"spoofed"`   // from here on: dropped
	Limited   uint64 `json:"limited"`
	Oversize  uint64 `json:"oversize"`
	Unknown   uint64 `json:"unknown"`
}

// Dropped is how many frames were not passed on.
func (c FrameCounts) Dropped() uint64 { return c.Spoofed + c.Limited + c.Oversize + c.Unknown }

// status describes all segments.
func (s *segments) status() (all []SegmentStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		all = append(all, p.status())
	}
	slices.SortFunc(all, func(a, b SegmentStatus) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Pod, b.Pod))
	})
	return all
}

func (p *podSegment) status() SegmentStatus {
	s := SegmentStatus{
		Tenant: p.tenant, Pod: p.pod, TAP: segmentTAP(p.id()), Mode: p.mode, Network: p.network, Generation: p.generation,
		members: p.members, Counts: map[segment.Fraction]FrameCounts{},
	}
	for f, st := range p.seats {
		s.Fractions = append(s.Fractions, FractionStatus{Fraction: f, Guest: st.guest, Member: p.members.Has(f)})
	}
	slices.SortFunc(s.Fractions, func(a, b FractionStatus) int { return cmp.Compare(a.Fraction, b.Fraction) })
	counters, _ := p.loop.Counters() // of one that is closed there are none
	for f, c := range counters {
		s.Counts[f] = FrameCounts(c)
	}
	return s
}

// find describes a pod's segment to a guest of its tenant, which has an endpoint in
// it or shows its key.
func (s *segments) find(tenant, pod, key, guest string) (SegmentStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[segmentID(tenant, pod)]
	if p == nil {
		return SegmentStatus{}, errNoSegment
	}
	for _, st := range p.seats {
		if key == "" && st.guest == guest {
			return p.status(), nil
		}
	}
	if err := p.fits(wanted{pod: pod, key: key, network: p.network}); err != nil {
		return SegmentStatus{}, err
	}
	return p.status(), nil
}

// membership is the segment's of an endpoint, with its mode.
func (s *segments) membership(port string) (mode string, m segment.Membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.ports[port]; st != nil {
		return st.segment.mode, st.segment.membership()
	}
	return "", segment.Membership{}
}

// check returns an error when an attachment's endpoint is not whole. If it is, the
// segment's members are told at once who they are: what they were told before the
// endpoint was in its pod, nobody there has heard.
func (s *segments) check(owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch st := s.seats[owner]; {
	case st == nil || st.port == "":
		return errors.New("it has no queue")
	case st.segment.dead || st.segment.loop.gone():
		return errors.New("the segment's TAP has been deleted")
	case !st.segment.members.Has(st.fraction):
		return errors.New("it is no member of its segment")
	case !st.segment.loop.Members().Has(st.fraction):
		return errors.New("its queue has been closed")
	default:
		return st.segment.loop.Announce(st.segment.membership())
	}
}

// Total adds up what was counted of all fractions.
func (s SegmentStatus) Total() (all FrameCounts) {
	for _, c := range s.Counts {
		all.Frames += c.Frames
		all.Bytes += c.Bytes
		all.Broadcast += c.Broadcast
		all.Spoofed += c.Spoofed
		all.Limited += c.Limited
		all.Oversize += c.Oversize
		all.Unknown += c.Unknown
	}
	return all
}
