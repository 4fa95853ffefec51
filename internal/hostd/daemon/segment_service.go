package daemon

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/policy"
)

// CreateSegment implements hostdpb.HostDaemonServer.
func (d *daemon) CreateSegment(ctx context.Context, r *hostdpb.CreateSegmentRequest) (*hostdpb.CreateSegmentResponse, error) {
	c := caller(ctx)
	made := ""
	spec := r.GetSegment()
	if spec != nil && spec.GetKey() == "" {
		made = newKey()
		spec.Key = made
	}
	w, err := wantedSegment(spec)
	if err != nil {
		return nil, coded(err)
	}
	s, err := d.host.segments.make(c.tenant.Tenant, w)
	if err != nil {
		return nil, coded(err)
	}
	return &hostdpb.CreateSegmentResponse{Segment: wireSegment(s, c), Key: made}, nil
}

// newKey is one that nobody guesses.
func newKey() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// JoinSegment implements hostdpb.HostDaemonServer.
func (d *daemon) JoinSegment(ctx context.Context, r *hostdpb.JoinSegmentRequest) (_ *hostdpb.JoinSegmentResponse, err error) {
	begin, c := time.Now(), caller(ctx)
	key, err := attachmentKey(r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	w, err := wantedSegment(r.GetSegment())
	if err == nil {
		err = checkTicket(key, w)
	}
	if err != nil {
		return nil, coded(err)
	}
	g, err := d.called(ctx, c)
	if err != nil {
		return nil, coded(err)
	}
	e, done, err := g.join(ctx, endpointKey(key), w)
	d.metrics.joined(begin, err)
	d.log(ctx, "join segment", c.record, key, begin, err, append(done.steps, slog.String("pod", w.pod),
		slog.Int("fraction", int(e.GetFraction())), slog.String("mac", e.GetMac()), slog.Int("slot", int(e.GetSlot())))...)
	if err != nil {
		return nil, coded(err)
	}
	return &hostdpb.JoinSegmentResponse{Endpoint: e}, nil
}

// LeaveSegment implements hostdpb.HostDaemonServer.
func (d *daemon) LeaveSegment(ctx context.Context, r *hostdpb.LeaveSegmentRequest) (*hostdpb.LeaveSegmentResponse, error) {
	key, err := attachmentKey(r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	g, err := d.called(ctx, caller(ctx))
	if err == nil {
		err = d.detach(ctx, g, endpointKey(key))
	}
	if err != nil {
		return nil, coded(err)
	}
	return &hostdpb.LeaveSegmentResponse{}, nil
}

// SegmentStatus implements hostdpb.HostDaemonServer.
func (d *daemon) SegmentStatus(ctx context.Context, r *hostdpb.SegmentStatusRequest) (*hostdpb.SegmentStatusResponse, error) {
	c := caller(ctx)
	if err := podName(r.GetPod()); err != nil {
		return nil, err
	}
	s, err := d.host.segments.find(c.tenant.Name, r.GetPod(), r.GetKey(), c.record.Name)
	if err != nil {
		return nil, coded(err)
	}
	return &hostdpb.SegmentStatusResponse{Segment: wireSegment(s, c)}, nil
}

// The bounds of a segment's key in bytes: 16 random ones cannot be guessed.
const (
	minKey = 16
	maxKey = 128
)

// wantedSegment checks what a guest has sent.
func wantedSegment(spec *hostdpb.SegmentSpec) (w wanted, err error) {
	if err := podName(spec.GetPod()); err != nil {
		return w, err
	}
	if k := spec.GetKey(); len(k) < minKey || len(k) > maxKey || strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return w, status.Errorf(codes.InvalidArgument,
			"key of %d bytes: want %d to %d of printable ASCII without blanks, that nobody can guess", len(k), minKey, maxKey)
	}
	if spec.GetSpan() != hostdpb.SegmentSpan_SEGMENT_SPAN_HOST {
		_, err := policy.ParseSpan("hosts")
		return w, err
	}
	network, err := networkName(spec.GetNetwork())
	if err != nil {
		return w, err
	}
	mode, known := map[hostdpb.SegmentMode]string{
		hostdpb.SegmentMode_SEGMENT_MODE_UNSPECIFIED: "",
		hostdpb.SegmentMode_SEGMENT_MODE_UNICAST:     policy.SegmentUnicast,
		hostdpb.SegmentMode_SEGMENT_MODE_PLAIN:       policy.SegmentPlain,
	}[spec.GetMode()]
	if !known {
		return w, status.Errorf(codes.InvalidArgument, "segment mode %d: want unicast (1) or plain (2)", spec.GetMode())
	}
	return wanted{pod: spec.GetPod(), key: spec.GetKey(), mode: mode, network: network}, nil
}

// podName checks the name of a segment.
func podName(name string) error {
	if len(name) > maxNetwork || !containerID.MatchString(name) {
		return status.Errorf(codes.InvalidArgument,
			"pod %.80q: want 1 to %d of a-z, A-Z, 0-9, '_', '.' and '-', beginning with a letter or digit", name, maxNetwork)
	}
	return nil
}

func wireMode(mode string) hostdpb.SegmentMode {
	switch mode {
	case policy.SegmentUnicast:
		return hostdpb.SegmentMode_SEGMENT_MODE_UNICAST
	case policy.SegmentPlain:
		return hostdpb.SegmentMode_SEGMENT_MODE_PLAIN
	}
	return hostdpb.SegmentMode_SEGMENT_MODE_UNSPECIFIED
}

func wireModes(modes []string) (wire []hostdpb.SegmentMode) {
	for _, m := range modes {
		wire = append(wire, wireMode(m))
	}
	return wire
}

// wireSegment describes a segment to one of its tenant's guests.
func wireSegment(s SegmentStatus, c client) *hostdpb.Segment {
	w := &hostdpb.Segment{
		Pod: s.Pod, Mode: wireMode(s.Mode), Network: s.Network, Members: uint32(s.members), Generation: s.Generation,
	}
	for _, f := range s.Fractions {
		n := s.Counts[f.Fraction]
		w.Fractions = append(w.Fractions, &hostdpb.Fraction{
			Fraction: uint32(f.Fraction), Own: f.Guest == c.record.Name, Member: f.Member,
			Frames: n.Frames, Bytes: n.Bytes, Broadcasts: n.Broadcast, Dropped: n.Dropped(),
		})
	}
	return w
}

// segmentsLimited says why a segment would be refused now, "" when it would not.
func (d *daemon) segmentsLimited(t *tenant, g GuestStatus) string {
	if err := t.AdmitSegment(d.host.segments.countOf(t.Name)); err != nil {
		return err.Error()
	}
	_, owned := t.stats()
	if err := t.AdmitNIC(g.Attachments, owned); err != nil {
		return err.Error()
	}
	if g.SlotsFree+g.Pool == 0 { // a warm NIC makes room
		return fmt.Sprintf("no free NIC slot of %d (%d quarantined)", g.Slots, g.SlotsQuarantined)
	}
	return ""
}
