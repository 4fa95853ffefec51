package hostclient

import (
	"strings"
	"testing"
	"time"

	"unnest/internal/cni/cnitest"
	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/identity"
)

// A guest whose clock is not the host's is told so. Up to a day behind, it works.
func TestClockOfGuest(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	a, err := identity.OpenAuthority(state)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	cnitest.Save(t, dir, a, c)
	server, _ := cnitest.Serve(t, a, hostdpb.UnimplementedHostDaemonServer{})
	clientConfig, err := identity.ClientConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	for behind, wrong := range map[time.Duration]bool{23 * time.Hour: false, 25 * time.Hour: true} {
		clientConfig.Time = func() time.Time { return time.Now().Add(-behind) }
		client, err := dialWith(server, clientConfig.Clone())
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Status(t.Context(), &hostdpb.StatusRequest{})
		client.Close()
		if err == nil || strings.Contains(err.Error(), "the clock of this guest differs from the host's: set it") != wrong || wrong && strings.Contains(err.Error(), "check that") {
			t.Errorf("%v behind: got %v, want the clock named: %t", behind, err, wrong)
		}
	}
}
