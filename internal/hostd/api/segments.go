package api

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/status"
)

// CreateSegment implements hostdpb.HostDaemonServer.
func (h *Handler) CreateSegment(ctx context.Context, r *hostdpb.CreateSegmentRequest) (*hostdpb.CreateSegmentResponse, error) {
	c := caller(ctx)
	made := ""
	spec := r.GetSegment()
	if spec != nil && spec.GetKey() == "" {
		made = newKey()
		spec.Key = made
	}
	wanted, err := segmentSpec(spec)
	if err != nil {
		return nil, err
	}
	s, err := h.Host.Segments.Create(c.Tenant.Now(), wanted)
	return &hostdpb.CreateSegmentResponse{Segment: wireSegment(s, c), Key: made}, err
}

// newKey returns a key that cannot be guessed.
func newKey() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// JoinSegment implements hostdpb.HostDaemonServer.
func (h *Handler) JoinSegment(ctx context.Context, r *hostdpb.JoinSegmentRequest) (*hostdpb.JoinSegmentResponse, error) {
	begin, c := time.Now(), caller(ctx)
	key, err := attachmentKey(attachment.Endpoint, r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	spec, err := segmentSpec(r.GetSegment())
	if err == nil {
		err = segments.CheckKey(key)
	}
	if err != nil {
		return nil, err
	}
	got, err := onGuest(ctx, h, func(g *guestrun.Guest) (guestrun.Attached, error) { return g.Join(ctx, key, spec) })
	e := got.Endpoint
	h.Host.Metrics.Attached("segment", begin, coded(err))
	h.logAttachment(ctx, "join segment", c.Record, key, begin, err, append(got.Steps, slog.String("pod", spec.Pod),
		slog.Int("fraction", int(e.GetFraction())), slog.String("mac", e.GetMac()), slog.Int("slot", int(e.GetSlot())))...)
	return &hostdpb.JoinSegmentResponse{Endpoint: e}, err
}

// LeaveSegment implements hostdpb.HostDaemonServer.
func (h *Handler) LeaveSegment(ctx context.Context, r *hostdpb.LeaveSegmentRequest) (*hostdpb.LeaveSegmentResponse, error) {
	key, err := attachmentKey(attachment.Endpoint, r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	return &hostdpb.LeaveSegmentResponse{}, h.detach(ctx, key, r.GetMac())
}

// SegmentStatus implements hostdpb.HostDaemonServer.
func (h *Handler) SegmentStatus(ctx context.Context, r *hostdpb.SegmentStatusRequest) (*hostdpb.SegmentStatusResponse, error) {
	c := caller(ctx)
	if err := checkPod(r.GetPod()); err != nil {
		return nil, err
	}
	s, err := h.Host.Segments.Find(c.Tenant.Name, r.GetPod(), r.GetKey(), c.Record.Name)
	return &hostdpb.SegmentStatusResponse{Segment: wireSegment(s, c)}, err
}

// segmentSpec checks what a guest has sent.
func segmentSpec(spec *hostdpb.SegmentSpec) (s segments.Spec, err error) {
	if err := checkPodKey(spec.GetPod(), spec.GetKey()); err != nil {
		return s, err
	}
	if spec.GetSpan() != hostdpb.SegmentSpan_SEGMENT_SPAN_HOST {
		_, err := quota.ParseSpan("hosts")
		return s, err
	}
	network, err := networkName(spec.GetNetwork())
	if err != nil {
		return s, err
	}
	mode, known := map[hostdpb.SegmentMode]string{
		hostdpb.SegmentMode_SEGMENT_MODE_UNSPECIFIED: "",
		hostdpb.SegmentMode_SEGMENT_MODE_UNICAST:     quota.SegmentUnicast,
		hostdpb.SegmentMode_SEGMENT_MODE_PLAIN:       quota.SegmentPlain,
	}[spec.GetMode()]
	if !known {
		return s, grpcstatus.Errorf(codes.InvalidArgument, "segment mode %d: want unicast (1) or plain (2)", spec.GetMode())
	}
	return segments.Spec{Pod: spec.GetPod(), Key: spec.GetKey(), Mode: mode, Network: network}, nil
}

// The bounds of a pod's key in bytes: 16 random bytes cannot be guessed.
const (
	minKey = 16
	maxKey = 128
)

func checkPodKey(pod, key string) error {
	if err := checkPod(pod); err != nil {
		return err
	}
	invalid := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(key) < minKey || len(key) > maxKey || strings.ContainsFunc(key, invalid) {
		return grpcstatus.Errorf(codes.InvalidArgument,
			"key of %d bytes: want %d to %d of printable ASCII without blanks, that nobody can guess", len(key), minKey, maxKey)
	}
	return nil
}

func checkPod(name string) error {
	if len(name) > maxNetwork || !containerID.MatchString(name) {
		return grpcstatus.Errorf(codes.InvalidArgument,
			"pod %.80q: want 1 to %d of a-z, A-Z, 0-9, '_', '.' and '-', beginning with a letter or digit", name, maxNetwork)
	}
	return nil
}

func wireModes(modes []string) (wire []hostdpb.SegmentMode) {
	for _, m := range modes {
		wire = append(wire, guestrun.WireMode(m))
	}
	return wire
}

// wireSegment describes a segment to one of its tenant's guests.
func wireSegment(s status.Segment, c Client) *hostdpb.Segment {
	w := &hostdpb.Segment{
		Pod: s.Pod, Mode: guestrun.WireMode(s.Mode), Network: s.Network, Members: uint32(s.Members), Generation: s.Generation,
	}
	for _, f := range s.Fractions {
		n := s.Counts[f.Fraction]
		w.Fractions = append(w.Fractions, &hostdpb.Fraction{
			Fraction: uint32(f.Fraction), Own: f.Guest == c.Record.Name, Member: f.Member,
			Frames: n.Frames, Bytes: n.Bytes, Broadcasts: n.Broadcast, Dropped: n.Dropped(),
		})
	}
	return w
}
