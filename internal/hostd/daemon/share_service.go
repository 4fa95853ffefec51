package daemon

import (
	"context"
	"log/slog"
	"time"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/segments"
	"unnest/internal/hostd/shares"
	"unnest/internal/netdev/share"
)

// AttachVolume implements hostdpb.HostDaemonServer.
func (d *daemon) AttachVolume(ctx context.Context, r *hostdpb.AttachVolumeRequest) (*hostdpb.AttachVolumeResponse, error) {
	s, err := d.attachShare(ctx, share.ID{Kind: share.Volume, Pod: r.GetPod(), Name: r.GetName()}, r.GetKey(), 0)
	return &hostdpb.AttachVolumeResponse{Volume: wireVolume(s)}, err
}

// AttachSharedMemory implements hostdpb.HostDaemonServer.
func (d *daemon) AttachSharedMemory(ctx context.Context, r *hostdpb.AttachSharedMemoryRequest) (*hostdpb.AttachSharedMemoryResponse, error) {
	s, err := d.attachShare(ctx, share.ID{Kind: share.Memory, Pod: r.GetPod(), Name: r.GetName()}, r.GetKey(), r.GetSize())
	m := &hostdpb.SharedMemory{Pod: s.ID.Pod, Name: s.ID.Name, Size: uint64(s.Memory), Port: s.Place}
	return &hostdpb.AttachSharedMemoryResponse{Memory: m}, err
}

// DetachVolume implements hostdpb.HostDaemonServer.
func (d *daemon) DetachVolume(ctx context.Context, r *hostdpb.DetachVolumeRequest) (*hostdpb.DetachVolumeResponse, error) {
	return &hostdpb.DetachVolumeResponse{}, d.detachShare(ctx, share.ID{Kind: share.Volume, Pod: r.GetPod(), Name: r.GetName()})
}

// DetachSharedMemory implements hostdpb.HostDaemonServer.
func (d *daemon) DetachSharedMemory(ctx context.Context, r *hostdpb.DetachSharedMemoryRequest) (*hostdpb.DetachSharedMemoryResponse, error) {
	return &hostdpb.DetachSharedMemoryResponse{}, d.detachShare(ctx, share.ID{Kind: share.Memory, Pod: r.GetPod(), Name: r.GetName()})
}

// attachShare gives the guest that calls a volume or shared memory of a pod, for the
// pod's key. If the pod has a segment, the key is the segment's.
func (d *daemon) attachShare(ctx context.Context, id share.ID, key string, size uint64) (s shares.Shared, err error) {
	begin, c := time.Now(), caller(ctx)
	if err := id.Validate(); err != nil {
		return s, err
	}
	if err := checkPodKey(id.Pod, key); err != nil {
		return s, err
	}
	if err := d.host.segments.CheckPodKey(c.tenant.Name, id.Pod, key); err != nil {
		return s, err
	}
	digest := share.Digest(segments.Digest(c.tenant.Name, id.Pod, key))
	s, err = onGuest(ctx, d, func(ctx context.Context, g *guest, answer func(shares.Shared, error)) {
		g.shares.attach(ctx, id, digest, size, answer)
	})
	d.logShare(ctx, "attach "+string(id.Kind), c.record, id, begin, err)
	return s, err
}

func (d *daemon) detachShare(ctx context.Context, id share.ID) error {
	begin := time.Now()
	if err := id.Validate(); err != nil {
		return err
	}
	_, err := onGuest(ctx, d, func(ctx context.Context, g *guest, answer func(struct{}, error)) {
		g.shares.detach(ctx, id, answer)
	})
	d.logShare(ctx, "detach "+string(id.Kind), caller(ctx).record, id, begin, err)
	return err
}

func (d *daemon) logShare(ctx context.Context, what string, r GuestRecord, id share.ID, begin time.Time, err error) {
	d.log(ctx, what, r.Name, err, slog.String("pod", id.Pod), slog.String("name", id.Name),
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
