package api

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/shares"
	"unnest.io/unnest/internal/netdev/share"
)

// AttachVolume implements hostdpb.HostDaemonServer.
func (h *Handler) AttachVolume(ctx context.Context, r *hostdpb.AttachVolumeRequest) (*hostdpb.AttachVolumeResponse, error) {
	s, err := h.attachShare(ctx, shares.Request{ID: share.ID{Kind: share.Volume, Pod: r.GetPod(), Name: r.GetName()}, Ephemeral: r.GetEphemeral()}, r.GetKey())
	return &hostdpb.AttachVolumeResponse{Volume: wireVolume(s)}, err
}

// AttachSharedMemory implements hostdpb.HostDaemonServer.
func (h *Handler) AttachSharedMemory(ctx context.Context, r *hostdpb.AttachSharedMemoryRequest) (*hostdpb.AttachSharedMemoryResponse, error) {
	s, err := h.attachShare(ctx, shares.Request{ID: share.ID{Kind: share.Memory, Pod: r.GetPod(), Name: r.GetName()}, Size: r.GetSize()}, r.GetKey())
	m := &hostdpb.SharedMemory{Pod: s.ID.Pod, Name: s.ID.Name, Size: uint64(s.Memory), Port: s.Place}
	return &hostdpb.AttachSharedMemoryResponse{Memory: m}, err
}

// DetachVolume implements hostdpb.HostDaemonServer.
func (h *Handler) DetachVolume(ctx context.Context, r *hostdpb.DetachVolumeRequest) (*hostdpb.DetachVolumeResponse, error) {
	return &hostdpb.DetachVolumeResponse{}, h.detachShare(ctx, share.ID{Kind: share.Volume, Pod: r.GetPod(), Name: r.GetName()})
}

// DetachSharedMemory implements hostdpb.HostDaemonServer.
func (h *Handler) DetachSharedMemory(ctx context.Context, r *hostdpb.DetachSharedMemoryRequest) (*hostdpb.DetachSharedMemoryResponse, error) {
	return &hostdpb.DetachSharedMemoryResponse{}, h.detachShare(ctx, share.ID{Kind: share.Memory, Pod: r.GetPod(), Name: r.GetName()})
}

// CollectVolumes implements hostdpb.HostDaemonServer.
func (h *Handler) CollectVolumes(ctx context.Context, r *hostdpb.CollectVolumesRequest) (*hostdpb.CollectVolumesResponse, error) {
	all, err := onGuest(ctx, h, func(g *guestrun.Guest) ([]shares.Shared, error) { return g.EphemeralVolumes(ctx) })
	answer := &hostdpb.CollectVolumesResponse{}
	for _, s := range all {
		switch {
		case slices.ContainsFunc(r.GetKeep(), func(v *hostdpb.Volume) bool { return v.GetPod() == s.ID.Pod && v.GetName() == s.ID.Name }):
		case r.GetList():
			answer.Left = append(answer.Left, wireVolume(s))
		default:
			err = errors.Join(err, h.detachShare(ctx, s.ID))
		}
	}
	return answer, err
}

// attachShare gives the guest that calls a volume or shared memory of a pod, for the
// pod's key. If the pod has a segment, the key is the segment's.
func (h *Handler) attachShare(ctx context.Context, q shares.Request, key string) (s shares.Shared, err error) {
	begin, c, id := time.Now(), caller(ctx), q.ID
	if err := id.Validate(); err != nil {
		return s, err
	}
	if err := checkPodKey(id.Pod, key); err != nil {
		return s, err
	}
	if err := h.Host.Segments.CheckPodKey(c.Tenant.Name, id.Pod, key); err != nil {
		return s, err
	}
	q.Key = share.Digest(segments.Digest(c.Tenant.Name, id.Pod, key))
	s, err = onGuest(ctx, h, func(g *guestrun.Guest) (shares.Shared, error) { return g.AttachShare(ctx, q) })
	h.logShare(ctx, "attach "+string(id.Kind), c.Record, id, begin, err)
	return s, err
}

func (h *Handler) detachShare(ctx context.Context, id share.ID) error {
	begin := time.Now()
	if err := id.Validate(); err != nil {
		return err
	}
	_, err := onGuest(ctx, h, func(g *guestrun.Guest) (struct{}, error) { return g.DetachShare(ctx, id) })
	h.logShare(ctx, "detach "+string(id.Kind), caller(ctx).Record, id, begin, err)
	return err
}

func (h *Handler) logShare(ctx context.Context, what string, r record.Guest, id share.ID, begin time.Time, err error) {
	h.logCall(ctx, what, r.Name, err, slog.String("pod", id.Pod), slog.String("name", id.Name),
		slog.Duration("total", time.Since(begin)))
}

func wireVolume(s shares.Shared) *hostdpb.Volume {
	v := &hostdpb.Volume{Pod: s.ID.Pod, Name: s.ID.Name, Tag: s.Tag, Path: s.Path, Port: s.Place}
	v.Transport = hostdpb.VolumeTransport_VOLUME_TRANSPORT_VIRTIOFS
	if s.Port == 0 {
		v.Transport = hostdpb.VolumeTransport_VOLUME_TRANSPORT_9P
	}
	return v
}
