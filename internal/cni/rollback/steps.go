// Package rollback does the steps of an ADD in order and, when one fails, takes back
// what has been done.
//
// What the steps are belongs to the plugins.
package rollback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Step is one part of an ADD.
type Step struct {
	Name string
	Do   func(ctx context.Context) error
	// Undo takes the step back, whether it was done, half done or not begun to
	// have an effect; nil when there is nothing to take back.
	Undo func(ctx context.Context) error
}

// undoTime bounds the undo of one step, which goes on when the ADD's own time
// has run out.
const undoTime = time.Minute

// Took is how long a step has lasted.
type Took struct {
	Step string
	Time time.Duration
}

// Run does the steps in order. When one fails, it and those before it are undone
// in reverse order, and the errors of that are in the error as well.
func Run(ctx context.Context, steps []Step) ([]Took, error) {
	var times []Took
	for i, s := range steps {
		begin := time.Now()
		err := s.Do(ctx)
		times = append(times, Took{s.Name, time.Since(begin)})
		if err != nil {
			return times, errors.Join(fmt.Errorf("%s: %w", s.Name, err), undo(ctx, steps[:i+1]))
		}
	}
	return times, nil
}

func undo(ctx context.Context, done []Step) error {
	var all error
	for i := len(done) - 1; i >= 0; i-- {
		if done[i].Undo == nil {
			continue
		}
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		if err := done[i].Undo(bound); err != nil {
			all = errors.Join(all, fmt.Errorf("undo %s: %w", done[i].Name, err))
		}
		cancel()
	}
	return all
}

// Log writes one line with how long each step of the ADD took, after the attributes
// that tell whose it was.
func Log(w io.Writer, whose []slog.Attr, times []Took, err error) {
	for _, t := range times {
		whose = append(whose, slog.Duration(t.Step, t.Time))
	}
	l := slog.New(slog.NewTextHandler(w, nil))
	if err != nil {
		l.LogAttrs(context.Background(), slog.LevelError, "add", append(whose, slog.Any("error", err))...)
		return
	}
	l.LogAttrs(context.Background(), slog.LevelInfo, "add", whose...)
}
