package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/shares"
	"unnest.io/unnest/internal/hostd/tenant"
	"unnest.io/unnest/internal/netdev/bridge"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/netdev/vlan"
	"unnest.io/unnest/internal/vmm"
)

// errorCodes are the codes that hostd.proto promises, the first match wins.
var errorCodes = []struct {
	code codes.Code
	errs []error
}{
	{codes.Unavailable, []error{guestrun.ErrUnavailable, guestrun.ErrStopping}},
	{codes.DeadlineExceeded, []error{hotplug.ErrQuarantined, hotplug.ErrKept, context.DeadlineExceeded}},
	{codes.Canceled, []error{context.Canceled}},
	{codes.ResourceExhausted, []error{quota.ErrLimit, vlan.ErrNoVLAN, guestrun.ErrManyBoot}},
	{codes.InvalidArgument, []error{quota.ErrMTU, quota.ErrSpan, attachment.ErrTooLong, share.ErrName, share.ErrSize}},
	{codes.PermissionDenied, []error{quota.ErrBridge, quota.ErrMAC, bridge.ErrMAC, ipam.ErrUnusable, guestrun.ErrOtherPod, guestrun.ErrMachine, tenant.ErrPod, errNoTrunk, quota.ErrSegmentMode, segments.ErrKey, share.ErrKey}},
	{codes.FailedPrecondition, []error{
		ipam.ErrNoRange, segments.ErrDiffers, segments.ErrLeft, guestrun.ErrNoQueues, guestrun.ErrDamaged, guestrun.ErrOtherNIC, quota.ErrNoVolumes, share.ErrDirectory, share.ErrNoServer,
		share.ErrNamespace, share.ErrWritable, share.ErrLifetime, shares.ErrNoPorts, shares.ErrPrivate, shares.ErrSize, shares.ErrLost,
	}},
	{codes.Aborted, []error{hotplug.ErrDetaching, hotplug.ErrDetached, hotplug.ErrDeviceLost, hotplug.ErrGuestReset, guestrun.ErrOldBoot, segments.ErrTwice}},
	{codes.NotFound, []error{guestrun.ErrNoAttachment, guestrun.ErrNoEndpoint, segments.ErrNoSegment}},
	{codes.AlreadyExists, []error{segments.ErrElsewhere}},
}

// coded gives an error its code for the guest.
func coded(err error) error {
	if _, ok := grpcstatus.FromError(err); ok { // also nil
		return err
	}
	return grpcstatus.Error(codeOf(err), err.Error())
}

func codeOf(err error) codes.Code {
	for _, c := range errorCodes {
		for _, e := range c.errs {
			if errors.Is(err, e) {
				return c.code
			}
		}
	}
	plug := (*hotplug.PlugError)(nil)
	switch {
	case errors.As(err, new(*hotplug.NoFreeSlotError)), errors.As(err, new(*ipam.ExhaustedError)):
		return codes.ResourceExhausted
	case errors.As(err, new(*ipam.TakenError)):
		return codes.PermissionDenied
	case errors.As(err, &plug) && plug.Step != hotplug.StepTAP && !errors.As(err, new(*vmm.RefusedError)):
		return codes.Unavailable // the VMM has ended during the plug
	}
	return codes.Internal
}
