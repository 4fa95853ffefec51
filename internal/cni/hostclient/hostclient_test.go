package hostclient

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/identity/identitytest"
)

// serve serves a daemon that knows no method. dir has the credentials of a guest, which expire then.
func serve(t *testing.T, expires time.Time) (server netip.AddrPort, dir string, c identity.Credentials) {
	t.Helper()
	state, dir := t.TempDir(), t.TempDir()
	c = identitytest.Issue(t, state, "node1", expires)
	a, err := identity.OpenAuthority(state)
	if err != nil {
		t.Fatal(err)
	}
	cnitest.Save(t, dir, a, c)
	server, _ = cnitest.Serve(t, a, hostdpb.UnimplementedHostDaemonServer{})
	return server, dir, c
}

// After its certificate has expired the client says so, and not "broken pipe".
func TestExpired(t *testing.T) {
	server, dir, c := serve(t, time.Now().Add(-time.Hour))
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

// The daemon's status is its own also while the client does not count the connection as ready yet.
func TestReachedBeforeReady(t *testing.T) {
	server, dir, _ := serve(t, time.Now().Add(time.Hour))
	client, err := Dial(server, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	idle, err := Dial(server, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	invoke := func(ctx context.Context, method string, r, answer any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		return client.conn.Invoke(ctx, method, r, answer, opts...)
	}
	err = requester{}.request(t.Context(), hostdpb.HostDaemon_Status_FullMethodName, &hostdpb.StatusRequest{}, &hostdpb.StatusResponse{}, idle.conn, invoke)
	if r := (*Refusal)(nil); !errors.As(err, &r) || !r.Reached {
		t.Errorf("got %v, want the daemon's answer", err)
	}
}
