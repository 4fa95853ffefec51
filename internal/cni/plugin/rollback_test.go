package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// recorded returns n steps that record their events. The step with index fails
// returns an error, and so does the undo of the first.
func recorded(n, fails int, events *[]string) []Step {
	var steps []Step
	for i := range n {
		name := fmt.Sprintf("s%d", i)
		steps = append(steps, Step{
			Name: name,
			Do: func(context.Context) error {
				*events = append(*events, name)
				if i == fails {
					return errors.New("cause")
				}
				return nil
			},
			Undo: func(ctx context.Context) error {
				*events = append(*events, "undo "+name)
				if i == 0 {
					return errors.New("stuck")
				}
				return ctx.Err()
			},
		})
	}
	return steps
}

func about() []slog.Attr { return []slog.Attr{slog.String("container", "c1")} }

func TestRunUndoesInReverse(t *testing.T) {
	for fails := range 3 {
		var got, want []string
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the rollback has its own context
		err := RunSteps(ctx, recorded(3, fails, &got), &log, about)
		for i := range fails + 1 {
			want = append(want, fmt.Sprintf("s%d", i))
		}
		for i := fails; i >= 0; i-- {
			want = append(want, fmt.Sprintf("undo s%d", i))
		}
		if !slices.Equal(got, want) {
			t.Errorf("step %d fails: got %v, want %v", fails, got, want)
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("s%d: cause", fails)) || !strings.Contains(err.Error(), "undo s0: stuck") {
			t.Errorf("step %d fails: got error %v", fails, err)
		}
		if line := log.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, fmt.Sprintf(" s%d=", fails)) ||
			strings.Contains(line, fmt.Sprintf(" s%d=", fails+1)) ||
			!strings.Contains(line, "level=ERROR msg=add container=c1 s0=") || !strings.Contains(line, "error=") {
			t.Errorf("step %d fails: the log is %q", fails, line)
		}
	}
}

func TestRunUndoesNothingOnSuccess(t *testing.T) {
	var got []string
	var log bytes.Buffer
	err := RunSteps(t.Context(), recorded(3, -1, &got), &log, about)
	if err != nil || !slices.Equal(got, []string{"s0", "s1", "s2"}) {
		t.Errorf("got %v, error %v", got, err)
	}
	if line := log.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, "level=INFO msg=add container=c1 s0=") ||
		!strings.Contains(line, " s2=") || strings.Contains(line, "error=") {
		t.Errorf("the log is %q", line)
	}
}

func TestRunSkipsStepsWithoutUndo(t *testing.T) {
	var got []string
	steps := recorded(3, 2, &got)
	steps[1].Undo = nil
	err := RunSteps(t.Context(), steps, nil, nil)
	if want := []string{"s0", "s1", "s2", "undo s2", "undo s0"}; err == nil || !slices.Equal(got, want) {
		t.Errorf("got %v, error %v, want %v", got, err, want)
	}
}
