package daemon

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/record"
)

// A container without a key has its guest's address, and opens more connections than a
// guest may have. The guest is served.
func TestConnectionsWithoutKey(t *testing.T) {
	dir := t.TempDir()
	d, log := testDaemon(t, dir)
	for _, tenant := range d.tenants {
		p := tenant.Now()
		p.Limits.Connections = 4
		tenant.Change(p)
	}
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	address := serveTest(t, d, dir)
	for try := 1; ; try++ { // a busy machine may be that late, but not each time
		for range 160 {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		begin := time.Now()
		_, err := dial(t, address, config).Status(t.Context(), &hostdpb.StatusRequest{})
		took := time.Since(begin)
		if err != nil && strings.Contains(err.Error(), "VMM") && took < 2500*time.Millisecond {
			break
		}
		if try == 5 {
			t.Fatalf("after %v the guest got %v, want it to be served", took, err)
		}
	}
	if len(log.with("close connection", "127.0.0.1")) == 0 {
		t.Error("the log does not name the address")
	}
}

// The connections of a guest are counted by its certificate, not by its address.
func TestConnectionsOfGuest(t *testing.T) {
	dir := t.TempDir()
	d, log := testDaemon(t, dir)
	const limit = 3
	for _, tenant := range d.tenants {
		p := tenant.Now()
		p.Limits.Connections = limit
		tenant.Change(p)
	}
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	config2, c2 := issue(t, dir, "node2")
	r := goodRecord()
	r.Name, r.Index, r.QMP, r.CertificateSHA256 = "node2", 2, dir+"/no.qmp", c2.Fingerprint
	if err := record.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	address := serveTest(t, d, dir)
	served := func(client hostdpb.HostDaemonClient) bool {
		_, err := client.Status(t.Context(), &hostdpb.StatusRequest{})
		return err != nil && strings.Contains(err.Error(), "VMM")
	}
	first, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	clients := []hostdpb.HostDaemonClient{hostdpb.NewHostDaemonClient(first)}
	for range limit - 1 {
		clients = append(clients, dial(t, address, config))
	}
	for i, client := range clients {
		if !served(client) {
			t.Errorf("connection %d of %d: not served", i+1, limit)
		}
	}
	beyond := dial(t, address, config)
	if served(beyond) {
		t.Errorf("the daemon serves %d connections of a guest, want %d at most", limit+1, limit)
	}
	if len(log.with("guest=node1", "too many connections")) == 0 {
		t.Errorf("the log does not say who has too many; log: %q", log.lines)
	}
	if !served(dial(t, address, config2)) {
		t.Error("another guest with the same address is not served")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); !served(dial(t, address, config)); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("a closed connection still counts")
		}
	}
}

// fromListener accepts connections as if they came from an address.
type fromListener struct {
	net.Listener
	from net.Addr
}

func (l fromListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return fromConn{c, l.from}, err
}

type fromConn struct {
	net.Conn
	from net.Addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.from }

// A pod that has got hold of its node's credentials cannot use them from its own address.
func TestCredentialsInPod(t *testing.T) {
	dir := t.TempDir()
	d, log := testDaemon(t, dir)
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, d, dir, fromListener{l, &net.TCPAddr{IP: net.IPv4(10, 9, 0, 7), Port: 1000}})
	ask := func() error {
		_, err := dial(t, l.Addr().String(), config).Status(t.Context(), &hostdpb.StatusRequest{})
		return err
	}
	if err := ask(); !strings.Contains(err.Error(), "VMM") {
		t.Errorf("the guest is not served: %v", err)
	}
	if _, err := d.tenant("default").Take("node1/c1/eth0", []netip.Prefix{netip.MustParsePrefix("10.9.0.7/24")}, false); err != nil {
		t.Fatal(err)
	}
	if err := ask(); grpcstatus.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "VMM") {
		t.Errorf("a pod is served: %v", err)
	}
	if len(log.with("refuse", "peer=10.9.0.7:1000", "guest=node1", "from a pod's address")) == 0 {
		t.Errorf("the log does not say so: %q", log.with(""))
	}
}
