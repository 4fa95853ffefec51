package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/ipam"
	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/vlan"
	"unnest/internal/vmm"
)

// protocol is the number of what this daemon speaks, as the protocol's
// description counts.
const protocol = 3

// called returns the guest that calls, whose system is thus up.
func (d *daemon) called(ctx context.Context, c client) (*guest, error) {
	g, err := d.guest(ctx, c)
	if err == nil {
		g.wake(ctx)
	}
	return g, err
}

// DetachNIC implements hostdpb.HostDaemonServer.
func (d *daemon) DetachNIC(ctx context.Context, r *hostdpb.DetachNICRequest) (*hostdpb.DetachNICResponse, error) {
	key, err := attachmentKey(r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	g, err := d.called(ctx, caller(ctx))
	if err == nil {
		err = d.detach(ctx, g, key)
	}
	if err != nil {
		return nil, coded(err)
	}
	return &hostdpb.DetachNICResponse{}, nil
}

func (d *daemon) detach(ctx context.Context, g *guest, key hotplug.Key) error {
	begin := time.Now()
	vlan, err := ask(ctx, g, func() bool { return g.dropVLAN(key) })
	if err == nil && !vlan {
		_, err = g.request(ctx, func(id hotplug.RequestID) hotplug.Event { return hotplug.Detach{Request: id, Key: key} })
	}
	plain, endpoint := plainKey(key)
	what := "detach"
	if endpoint {
		what = "leave segment"
	}
	d.metrics.detached(vlan, endpoint, begin, err)
	d.log(ctx, what, g.record, plain, begin, err)
	return err
}

// ListNICs implements hostdpb.HostDaemonServer.
func (d *daemon) ListNICs(ctx context.Context, _ *hostdpb.ListNICsRequest) (*hostdpb.ListNICsResponse, error) {
	g, err := d.called(ctx, caller(ctx))
	if err != nil {
		return nil, coded(err)
	}
	nics, err := ask(ctx, g, g.nics)
	if err != nil {
		return nil, coded(err)
	}
	return &hostdpb.ListNICsResponse{Nics: nics}, nil
}

// Check implements hostdpb.HostDaemonServer.
func (d *daemon) Check(ctx context.Context, r *hostdpb.CheckRequest) (*hostdpb.CheckResponse, error) {
	key, err := attachmentKey(r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	g, err := d.called(ctx, caller(ctx))
	if err != nil {
		return nil, coded(err)
	}
	type answer struct {
		found *hostdpb.CheckResponse
		err   error
	}
	a, err := ask(ctx, g, func() answer {
		if r.GetEndpoint() {
			e, err := g.checkEndpoint(key, r)
			return answer{&hostdpb.CheckResponse{Endpoint: e}, err}
		}
		nic, err := g.checkNIC(key, r)
		return answer{&hostdpb.CheckResponse{Nic: nic}, err}
	})
	if err = errors.Join(err, a.err); err != nil {
		return nil, coded(err)
	}
	return a.found, nil
}

// GC implements hostdpb.HostDaemonServer.
func (d *daemon) GC(ctx context.Context, r *hostdpb.GCRequest) (*hostdpb.GCResponse, error) {
	network, err := networkName(r.GetNetwork())
	if err != nil {
		return nil, err
	}
	valid := map[hotplug.Key]bool{}
	for _, a := range r.GetValid() {
		key, err := attachmentKey(a.GetContainerId(), a.GetInterface())
		if err != nil {
			return nil, err
		}
		valid[key] = true
	}
	g, err := d.called(ctx, caller(ctx))
	if err != nil {
		return nil, coded(err)
	}
	leaked, err := ask(ctx, g, func() []hotplug.Key { return g.leaked(network, valid) })
	if err != nil {
		return nil, coded(err)
	}
	answer := &hostdpb.GCResponse{}
	var failed error
	for _, key := range leaked { // one that fails keeps none of the others
		if err := d.detach(ctx, g, key); err != nil {
			failed = err
			continue
		}
		plain, _ := plainKey(key)
		answer.Removed = append(answer.Removed, &hostdpb.Attachment{ContainerId: plain.ContainerID, Interface: plain.Interface})
	}
	if failed != nil {
		return nil, coded(failed)
	}
	return answer, nil
}

// Status implements hostdpb.HostDaemonServer.
func (d *daemon) Status(ctx context.Context, r *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	c := caller(ctx)
	g, err := d.called(ctx, c)
	if err != nil {
		return nil, coded(err)
	}
	s, err := ask(ctx, g, g.status)
	if err != nil {
		return nil, coded(err)
	}
	limited := c.tenant.limited(s, r.GetAllocate())
	return &hostdpb.StatusResponse{
		Version: Version(), Guest: c.record.Name, SlotsFree: uint32(s.SlotsFree), SlotsTotal: uint32(s.Slots),
		Protocol: protocol, Tenant: c.tenant.Name, Pool: uint32(s.Pool), PoolTarget: uint32(s.PoolTarget),
		SlotsQuarantined: uint32(s.SlotsQuarantined), Limited: limited,
		SegmentModes: wireModes(c.tenant.SegmentModes()), SegmentsLimited: d.segmentsLimited(c.tenant, s),
	}, nil
}

// limited says why an attachment would be refused now, "" when it would not.
func (t *tenant) limited(s GuestStatus, allocate bool) string {
	stats, owned := t.stats()
	if err := t.AdmitNIC(s.Attachments, owned); err != nil {
		return err.Error()
	}
	if s.SlotsFree+s.Pool == 0 {
		return fmt.Sprintf("no free NIC slot of %d (%d quarantined)", s.Slots, s.SlotsQuarantined)
	}
	if !allocate {
		return ""
	}
	if reason := exhausted(stats); reason != "" {
		return reason
	}
	return ""
}

// log writes one line for an attach or detach.
func (d *daemon) log(ctx context.Context, what string, r GuestRecord, key hotplug.Key, begin time.Time, err error, more ...slog.Attr) {
	attrs := append([]slog.Attr{
		slog.String("guest", r.Name), slog.String("container", key.ContainerID), slog.String("interface", key.Interface),
		slog.Duration("total", time.Since(begin)),
	}, more...)
	level := slog.LevelInfo
	if err != nil {
		level, attrs = slog.LevelError, append(attrs, slog.Any("error", err))
	}
	d.config.Logger.LogAttrs(context.WithoutCancel(ctx), level, what, attrs...)
}

// coded gives an error the code that the protocol's description promises.
func coded(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Internal
	switch {
	case errors.Is(err, errUnavailable), errors.Is(err, errStopping):
		code = codes.Unavailable
	case errors.Is(err, hotplug.ErrQuarantined), errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.As(err, new(*hotplug.NoFreeSlotError)), errors.Is(err, policy.ErrLimit), errors.As(err, new(*ipam.ExhaustedError)), errors.Is(err, vlan.ErrNoVLAN):
		code = codes.ResourceExhausted
	case errors.Is(err, policy.ErrMTU), errors.Is(err, policy.ErrSpan), errors.Is(err, errOwner):
		code = codes.InvalidArgument
	case errors.Is(err, policy.ErrBridge), errors.Is(err, ipam.ErrUnusable), errors.As(err, new(*ipam.TakenError)), errors.Is(err, errNoTrunk),
		errors.Is(err, policy.ErrSegmentMode), errors.Is(err, errKey):
		code = codes.PermissionDenied
	case errors.Is(err, ipam.ErrNoRange), errors.Is(err, errDiffers), errors.Is(err, errNoQueues), errors.Is(err, errDamaged):
		code = codes.FailedPrecondition
	case errors.Is(err, hotplug.ErrDetaching), errors.Is(err, hotplug.ErrDetached), errors.Is(err, hotplug.ErrDeviceLost), errors.Is(err, hotplug.ErrGuestReset),
		errors.Is(err, errTwice):
		code = codes.Aborted
	case errors.Is(err, errNoAttachment), errors.Is(err, errNoEndpoint), errors.Is(err, errNoSegment):
		code = codes.NotFound
	case errors.Is(err, errElsewhere):
		code = codes.AlreadyExists
	}
	if plug := (*hotplug.PlugError)(nil); code == codes.Internal && errors.As(err, &plug) &&
		plug.Step != hotplug.StepTAP && !errors.As(err, new(*vmm.RefusedError)) {
		code = codes.Unavailable // the VMM has gone in the middle
	}
	return status.Error(code, err.Error())
}
