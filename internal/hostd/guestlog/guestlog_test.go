package guestlog

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimitedLog(t *testing.T) { synctest.Test(t, testLimitedLog) }

func testLimitedLog(t *testing.T) {
	lines := new(bytes.Buffer)
	log := Limit(slog.New(slog.NewTextHandler(lines, nil))).With("guest", "node1").WithGroup("g")
	for i := range 2 * routineBurst {
		log.Warn("problem", "i", i)
		log.Info("routine", "i", i)
	}
	if p, r := strings.Count(lines.String(), "msg=problem guest=node1"), strings.Count(lines.String(), "msg=routine"); p != problemBurst || r != routineBurst {
		t.Errorf("%d problems and %d routine lines, want %d and %d", p, r, problemBurst, routineBurst)
	}
	time.Sleep(1100 * time.Millisecond)
	log.Warn("problem")
	want := fmt.Sprintf("suppressed=%d", 2*routineBurst-problemBurst)
	if last := lines.String()[strings.LastIndex(lines.String(), "time="):]; !strings.Contains(last, "msg=problem") || strings.Count(lines.String(), want) != 1 {
		t.Errorf("no line has %q", want)
	}
}
