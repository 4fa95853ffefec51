package hostd

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/hostd/hostdpb"
	"unnest/internal/hotplug"
	"unnest/internal/qmp"
)

// AttachNIC implements hostdpb.HostDaemonServer.
func (d *daemon) AttachNIC(ctx context.Context, r *hostdpb.AttachNICRequest) (*hostdpb.AttachNICResponse, error) {
	begin, record := time.Now(), caller(ctx)
	key, err := attachmentKey(r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	if err := checkBridge(r.GetBridge(), record); err != nil {
		return nil, err
	}
	var done outcome
	g, err := d.guest(ctx, record)
	if err == nil {
		done, err = g.request(ctx, func(id hotplug.RequestID) hotplug.Event { return hotplug.Attach{Request: id, Key: key} })
	}
	attrs := append([]slog.Attr{slog.String("mac", done.Attachment.MAC), slog.Int("slot", done.Attachment.Slot)}, done.steps...)
	d.log(ctx, "attach", record, key, begin, err, attrs...)
	if err != nil {
		return nil, coded(err)
	}
	nic := describe(record, hotplug.Slot{Occupant: done.Attachment.Occupant, Status: hotplug.Plugged, Key: key})
	return &hostdpb.AttachNICResponse{Nic: nic}, nil
}

// DetachNIC implements hostdpb.HostDaemonServer.
func (d *daemon) DetachNIC(ctx context.Context, r *hostdpb.DetachNICRequest) (*hostdpb.DetachNICResponse, error) {
	begin, record := time.Now(), caller(ctx)
	key, err := attachmentKey(r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	g, err := d.guest(ctx, record)
	if err == nil {
		_, err = g.request(ctx, func(id hotplug.RequestID) hotplug.Event { return hotplug.Detach{Request: id, Key: key} })
	}
	d.log(ctx, "detach", record, key, begin, err)
	if err != nil {
		return nil, coded(err)
	}
	return &hostdpb.DetachNICResponse{}, nil
}

// ListNICs implements hostdpb.HostDaemonServer.
func (d *daemon) ListNICs(ctx context.Context, _ *hostdpb.ListNICsRequest) (*hostdpb.ListNICsResponse, error) {
	slots, err := d.slots(ctx)
	if err != nil {
		return nil, err
	}
	var nics []*hostdpb.NIC
	for _, s := range slots {
		if s.Status != hotplug.Free {
			nics = append(nics, describe(caller(ctx), s))
		}
	}
	return &hostdpb.ListNICsResponse{Nics: nics}, nil
}

// Status implements hostdpb.HostDaemonServer.
func (d *daemon) Status(ctx context.Context, _ *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	slots, err := d.slots(ctx)
	if err != nil {
		return nil, err
	}
	free := 0
	for _, s := range slots {
		if s.Status == hotplug.Free {
			free++
		}
	}
	return &hostdpb.StatusResponse{
		Version: version(), Guest: caller(ctx).Name, SlotsFree: uint32(free), SlotsTotal: uint32(len(slots)),
	}, nil
}

func (d *daemon) slots(ctx context.Context) ([]hotplug.Slot, error) {
	g, err := d.guest(ctx, caller(ctx))
	if err != nil {
		return nil, coded(err)
	}
	slots, err := g.slots(ctx)
	if err != nil {
		return nil, coded(err)
	}
	return slots, nil
}

// describe puts a slot that is not free in the words of the protocol.
func describe(r GuestRecord, s hotplug.Slot) *hostdpb.NIC {
	nic := &hostdpb.NIC{
		ContainerId: s.Key.ContainerID, Interface: s.Key.Interface,
		Bridge: r.Bridge, Mtu: uint32(r.MTU), Slot: uint32(s.Slot), State: states[s.Status],
	}
	if s.Generation > 0 { // else it is a device of somebody else
		nic.Mac = s.MAC(r.macPrefix())
	}
	return nic
}

var states = map[hotplug.Status]hostdpb.NICState{
	hotplug.Plugging:    hostdpb.NICState_NIC_STATE_ATTACHING,
	hotplug.Plugged:     hostdpb.NICState_NIC_STATE_ATTACHED,
	hotplug.Unplugging:  hostdpb.NICState_NIC_STATE_DETACHING,
	hotplug.Quarantined: hostdpb.NICState_NIC_STATE_QUARANTINED,
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
	code := codes.Internal
	switch {
	case errors.Is(err, errUnavailable), errors.Is(err, qmp.ErrClosed), errors.Is(err, hotplug.ErrGuestGone):
		code = codes.Unavailable
	case errors.Is(err, hotplug.ErrQuarantined), errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.As(err, new(*hotplug.NoFreeSlotError)):
		code = codes.ResourceExhausted
	case errors.Is(err, hotplug.ErrDetaching), errors.Is(err, hotplug.ErrDetached), errors.Is(err, hotplug.ErrDeviceLost):
		code = codes.Aborted
	}
	return status.Error(code, err.Error())
}

// version is that of the binary.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
