package hostclient

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/cni/cnitest"
	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/identity"
	"unnest/internal/hostapi/identity/identitytest"
)

// After its certificate has expired the client says so, and not "broken pipe".
func TestExpired(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	c := identitytest.Issue(t, state, "node1", time.Now().Add(-time.Hour))
	a, err := identity.OpenAuthority(state)
	if err != nil {
		t.Fatal(err)
	}
	cnitest.Save(t, dir, a, c)
	server, _ := cnitest.Serve(t, a, hostdpb.UnimplementedHostDaemonServer{})
	client, err := Dial(server, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.Status(t.Context(), &hostdpb.StatusRequest{})
	want := "certificate of guest node1 expired on " + c.Expires.UTC().Format(time.DateOnly) + "; run unnest hostd enroll node1"
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "check that") {
		t.Errorf("got %v, want %q", err, want)
	}
}

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
