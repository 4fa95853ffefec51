package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Step is one step of an ADD.
type Step struct {
	Name string
	Do   func(ctx context.Context) error
	// Undo rolls the step back, whether it was done, done in part or had no effect.
	// It is nil when there is nothing to roll back.
	Undo func(ctx context.Context) error
}

// undoTime bounds the rollback of one step. It applies also after the ADD's own
// context has ended.
const undoTime = time.Minute

// RunSteps runs the steps in order. When one fails, RunSteps rolls it and all before
// it back in reverse order, and joins the errors. If log is not nil, RunSteps writes
// one line to it, with the attributes about and the duration of each step.
func RunSteps(ctx context.Context, steps []Step, log io.Writer, about func() []slog.Attr) error {
	var times []slog.Attr
	var failed error
	for i, s := range steps {
		begin := time.Now()
		err := s.Do(ctx)
		times = append(times, slog.Duration(s.Name, time.Since(begin)))
		if err != nil {
			failed = errors.Join(fmt.Errorf("%s: %w", s.Name, err), undo(ctx, steps[:i+1]))
			break
		}
	}
	if log != nil {
		level := slog.LevelInfo
		if failed != nil {
			level, times = slog.LevelError, append(times, slog.Any("error", failed))
		}
		slog.New(slog.NewTextHandler(log, nil)).LogAttrs(ctx, level, "add", append(about(), times...)...)
	}
	return failed
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
