package place

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestContainerMissing(t *testing.T) {
	err := Run(t.Context(), Container{Place: Local{}, Engine: newEngine(t), Name: "db"}, "true")
	if err == nil || err.Error() != "true on container db in this host: exit code 1: engine: no such container: db" {
		t.Errorf("got %v; want the engine's words", err)
	}
}

func TestContainerWithoutEngine(t *testing.T) {
	err := Run(t.Context(), Container{Place: Local{}, Engine: "no-such-engine", Name: "web"}, "true")
	if err == nil || !strings.Contains(err.Error(), "start no-such-engine on this host") {
		t.Errorf("got %v; want an error that names the engine", err)
	}
}

// An engine that does not answer does not block a caller that has stopped waiting.
func TestContainerEngineStuck(t *testing.T) {
	stuck := strings.Replace(engine, "[ $interactive = yes ] || exec </dev/null", "[ $interactive = yes ] || sleep 181.25", 1)
	path := filepath.Join(t.TempDir(), "engine")
	if err := os.WriteFile(path, []byte(stuck), 0o755); err != nil {
		t.Fatal(err)
	}
	before := notes(t)
	ctx, cancel := context.WithCancel(t.Context())
	process, err := Container{Place: Local{}, Engine: path, Name: "web"}.Start(ctx, Command{Args: []string{"sleep", "181.25"}})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); len(notes(t)) == len(before) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	defer func() { // what the engine did not do
		for _, file := range notes(t) {
			if slices.Contains(before, file) {
				continue
			}
			if err := Run(t.Context(), Local{}, killCommand(file)...); err != nil {
				t.Error(err)
			}
		}
	}()
	cancel()
	start := time.Now()
	if err := process.Wait(); err == nil {
		t.Error("the dropped command ended without error")
	}
	if d := time.Since(start); d > patience {
		t.Errorf("took %v to give up", d)
	}
}

// recorder keeps the context of the first command.
type recorder struct {
	Place
	first *context.Context
}

func (r recorder) Start(ctx context.Context, c Command) (Process, error) {
	if *r.first == nil {
		*r.first = ctx
	}
	return r.Place.Start(ctx, c)
}

// The engine ends for the reason for which its command ends, which says how long a machine may take.
func TestContainerCause(t *testing.T) {
	ctx, done := UntilDone(t.Context())
	var outer context.Context
	process, err := Container{Place: recorder{Local{}, &outer}, Engine: newEngine(t), Name: "web"}.Start(ctx, Command{Args: []string{"sleep", "181.25"}})
	if err != nil {
		t.Fatal(err)
	}
	done()
	if err := process.Wait(); err == nil {
		t.Error("got no error of a killed command")
	}
	if cause := context.Cause(outer); !errors.Is(cause, errDone) {
		t.Errorf("the engine ended by %v, want %v", cause, errDone)
	}
}
