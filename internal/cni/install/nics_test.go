package install

import (
	"context"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/identity/identitytest"
)

// fakeDaemon is a host daemon that counts NICs.
type fakeDaemon struct {
	hostdpb.UnimplementedHostDaemonServer
	nics *hostdpb.NICCount
}

func (d *fakeDaemon) Status(_ context.Context, r *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	s := &hostdpb.StatusResponse{Nics: d.nics, Limited: "no slot"}
	if r.GetAllocate() {
		s.Limited = "no address"
	}
	return s, nil
}

// serve serves a daemon, and returns its address and the directory of a guest's credentials.
func (d *fakeDaemon) serve(t *testing.T, expires time.Time) (server, dir string) {
	t.Helper()
	state, dir := t.TempDir(), t.TempDir()
	c := identitytest.Issue(t, state, "node1", expires)
	a, err := identity.OpenAuthority(state)
	check(t, err)
	cnitest.Save(t, dir, a, c)
	address, _ := cnitest.Serve(t, a, d)
	return address.String(), dir
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCount(t *testing.T) {
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	d := &fakeDaemon{nics: &hostdpb.NICCount{Attached: 2, Free: 6}}
	server, dir := d.serve(t, expires)
	config := func(more string) string {
		return `{"cniVersion": "1.1.0", "name": "pods", "type": "brfusion", "server": "` + server + `", "credentials": "` + dir + `", ` + more + `}`
	}
	host, err := host(dir, "")
	check(t, err)
	for _, tt := range []struct {
		plugin, config string
		want           NICs
	}{
		{"brfusion", config(`"ipam": {"type": "hostd"}`), NICs{Known: true, Attached: 2, Free: 6, Limited: "no address", Expires: expires}},
		{"brfusion", config(`"ipam": {"type": "host-local"}`), NICs{Known: true, Attached: 2, Free: 6, Limited: "no slot", Expires: expires}},
		{"brfusion", config(`"mode": "trunk", "ipam": {"type": "hostd"}`), NICs{Attached: 2, Free: 6, Limited: "no address", Expires: expires}},
		{"hostlo", "{}", NICs{}},
	} {
		if tt.plugin == "brfusion" {
			tt.want.Host = host
		}
		if got, err := count(t.Context(), tt.plugin, []byte(tt.config)); got != tt.want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", tt.config, got, err, tt.want)
		}
	}
	d.nics = nil // of an earlier daemon
	if got, err := count(t.Context(), "brfusion", []byte(config(`"ipam": {"type": "hostd"}`))); got.Known || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	for stdin, want := range map[string]string{
		`{"name": "pods", "type": "brfusion"}`:                                         "server is missing",
		strings.Replace(config(`"ipam": {"type": "hostd"}`), dir, t.TempDir(), 1):      "read credentials",
		strings.Replace(config(`"ipam": {"type": "hostd"}`), server, "127.0.0.1:9", 1): "ask for the NICs of pods: host daemon",
	} {
		if _, err := count(t.Context(), "brfusion", []byte(stdin)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", stdin, err, want)
		}
	}
}

// Nodes of one daemon and tenant have the same host. Another tenant, or another daemon, is another one.
func TestHost(t *testing.T) {
	_, dir := (&fakeDaemon{}).serve(t, time.Now().Add(time.Hour))
	_, other := (&fakeDaemon{}).serve(t, time.Now().Add(time.Hour))
	seen := map[string]bool{}
	for _, of := range [][2]string{{dir, "red"}, {dir, "red"}, {dir, "blue"}, {other, "red"}} {
		h, err := host(of[0], of[1])
		if err != nil || len(h) != 32 {
			t.Errorf("got %q, %v", h, err)
		}
		seen[h] = true
	}
	if len(seen) != 3 {
		t.Errorf("got %d hosts, want 3", len(seen))
	}
	if _, err := host(t.TempDir(), "red"); err == nil {
		t.Error("a host without certificate")
	}
}
