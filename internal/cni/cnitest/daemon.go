package cnitest

import (
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
)

// Serve serves a fake host daemon of an authority at an address of this host, until it is
// stopped or the test ends.
func Serve(t testing.TB, a *identity.Authority, d hostdpb.HostDaemonServer) (server netip.AddrPort, stop func()) {
	t.Helper()
	config, err := a.ServerConfig(net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddrPort(listener.Addr().String()), serve(t, listener, config, d)
}

func serve(t testing.TB, listener net.Listener, config *tls.Config, d hostdpb.HostDaemonServer) (stop func()) {
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	hostdpb.RegisterHostDaemonServer(s, d)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(listener) })
	stop = func() {
		s.Stop()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// Save writes the credentials of a guest, which an authority has issued, to a directory.
func Save(t testing.TB, dir string, a *identity.Authority, c identity.Credentials) {
	t.Helper()
	for name, content := range map[string][]byte{
		identity.CAFile: a.CertificatePEM(), identity.CertificateFile: c.CertificatePEM, identity.KeyFile: c.KeyPEM,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
