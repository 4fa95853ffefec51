package api

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/shares"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/vmm"
)

// Guests retry some codes and not others, see hostd.proto.
func TestCoded(t *testing.T) {
	plug := func(step hotplug.PlugStep, err error) error { return &hotplug.PlugError{Step: step, Err: err} }
	for _, c := range []struct {
		err  error
		want codes.Code
	}{
		{nil, codes.OK},
		{grpcstatus.Error(codes.InvalidArgument, "has a code"), codes.InvalidArgument},
		{errors.New("unknown"), codes.Internal},
		{guestrun.ErrUnavailable, codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{hotplug.ErrKept, codes.DeadlineExceeded},
		{&hotplug.NoFreeSlotError{}, codes.ResourceExhausted},
		{&ipam.ExhaustedError{Ranges: []ipam.Range{{Subnet: netip.MustParsePrefix("10.9.0.0/24")}}}, codes.ResourceExhausted},
		{&ipam.TakenError{}, codes.PermissionDenied},
		{quota.ErrLimit, codes.ResourceExhausted},
		{segments.ErrKey, codes.PermissionDenied},
		{segments.ErrDiffers, codes.FailedPrecondition},
		{segments.ErrTwice, codes.Aborted},
		{segments.ErrNoSegment, codes.NotFound},
		{segments.ErrElsewhere, codes.AlreadyExists},
		{share.ErrSize, codes.InvalidArgument},
		{shares.ErrSize, codes.FailedPrecondition},
		{plug(hotplug.StepTAP, errors.New("no TAP")), codes.Internal},
		{plug(hotplug.StepDevice, errors.New("no answer")), codes.Unavailable},
		{plug(hotplug.StepDevice, &vmm.RefusedError{Err: errors.New("slot in use")}), codes.Internal},
		{plug(hotplug.StepDevice, &vmm.RefusedError{Err: quota.ErrLimit}), codes.ResourceExhausted},
	} {
		for _, err := range []error{c.err, fmt.Errorf("attach c1/eth0: %w", c.err)} {
			if c.err == nil {
				err = nil
			}
			if got := grpcstatus.Code(coded(err)); got != c.want {
				t.Errorf("%v: got %v, want %v", err, got, c.want)
			}
		}
	}
}
