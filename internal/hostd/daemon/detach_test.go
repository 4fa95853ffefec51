package daemon

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/status"
)

// The operator sees for how long each pod has had its NIC, also after the daemon was killed, and takes
// back one that nobody gives back. The slot is free then, and the other pods keep theirs.
func TestDetachForOperator(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.boot(1, 2)
	begin := time.Now().Truncate(time.Second)
	l.serve(patience)
	m.mustAttach("stale")
	m.mustAttach("running")
	m.wantNoSlot("unnest hostd detach")
	ask := func() (nics []status.NIC) {
		s, err := status.Ask(t.Context(), l.dir)
		l.check(err)
		for _, g := range s.Guests {
			nics = append(nics, g.NICs...)
		}
		return nics
	}
	since := map[string]time.Time{}
	for _, n := range ask() {
		since[n.Container] = n.Since
		if n.Since.Before(begin) || n.Since.After(time.Now()) {
			t.Errorf("%s has its NIC since %v, want since %v", n.Container, n.Since, begin)
		}
	}
	m.mustAttach("running") // again: it is no new NIC
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(patience)
	if _, err := m.client().Status(t.Context(), &hostdpb.StatusRequest{}); err != nil { // it is taken over
		t.Fatal(err)
	}
	for _, n := range ask() {
		if !n.Since.Equal(since[n.Container]) {
			t.Errorf("after a restart %s has its NIC since %v, want %v", n.Container, n.Since, since[n.Container])
		}
	}
	if err := status.Detach(t.Context(), l.dir, status.Detachment{Guest: "node9", Container: "stale", Interface: "eth0"}); err == nil || !strings.Contains(err.Error(), `no such guest: "node9"`) {
		t.Errorf("of another guest: got %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- status.Detach(t.Context(), l.dir, status.Detachment{Guest: m.record.Name, Container: "stale", Interface: "eth0"})
	}()
	l.eventually("the guest is asked", func() bool {
		return slices.ContainsFunc(ask(), func(n status.NIC) bool { return n.Container == "stale" && n.State == "detaching" })
	})
	m.reset()
	l.check(<-ended)
	if nics := ask(); slices.ContainsFunc(nics, func(n status.NIC) bool { return n.Container == "stale" }) {
		t.Errorf("after the detachment the guest has %+v", nics)
	}
}

// Only root of the host detaches.
func TestDetachOverTCP(t *testing.T) {
	d, _ := testDaemon(t, t.TempDir())
	w := httptest.NewRecorder()
	d.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/nics/detach", strings.NewReader(`{"guest":"node1"}`)))
	if w.Code != http.StatusForbidden {
		t.Errorf("got %d, want %d", w.Code, http.StatusForbidden)
	}
}
