package guestrun

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unnest.io/unnest/internal/hostd/contain"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/metrics"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/vmm"
)

// A panic in what drives one guest ends that guest's run. Requests under way get an
// answer, and the next request begins a new run.
func TestPanicOfRun(t *testing.T) {
	g, _ := fakeGuest(t)
	log := new(bytes.Buffer)
	g.host.Panics = contain.New(metrics.New(), slog.New(slog.NewTextHandler(log, nil)))
	g.dial = func(context.Context, record.Guest) (vmm.VMM, error) { panic("bug in dial") }
	answered := false
	g.waiting[1] = func(hotplug.Reply) { panic("bug in reply") }
	g.waiting[2] = func(r hotplug.Reply) { answered = errors.Is(r.Err, contain.ErrPanic) }
	g.Run(t.Context())
	<-g.Done
	if !errors.Is(g.Err, contain.ErrPanic) || errors.Is(g.Err, ErrUnavailable) || !answered {
		t.Errorf("run ended with %v, request answered: %v; want a panic, and true", g.Err, answered)
	}
	if strings.Count(log.String(), `panic="bug in dial"`) != 1 || strings.Count(log.String(), `panic="bug in reply"`) != 1 {
		t.Errorf("log has not each panic once:\n%s", log)
	}
}
