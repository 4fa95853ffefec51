package hostclient

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

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
	for name, content := range map[string][]byte{
		identity.CAFile: a.CertificatePEM(), identity.CertificateFile: c.CertificatePEM, identity.KeyFile: c.KeyPEM,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := a.ServerConfig(net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	hostdpb.RegisterHostDaemonServer(s, hostdpb.UnimplementedHostDaemonServer{})
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	clientConfig, err := identity.ClientConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	for behind, wrong := range map[time.Duration]bool{23 * time.Hour: false, 25 * time.Hour: true} {
		clientConfig.Time = func() time.Time { return time.Now().Add(-behind) }
		client, err := dialWith(netip.MustParseAddrPort(l.Addr().String()), clientConfig.Clone())
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
