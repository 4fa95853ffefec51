package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/attachment"
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
	most := problemBurst + problemRate*int(time.Since(begin)/time.Second+1)
	if got := len(log.with("msg=attach", "guest=node1")); got == 0 || got > most {
		t.Errorf("%d failed attaches wrote %d lines, want 1 to %d", tries, got, most)
	}
	d.logAttachment(t.Context(), "attach", GuestRecord{Name: "node2"}, attachment.Key{}, begin, errors.New("no slot"))
	if len(log.with("msg=attach", "guest=node2")) != 1 {
		t.Error("the failures of node1 suppress that of node2")
	}
	time.Sleep(1100 * time.Millisecond)
	attach()
	if len(log.with("msg=attach", "guest=node1", "suppressed=")) == 0 {
		t.Errorf("no line says how many were suppressed; log:\n%s", strings.Join(log.with("msg=attach"), ""))
	}
}

func TestLimitedLog(t *testing.T) { synctest.Test(t, testLimitedLog) }

func testLimitedLog(t *testing.T) {
	lines := &logLines{}
	log := newLimitedLog(lines.logger()).With("guest", "node1").WithGroup("g")
	for i := range 2 * routineBurst {
		log.Warn("problem", "i", i)
		log.Info("routine", "i", i)
	}
	if p, r := len(lines.with("problem", "guest=node1")), len(lines.with("routine")); p != problemBurst || r != routineBurst {
		t.Errorf("%d problems and %d routine lines, want %d and %d", p, r, problemBurst, routineBurst)
	}
	time.Sleep(1100 * time.Millisecond)
	log.Warn("problem")
	want := fmt.Sprintf("suppressed=%d", 2*routineBurst-problemBurst)
	if len(lines.with("problem", want)) != 1 {
		t.Errorf("no line has %q", want)
	}
}
