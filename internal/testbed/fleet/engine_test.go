package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/place"
)

// slowEngine is a guest, on this host, whose engine takes a time.
type slowEngine struct {
	place.Local
	seconds string
	hangs   bool // and prints no log
}

func (s slowEngine) Start(ctx context.Context, c place.Command) (place.Process, error) {
	switch {
	case c.Args[0] == "/etc/unnest/engine":
		c.Args = []string{"sleep", s.seconds}
	case s.hangs:
		c.Args = []string{"false"}
	default:
		c.Args = []string{"printf", `level=info\nlevel=error\n`}
	}
	return s.Local.Start(ctx, c)
}

// A long start is reported with the end of the log, and given up in the end.
func TestStartEngine(t *testing.T) {
	var steps []string
	f := &Fleet{Progress: func(step string) { steps = append(steps, step) }}
	tails := func() string { return "; console.log ends: Kernel panic" }
	if err := f.startEngine(t.Context(), "node1", slowEngine{seconds: "0"}, time.Minute, time.Minute, tails); err != nil || steps != nil {
		t.Errorf("an engine that starts: %v, %q", err, steps)
	}
	err := f.startEngine(t.Context(), "node1", slowEngine{seconds: "60"}, time.Second, 5*time.Second, tails)
	if err == nil || err.Error() != "guest node1: container engine is not ready after 5s: level=info | level=error" {
		t.Errorf("an engine that hangs: %v", err)
	}
	err = (&Fleet{}).startEngine(t.Context(), "node1", slowEngine{seconds: "60", hangs: true}, time.Minute, time.Second, tails)
	if err == nil || !strings.Contains(err.Error(), "not ready after 1s: its log cannot be read: ") || !strings.HasSuffix(err.Error(), "; console.log ends: Kernel panic") {
		t.Errorf("a guest that hangs: %v", err)
	}
	want := []string{
		"the container engine of guest node1 is not ready after 1 s: level=info | level=error",
		"the container engine of guest node1 is not ready after 3 s: level=info | level=error",
	}
	if !slices.Equal(steps, want) {
		t.Errorf("reported %q, want %q", steps, want)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("told to stop")
	time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	if err := f.startEngine(ctx, "node1", slowEngine{seconds: "60"}, time.Minute, time.Minute, tails); err == nil || errors.Is(err, errEngine) {
		t.Errorf("the caller's end: %v", err)
	}
}
