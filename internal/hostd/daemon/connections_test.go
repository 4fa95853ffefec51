package daemon

import (
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"unnest/internal/hostapi/hostdpb"
)

// A container without a key has its guest's address, and opens more connections than a
// guest may have. The guest is served.
func TestConnectionsWithoutKey(t *testing.T) {
	dir := t.TempDir()
	d, log := testDaemon(t, dir)
	for _, tenant := range d.tenants {
		tenant.Limits.Connections = 4
	}
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	address := serveTest(t, d, dir)
	for try := 1; ; try++ { // a busy machine may be that late, but not each time
		for range 10 * handshakes {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		begin := time.Now()
		_, err := dial(t, address, config).Status(t.Context(), &hostdpb.StatusRequest{})
		took := time.Since(begin)
		if err != nil && strings.Contains(err.Error(), "VMM") && took < handshakeTime/2 {
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
		tenant.Limits.Connections = limit
	}
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	config2, c2 := issue(t, dir, "node2")
	r := goodRecord()
	r.Name, r.Index, r.QMP, r.CertificateSHA256 = "node2", 2, dir+"/no.qmp", c2.Fingerprint
	if err := WriteRecord(dir, r); err != nil {
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
