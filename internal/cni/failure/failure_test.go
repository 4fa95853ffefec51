package failure

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/cni/podnic"
)

func refusal(c codes.Code, reached bool) error {
	return fmt.Errorf("attach: %w", &Refusal{Status: status.New(c, "why"), Reached: reached})
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
		{Invalid(errors.New("why")), 7, 50},
		{TooOld("why"), 7, 50},
		{types.NewError(11, "why", ""), 11, 50},
		{types.NewError(51, "why", ""), 51, 51},
		{types.NewError(types.ErrUnknownContainer, "why", ""), 999, 50},
		{fmt.Errorf("why: %w", unix.ENODEV), 11, 50},
		{fmt.Errorf("why: %w", podnic.ErrVLANTaken), 11, 50},
		{errors.Join(errors.New("why"), errors.New("and why")), 999, 50},
	} {
		for got, want := range map[error]uint{coded(c.err): c.coded, unavailable(c.err): c.status} {
			e := (*types.Error)(nil)
			if !errors.As(got, &e) || e.Code != want || !strings.Contains(e.Msg, "why") || strings.Contains(e.Msg, "\n") {
				t.Errorf("%v: got %+v, want code %d", c.err, got, want)
			}
		}
	}
	if coded(nil) != nil || unavailable(nil) != nil {
		t.Error("no error became one")
	}
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		err                 error
		unanswered, unknown bool
	}{
		{refusal(codes.Unavailable, false), true, false},
		{refusal(codes.DeadlineExceeded, false), true, false},
		{refusal(codes.Unavailable, true), true, false},
		{refusal(codes.DeadlineExceeded, true), false, false},
		{refusal(codes.Unimplemented, true), false, true},
		{errors.New("why"), false, false},
		{nil, false, false},
	} {
		if Unanswered(c.err) != c.unanswered || Unknown(c.err) != c.unknown {
			t.Errorf("%v: unanswered %v, unknown %v", c.err, Unanswered(c.err), Unknown(c.err))
		}
	}
}
