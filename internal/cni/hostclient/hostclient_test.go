package hostclient

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestRefusals(t *testing.T) {
	refusal := func(c codes.Code, reached bool) error {
		return fmt.Errorf("attach: %w", &Refusal{Status: status.New(c, "cause"), Reached: reached})
	}
	for _, c := range []struct {
		err                 error
		unanswered, unknown bool
	}{
		{refusal(codes.Unavailable, false), true, false},
		{refusal(codes.DeadlineExceeded, false), true, false},
		{refusal(codes.Unavailable, true), true, false},
		{refusal(codes.DeadlineExceeded, true), false, false},
		{refusal(codes.Unimplemented, true), false, true},
		{errors.New("cause"), false, false},
		{nil, false, false},
	} {
		if Unanswered(c.err) != c.unanswered || Unknown(c.err) != c.unknown {
			t.Errorf("%v: unanswered %v, unknown %v", c.err, Unanswered(c.err), Unknown(c.err))
		}
	}
}
