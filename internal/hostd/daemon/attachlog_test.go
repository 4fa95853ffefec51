package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// A guest whose attaches all fail writes a bounded number of lines, and does not suppress
// another guest's.
func TestFailedAttachesAreLoggedWithLimit(t *testing.T) {
	dir := t.TempDir()
	d, log := testDaemon(t, dir)
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	client := dial(t, serveTest(t, d, dir), config)
	const tries = 200
	attach := func() {
		_, _ = client.AttachNIC(t.Context(), &hostdpb.AttachNICRequest{ContainerId: "c", Interface: "eth0"})
	}
	begin := time.Now()
	for range tries {
		attach()
	}
	const problemBurst, problemRate = 10, 1 // of package guestlog
	most := problemBurst + problemRate*int(time.Since(begin)/time.Second+1)
	if got := len(log.with("msg=attach", "guest=node1")); got == 0 || got > most {
		t.Errorf("%d failed attaches wrote %d lines, want 1 to %d", tries, got, most)
	}
	d.logs.Of("node2").Error("attach", "guest", "node2", "error", errors.New("no slot"))
	if len(log.with("msg=attach", "guest=node2")) != 1 {
		t.Error("the failures of node1 suppress that of node2")
	}
	time.Sleep(1100 * time.Millisecond)
	attach()
	if len(log.with("msg=attach", "guest=node1", "suppressed=")) == 0 {
		t.Errorf("no line says how many were suppressed; log:\n%s", strings.Join(log.with("msg=attach"), ""))
	}
}
