package rollback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// recorded are n steps that write down what happens; step fails fails, counted
// from 0, and so does the undo of the first.
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

func TestRunUndoesInReverse(t *testing.T) {
	for fails := range 3 {
		var got, want []string
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the undo goes on all the same
		times, err := Run(ctx, recorded(3, fails, &got))
		for i := range fails + 1 {
			want = append(want, fmt.Sprintf("s%d", i))
		}
		for i := fails; i >= 0; i-- {
			want = append(want, fmt.Sprintf("undo s%d", i))
		}
		if !slices.Equal(got, want) || len(times) != fails+1 {
			t.Errorf("step %d fails: got %v with %d times, want %v", fails, got, len(times), want)
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("s%d: cause", fails)) || !strings.Contains(err.Error(), "undo s0: stuck") {
			t.Errorf("step %d fails: got error %v", fails, err)
		}
	}
}

func TestRunUndoesNothingOnSuccess(t *testing.T) {
	var got []string
	times, err := Run(t.Context(), recorded(3, -1, &got))
	if err != nil || !slices.Equal(got, []string{"s0", "s1", "s2"}) || len(times) != 3 || times[2].Step != "s2" {
		t.Errorf("got %v, times %v, error %v", got, times, err)
	}
}

func TestRunSkipsStepsWithoutUndo(t *testing.T) {
	var got []string
	steps := recorded(3, 2, &got)
	steps[1].Undo = nil
	_, err := Run(t.Context(), steps)
	if want := []string{"s0", "s1", "s2", "undo s2", "undo s0"}; err == nil || !slices.Equal(got, want) {
		t.Errorf("got %v, error %v, want %v", got, err, want)
	}
}
