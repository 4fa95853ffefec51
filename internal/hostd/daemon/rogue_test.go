package daemon

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/status"
)

// start runs a daemon in this process until the test ends.
func start(t *testing.T, dir string) (address string) {
	t.Helper()
	return startWith(t, dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

func startWith(t *testing.T, dir string, log *slog.Logger) (address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	p := testQuotas()
	p.Tenants = p.Tenants[:1] // several would be kept apart, on this machine's own network
	go func() {
		ended <- Serve(ctx, Config{
			StateDir: dir, Quotas: p, Logger: log,
			Ready: func(a net.Addr) { ready <- a },
		})
	}()
	t.Cleanup(func() {
		begin := time.Now()
		cancel()
		if err := <-ended; err != nil || time.Since(begin) > time.Minute {
			t.Errorf("daemon ended with %v, %v after it was told to", err, time.Since(begin))
		}
	})
	select {
	case a := <-ready:
		return a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	panic("not reached")
}

// issue makes the credentials of a guest of the lab with the given directory.
func issue(t *testing.T, dir, guest string) (*tls.Config, identity.Credentials) {
	t.Helper()
	a, err := identity.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Issue(guest)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(c.CertificatePEM, c.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	// These tests do not check whom the client trusts.
	return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}, c
}

// dial returns a client of the daemon; nil for one without TLS.
func dial(t *testing.T, address string, config *tls.Config, more ...grpc.DialOption) hostdpb.HostDaemonClient {
	t.Helper()
	return hostdpb.NewHostDaemonClient(connection(t, address, config, more...))
}

func connection(t *testing.T, address string, config *tls.Config, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	transport := insecure.NewCredentials()
	if config != nil {
		transport = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append(more, grpc.WithTransportCredentials(transport))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// withRecord adds a guest whose VMM does not run.
func withRecord(t *testing.T, dir string, c identity.Credentials) {
	t.Helper()
	r := goodRecord()
	r.QMP, r.CertificateSHA256 = dir+"/no.qmp", c.Fingerprint
	if err := record.Write(dir, r); err != nil {
		t.Fatal(err)
	}
}

const testKey = "0123456789abcdef"

func TestRogueClients(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	present, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	earlier, _ := issue(t, dir, "node1")
	foreign, _ := issue(t, other, "node1")
	unknown, _ := issue(t, dir, "node2")
	address := start(t, dir)
	for _, c := range []struct {
		name   string
		config *tls.Config
		code   codes.Code
		want   string
	}{
		{"guest without VMM", present, codes.Unavailable, "guest node1: the guest's VMM does not answer"},
		{"no TLS", nil, codes.Unavailable, ""},
		{"no certificate", &tls.Config{InsecureSkipVerify: true}, codes.Unavailable, ""},
		{"authority of another lab", foreign, codes.Unavailable, ""},
		{"earlier guest of the name", earlier, codes.Unauthenticated, "not that of the present guest node1"},
		{"guest without record", unknown, codes.Unauthenticated, "no such guest: node2"},
	} {
		_, err := dial(t, address, c.config).Status(t.Context(), &hostdpb.StatusRequest{})
		if grpcstatus.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %v with %q", c.name, err, c.code, c.want)
		}
		if served := strings.Contains(err.Error(), "VMM"); served != (c.want != "" && c.config == present) {
			t.Errorf("%s: request was served: %v", c.name, err)
		}
	}
}

func TestRogueRequests(t *testing.T) {
	dir := t.TempDir()
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	d := dial(t, start(t, dir), config)
	for _, c := range []struct {
		name    string
		request *hostdpb.AttachNICRequest
		code    codes.Code
	}{
		{"foreign bridge", &hostdpb.AttachNICRequest{ContainerId: "c", Interface: "eth0", Bridge: "br1"}, codes.PermissionDenied},
		{"long container ID", &hostdpb.AttachNICRequest{ContainerId: strings.Repeat("c", 129), Interface: "eth0"}, codes.InvalidArgument},
		{"long interface", &hostdpb.AttachNICRequest{ContainerId: "c", Interface: "abcdefghijklmnop"}, codes.InvalidArgument},
		{"path", &hostdpb.AttachNICRequest{ContainerId: "../c", Interface: "eth0"}, codes.InvalidArgument},
		{"empty", &hostdpb.AttachNICRequest{}, codes.InvalidArgument},
		{"huge", &hostdpb.AttachNICRequest{ContainerId: strings.Repeat("c", 64<<10)}, codes.ResourceExhausted},
		{"right", &hostdpb.AttachNICRequest{ContainerId: "c", Interface: "eth0", Bridge: "br0"}, codes.Unavailable},
	} {
		if _, err := d.AttachNIC(t.Context(), c.request); grpcstatus.Code(err) != c.code {
			t.Errorf("%s: got %v, want %v", c.name, err, c.code)
		}
	}
	if _, err := d.DetachNIC(t.Context(), &hostdpb.DetachNICRequest{ContainerId: "/", Interface: "eth0"}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("detach of a bad ID: got %v", err)
	}
}

func TestRogueRequestsOfSegments(t *testing.T) {
	dir := t.TempDir()
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	d := dial(t, start(t, dir), config)
	join := func(container, pod, key string) error {
		s := &hostdpb.SegmentSpec{Pod: pod, Key: key}
		_, err := d.JoinSegment(t.Context(), &hostdpb.JoinSegmentRequest{Segment: s, ContainerId: container, Interface: "eth0"})
		return err
	}
	for _, c := range []struct {
		name string
		err  error
		code codes.Code
	}{
		{"right, but for the VMM", join("c", "web", testKey), codes.Unavailable},
		{"path", join("../c", "web", testKey), codes.InvalidArgument},
		{"another's attachment", join("hostlo@c", "web", testKey), codes.InvalidArgument},
		{"other tenant's pod", join("c", "default/web", testKey), codes.InvalidArgument},
		{"alias", join("c", "web;default;x", testKey), codes.InvalidArgument},
		{"short key", join("c", "web", "secret"), codes.InvalidArgument},
		{"huge", join("c", "web", strings.Repeat("k", 64<<10)), codes.ResourceExhausted},
	} {
		if grpcstatus.Code(c.err) != c.code {
			t.Errorf("%s: got %v, want %v", c.name, c.err, c.code)
		}
	}
	if _, err := d.JoinSegment(t.Context(), &hostdpb.JoinSegmentRequest{ContainerId: "c", Interface: "eth0"}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("join of nothing: got %v", err)
	}
	if _, err := d.CreateSegment(t.Context(), &hostdpb.CreateSegmentRequest{}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("create nothing: got %v", err)
	}
	if _, err := d.LeaveSegment(t.Context(), &hostdpb.LeaveSegmentRequest{ContainerId: "/", Interface: "eth0"}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("leave of a bad ID: got %v", err)
	}
	for pod, code := range map[string]codes.Code{"web": codes.NotFound, "": codes.InvalidArgument, "a/b": codes.InvalidArgument} {
		if _, err := d.SegmentStatus(t.Context(), &hostdpb.SegmentStatusRequest{Pod: pod, Key: testKey}); grpcstatus.Code(err) != code {
			t.Errorf("status of %q: got %v, want %v", pod, err, code)
		}
	}
}

// The daemon reads the guest's record at each request.
func TestRecordComesAndGoes(t *testing.T) {
	dir := t.TempDir()
	config, c := issue(t, dir, "node1")
	d := dial(t, start(t, dir), config)
	for i, want := range []codes.Code{codes.Unauthenticated, codes.Unavailable} {
		if i == 1 {
			withRecord(t, dir, c)
		}
		if _, err := d.Status(t.Context(), &hostdpb.StatusRequest{}); grpcstatus.Code(err) != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestGarbageOnThePort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	address := start(t, dir)
	random := make([]byte, 1<<16)
	_, _ = rand.Read(random)
	for name, garbage := range map[string][]byte{
		"random":       random,
		"HTTP":         []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"HTTP/2 clear": []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
		"cut hello":    {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc},
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(conn, bytes.NewReader(garbage)); err != nil && name != "random" { // the daemon may hang up early
			t.Errorf("%s: %v", name, err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(5*time.Second + time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: the daemon did not hang up: %v", name, err)
		}
		conn.Close()
	}
	if _, err := dial(t, address, config).Status(t.Context(), &hostdpb.StatusRequest{}); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("guest after the garbage: got %v", err)
	}
}

func TestServeFails(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ dir, listen, want string }{
		{dir, "0.0.0.0:7443", "want IP-ADDRESS:PORT"},
		{dir, taken.Addr().String(), "address already in use"},
		{dir, "192.0.2.1:7443", "192.0.2.1:7443"},
		{dir + "/nowhere", "127.0.0.1:0", "nowhere"},
	} {
		p := testQuotas()
		p.Tenants = p.Tenants[:1]
		p.Listen = netip.MustParseAddrPort(c.listen)
		err := Serve(t.Context(), Config{StateDir: c.dir, Quotas: p, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("listen on %s: got %v, want one line with %q", c.listen, err, c.want)
		}
	}
}

// The operator may ask while the daemon starts. The race detector finds an access that
// is not synchronized.
func TestStatusDuringStart(t *testing.T) {
	dir := t.TempDir()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for s, err := status.Ask(t.Context(), dir); t.Context().Err() == nil && (err != nil || s.Listen == ""); {
			s, err = status.Ask(t.Context(), dir)
		}
	}()
	start(t, dir)
	<-asked
}
