package place

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// ExitError is the error for a command that ended with a code other than 0.
type ExitError struct {
	Place  string
	Args   []string
	Code   int    // when killed by a signal -1 on this machine, 128 plus its number elsewhere
	Stderr string // its last lines
}

func (e *ExitError) Error() string {
	text := fmt.Sprintf("%s on %s: exit code %d", e.Args[0], e.Place, e.Code)
	if e.Code < 0 {
		text = fmt.Sprintf("%s on %s: killed", e.Args[0], e.Place)
	}
	if lines := complaint(e.Stderr, 3); len(lines) > 0 {
		text += ": " + strings.Join(lines, " | ")
	}
	return text
}

// Run runs a command in p and waits for its end.
func Run(ctx context.Context, p Place, args ...string) error {
	_, err := Output(ctx, p, args...)
	return err
}

// Output runs a command in p and returns its standard output. When ctx ends first, the
// error wraps its cause.
func Output(ctx context.Context, p Place, args ...string) ([]byte, error) {
	var out bytes.Buffer
	process, err := p.Start(ctx, Command{Args: args, Stdout: &out})
	if err != nil {
		return nil, err
	}
	err = process.Wait()
	if ctx.Err() != nil {
		return out.Bytes(), fmt.Errorf("%s on %s: %w", args[0], p, context.Cause(ctx))
	}
	return out.Bytes(), err
}
