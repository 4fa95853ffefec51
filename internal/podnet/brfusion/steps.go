package brfusion

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// step is one part of an ADD.
type step struct {
	name string
	do   func(ctx context.Context) error
	// undo takes the step back, whether it was done, half done or not begun to
	// have an effect; nil when there is nothing to take back.
	undo func(ctx context.Context) error
}

// undoTime bounds the undo of one step, which goes on when the ADD's own time
// has run out.
const undoTime = time.Minute

// took is how long a step has lasted.
type took struct {
	step string
	time time.Duration
}

// run does the steps in order. When one fails, it and those before it are undone
// in reverse order, and the errors of that are in the error as well.
func run(ctx context.Context, steps []step) ([]took, error) {
	var times []took
	for i, s := range steps {
		begin := time.Now()
		err := s.do(ctx)
		times = append(times, took{s.name, time.Since(begin)})
		if err != nil {
			return times, errors.Join(fmt.Errorf("%s: %w", s.name, err), undo(ctx, steps[:i+1]))
		}
	}
	return times, nil
}

func undo(ctx context.Context, done []step) error {
	var all error
	for i := len(done) - 1; i >= 0; i-- {
		if done[i].undo == nil {
			continue
		}
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		if err := done[i].undo(bound); err != nil {
			all = errors.Join(all, fmt.Errorf("undo %s: %w", done[i].name, err))
		}
		cancel()
	}
	return all
}
