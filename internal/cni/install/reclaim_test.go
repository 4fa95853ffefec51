package install

import (
	"context"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/identity/identitytest"
)

// bootDaemon keeps the boot that a request says. The first request fails.
type bootDaemon struct {
	hostdpb.UnimplementedHostDaemonServer
	calls atomic.Int32
	boots chan string
}

func (d *bootDaemon) Status(ctx context.Context, _ *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	if d.calls.Add(1) == 1 {
		return nil, grpcstatus.Error(codes.Unavailable, "the guest's VMM does not answer")
	}
	d.boots <- identity.Boot(ctx)
	return &hostdpb.StatusResponse{}, nil
}

// The command tells the daemon which boot this is, once the daemon answers, and ends by a signal or with its context.
func TestReclaimMain(t *testing.T) {
	lab, credentials := t.TempDir(), t.TempDir()
	c := identitytest.Issue(t, lab, "node1", time.Now().Add(time.Hour*24))
	a, err := identity.OpenAuthority(lab)
	if err != nil {
		t.Fatal(err)
	}
	cnitest.Save(t, credentials, a, c)
	d := &bootDaemon{boots: make(chan string, 1)}
	server, _ := cnitest.Serve(t, a, d)
	state := attachment.StateDir
	attachment.StateDir = t.TempDir()
	defer func() { attachment.StateDir = state }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		ended <- ReclaimMain(ctx, []string{"-server", server.String(), "-credentials", credentials}, t.Output(), t.Output())
	}()
	want, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-d.boots:
		if got != strings.TrimSpace(string(want)) {
			t.Errorf("the daemon is told boot %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Error("the daemon is not told within a minute")
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("at its end the exit code is %d", code)
	}
	for _, args := range [][]string{{"-x"}, {"x"}} {
		var text strings.Builder
		if code := ReclaimMain(t.Context(), args, t.Output(), io.MultiWriter(&text, t.Output())); code != 2 || text.Len() == 0 {
			t.Errorf("%v: exit code %d: %s", args, code, &text)
		}
	}
}
