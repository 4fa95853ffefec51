package install

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/identity"
	"unnest/internal/hostapi/identity/identitytest"
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
	for name, content := range map[string][]byte{
		identity.CAFile: a.CertificatePEM(), identity.CertificateFile: c.CertificatePEM, identity.KeyFile: c.KeyPEM,
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	config, err := a.ServerConfig(net.IPv4(127, 0, 0, 1))
	check(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	hostdpb.RegisterHostDaemonServer(s, d)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String(), dir
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
	for _, tt := range []struct {
		plugin, config string
		want           NICs
	}{
		{"brfusion", config(`"ipam": {"type": "hostd"}`), NICs{Known: true, Attached: 2, Free: 6, Limited: "no address", Expires: expires}},
		{"brfusion", config(`"ipam": {"type": "host-local"}`), NICs{Known: true, Attached: 2, Free: 6, Limited: "no slot", Expires: expires}},
		{"brfusion", config(`"mode": "trunk", "ipam": {"type": "hostd"}`), NICs{Attached: 2, Free: 6, Limited: "no address", Expires: expires}},
		{"hostlo", "{}", NICs{}},
	} {
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
