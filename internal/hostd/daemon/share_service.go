package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/share"
)

// AttachVolume implements hostdpb.HostDaemonServer.
func (d *daemon) AttachVolume(ctx context.Context, r *hostdpb.AttachVolumeRequest) (*hostdpb.AttachVolumeResponse, error) {
	id := share.ID{Kind: share.Volume, Pod: r.GetPod(), Name: r.GetName()}
	has, err := d.share(ctx, id, r.GetKey(), func(ctx context.Context, g *guest, key share.Digest) (*shared, time.Duration, error) {
		root, err := g.tenant.VolumesIn()
		if err != nil {
			return nil, 0, err
		}
		dir, err := share.OpenVolume(root, id, key)
		if err != nil {
			return nil, 0, err
		}
		if err := g.host.shares.takeVolume(g.tenant.Tenant, g.record.Name, id); err != nil {
			return nil, 0, err
		}
		return g.attachVolume(ctx, id, dir)
	})
	if err != nil {
		return nil, codedShare(err)
	}
	return &hostdpb.AttachVolumeResponse{Volume: wireVolume(has)}, nil
}

// AttachSharedMemory implements hostdpb.HostDaemonServer.
func (d *daemon) AttachSharedMemory(ctx context.Context, r *hostdpb.AttachSharedMemoryRequest) (*hostdpb.AttachSharedMemoryResponse, error) {
	id := share.ID{Kind: share.Memory, Pod: r.GetPod(), Name: r.GetName()}
	has, err := d.share(ctx, id, r.GetKey(), func(ctx context.Context, g *guest, key share.Digest) (*shared, time.Duration, error) {
		region, err := g.host.shares.takeRegion(g.tenant.Tenant, g.record.Name, id, key, r.GetSize())
		if err != nil {
			return nil, 0, err
		}
		return g.attachMemory(ctx, id, region)
	})
	if err != nil {
		return nil, codedShare(err)
	}
	return &hostdpb.AttachSharedMemoryResponse{Memory: wireMemory(has)}, nil
}

// DetachVolume implements hostdpb.HostDaemonServer.
func (d *daemon) DetachVolume(ctx context.Context, r *hostdpb.DetachVolumeRequest) (*hostdpb.DetachVolumeResponse, error) {
	if err := d.unshare(ctx, share.ID{Kind: share.Volume, Pod: r.GetPod(), Name: r.GetName()}); err != nil {
		return nil, codedShare(err)
	}
	return &hostdpb.DetachVolumeResponse{}, nil
}

// DetachSharedMemory implements hostdpb.HostDaemonServer.
func (d *daemon) DetachSharedMemory(ctx context.Context, r *hostdpb.DetachSharedMemoryRequest) (*hostdpb.DetachSharedMemoryResponse, error) {
	if err := d.unshare(ctx, share.ID{Kind: share.Memory, Pod: r.GetPod(), Name: r.GetName()}); err != nil {
		return nil, codedShare(err)
	}
	return &hostdpb.DetachSharedMemoryResponse{}, nil
}

// share gives the guest that calls something of a pod, of which it shows the key, by
// what attach does in the guest's run. What fails leaves it as it was.
func (d *daemon) share(ctx context.Context, id share.ID, key string,
	attach func(context.Context, *guest, share.Digest) (*shared, time.Duration, error),
) (has *shared, err error) {
	begin, c := time.Now(), caller(ctx)
	if err := id.Validate(); err != nil {
		return nil, err
	}
	if _, err := wantedSegment(&hostdpb.SegmentSpec{Pod: id.Pod, Key: key}); err != nil { // the rules are the same
		return nil, err
	}
	if err := d.host.segments.admits(c.tenant.Name, id.Pod, key); err != nil {
		return nil, err
	}
	g, err := d.called(ctx, c)
	if err != nil {
		return nil, err
	}
	digest := share.Digest(keyDigest(segmentID(c.tenant.Name, id.Pod), key))
	type answer struct {
		has   *shared
		pause time.Duration
		err   error
	}
	for {
		answered := make(chan answer, 1)
		err = g.submit(ctx, func(ctx context.Context) {
			has, pause, err := attach(ctx, g, digest)
			if err != nil {
				g.takeBack(id)
			}
			answered <- answer{has, pause, err}
		})
		if err != nil {
			break
		}
		a := <-answered // run answers, or it has ended the process
		if has, err = a.has, a.err; !errors.Is(err, share.ErrResting) || !wait(ctx, a.pause) {
			break
		}
	}
	d.logShare(ctx, "attach "+string(id.Kind), c.record, id, begin, err)
	return has, err
}

// takeBack ends the claim to something that the guest does not have.
func (g *guest) takeBack(id share.ID) {
	if has, err := g.findShared(id); has != nil || err != nil { // also if it is being detached
		return
	}
	if err := g.host.shares.release(g.record.Tenant, g.record.Name, id); err != nil {
		g.log.Warn("take back", "shared", id, "error", err)
	}
}

// unshare takes something away from the guest that calls.
func (d *daemon) unshare(ctx context.Context, id share.ID) error {
	begin, c := time.Now(), caller(ctx)
	if err := id.Validate(); err != nil {
		return err
	}
	g, err := d.called(ctx, c)
	if err != nil {
		return err
	}
	done := make(chan error, 1) // run does not wait for us
	if err := g.submit(ctx, func(ctx context.Context) { g.detachShare(ctx, id, done) }); err != nil {
		return err
	}
	select {
	case err = <-done:
	case <-g.done:
		err = g.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	d.logShare(ctx, "detach "+string(id.Kind), c.record, id, begin, err)
	return err
}

func (d *daemon) logShare(ctx context.Context, what string, r GuestRecord, id share.ID, begin time.Time, err error) {
	attrs := []slog.Attr{
		slog.String("guest", r.Name), slog.String("pod", id.Pod), slog.String("name", id.Name), slog.Duration("total", time.Since(begin)),
	}
	level := slog.LevelInfo
	if err != nil {
		level, attrs = slog.LevelError, append(attrs, slog.Any("error", err))
	}
	d.config.Logger.LogAttrs(context.WithoutCancel(ctx), level, what, attrs...)
}

// codedShare gives an error the code that the protocol's description promises.
func codedShare(err error) error {
	var code codes.Code
	switch {
	case errors.Is(err, share.ErrName), errors.Is(err, share.ErrSize):
		code = codes.InvalidArgument
	case errors.Is(err, share.ErrKey):
		code = codes.PermissionDenied
	case errors.Is(err, share.ErrNoPort):
		code = codes.ResourceExhausted
	case errors.Is(err, share.ErrLeaving):
		code = codes.Aborted
	case errors.Is(err, share.ErrResting), errors.Is(err, errKept):
		code = codes.DeadlineExceeded
	case errors.Is(err, policy.ErrNoVolumes), errors.Is(err, share.ErrDirectory), errors.Is(err, share.ErrNoServer), errors.Is(err, share.ErrNamespace),
		errors.Is(err, errNoShares), errors.Is(err, errPrivate), errors.Is(err, errRegionSize), errors.Is(err, errLost):
		code = codes.FailedPrecondition
	default:
		return coded(err)
	}
	return status.Error(code, err.Error())
}

// admits returns an error unless the key is that of the pod's segment, if it has one.
func (s *segments) admits(tenant, pod, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[segmentID(tenant, pod)]
	if p == nil {
		return nil
	}
	return p.fits(wanted{pod: pod, key: key, network: p.network})
}

func wireVolume(s *shared) *hostdpb.Volume {
	v := &hostdpb.Volume{Pod: s.ID.Pod, Name: s.ID.Name, Tag: s.Tag, Path: s.Path, Port: s.Place}
	v.Transport = hostdpb.VolumeTransport_VOLUME_TRANSPORT_VIRTIOFS
	if s.Port == 0 {
		v.Transport = hostdpb.VolumeTransport_VOLUME_TRANSPORT_9P
	}
	return v
}

func wireMemory(s *shared) *hostdpb.SharedMemory {
	return &hostdpb.SharedMemory{Pod: s.ID.Pod, Name: s.ID.Name, Size: uint64(s.Memory), Port: s.Place}
}
