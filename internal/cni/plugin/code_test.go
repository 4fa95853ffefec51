package plugin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/podnic"
)

func refusal(c codes.Code, reached bool) error {
	return fmt.Errorf("attach: %w", &hostclient.Refusal{Status: status.New(c, "cause"), Reached: reached})
}

func TestCodes(t *testing.T) {
	for _, c := range []struct {
		err           error
		coded, status uint
	}{
		{refusal(codes.Unavailable, false), 11, 50},
		{refusal(codes.Unavailable, true), 11, 51},
		{refusal(codes.ResourceExhausted, true), 11, 50},
		{refusal(codes.PermissionDenied, true), 7, 50},
		{refusal(codes.Unimplemented, true), 7, 50},
		{refusal(codes.NotFound, true), 999, 50},
		{Invalid(errors.New("cause")), 7, 50},
		{TooOld("cause"), 7, 50},
		{types.NewError(11, "cause", ""), 11, 50},
		{types.NewError(51, "cause", ""), 51, 51},
		{types.NewError(types.ErrUnknownContainer, "cause", ""), 999, 50},
		{fmt.Errorf("cause: %w", unix.ENODEV), 11, 50},
		{fmt.Errorf("cause: %w", podnic.ErrVLANTaken), 11, 50},
		{fmt.Errorf("cause: %w", podnic.ErrNotPlugged), 11, 50},
		{errors.Join(errors.New("cause"), errors.New("and another")), 999, 50},
	} {
		for got, want := range map[error]uint{coded(c.err): c.coded, unavailable(c.err): c.status} {
			e := (*types.Error)(nil)
			if !errors.As(got, &e) || e.Code != want || !strings.Contains(e.Msg, "cause") || strings.Contains(e.Msg, "\n") {
				t.Errorf("%v: got %+v, want code %d", c.err, got, want)
			}
		}
	}
	if coded(nil) != nil || unavailable(nil) != nil {
		t.Error("nil became an error")
	}
}
