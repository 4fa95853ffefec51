package daemon

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"unnest.io/unnest/internal/hostd/status"
)

// overUnix is a request that comes by the unix socket.
func overUnix(t *testing.T, method, path string) *http.Request {
	ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Net: "unix"}))
	return httptest.NewRequestWithContext(ctx, method, path, nil)
}

// Only root sees the tenants; who reaches the HTTP address learns that the daemon runs.
func TestStatusOverTCP(t *testing.T) {
	dir := t.TempDir()
	d, _ := testDaemon(t, dir)
	listeners, err := d.listenHTTP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.serveHTTP(append(listeners, tcp)))
	body := func(c *http.Client, url string) (int, string) {
		t.Helper()
		r, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text := new(strings.Builder)
		if err := r.Write(text); err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, text.String()
	}
	code, text := body(http.DefaultClient, "http://"+tcp.Addr().String()+"/status")
	if code != http.StatusOK || !strings.Contains(text, `"version"`) {
		t.Errorf("over TCP: %d and %s, want the version", code, text)
	}
	for _, secret := range []string{"other", "br0", "br1"} {
		if strings.Contains(text, secret) {
			t.Errorf("over TCP the status has %q: %s", secret, text)
		}
	}
	if _, text := body(status.Client(dir), "http://hostd/status"); !strings.Contains(text, "br1") {
		t.Errorf("by the socket the status lacks a tenant: %s", text)
	}
	answer, err := http.Post("http://"+tcp.Addr().String()+"/connections/check", "", nil)
	if err != nil || answer.StatusCode != http.StatusForbidden {
		t.Errorf("check connections over TCP: got %v, %v", answer, err)
	}
	answer.Body.Close()
	if err := status.CheckConnections(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if err := status.CheckConnections(t.Context(), t.TempDir()); err != nil {
		t.Errorf("without a daemon: %v", err)
	}
}
