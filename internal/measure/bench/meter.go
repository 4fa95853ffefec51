package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"unnest/internal/measure/cputime"
	"unnest/internal/testbed/place"
)

// meter reads the CPU time of a machine again and again, by a shell that stays:
// a reading starts no process there, so it takes next to no time and disturbs
// nothing.
type meter struct {
	ask  io.Writer
	read chan string // answers; closed when the shell has ended
	stop context.CancelFunc
}

// The first line of /proc/stat is the sum over all processors.
const meterScript = `while read -r _; do read -r line <` + statFile + `; echo "$line"; done`

var errMeterEnded = errors.New("read CPU time: the shell that reads it has ended")

// startMeter starts the shell in p. It lives until stop, or the end of ctx.
func startMeter(ctx context.Context, p place.Place) (*meter, error) {
	ctx, stop := context.WithCancel(ctx)
	in, ask := io.Pipe()
	answers, out := io.Pipe()
	process, err := p.Start(ctx, place.Command{Args: []string{"sh", "-c", meterScript}, Stdin: in, Stdout: out})
	if err != nil {
		stop()
		return nil, fmt.Errorf("start reading CPU time: %w", err)
	}
	hangUp := func() {
		_ = in.Close()
		_ = out.Close()
	}
	context.AfterFunc(ctx, hangUp)
	go func() {
		_ = process.Wait() // that it has ended is all that matters
		hangUp()
	}()
	m := &meter{ask: ask, read: make(chan string), stop: stop}
	go func() {
		defer close(m.read)
		for lines := bufio.NewScanner(answers); lines.Scan(); {
			select {
			case m.read <- lines.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return m, nil
}

// times returns the CPU time spent since the machine booted. A meter that has
// failed once must not be used again: a late answer would be taken for the next.
func (m *meter) times(ctx context.Context) (cputime.Times, error) {
	go func() { _, _ = io.WriteString(m.ask, "\n") }() // one that fails gets no answer
	select {
	case line, ok := <-m.read:
		if !ok {
			return cputime.Times{}, errMeterEnded
		}
		return cputime.Parse([]byte(line + "\n"))
	case <-ctx.Done():
		return cputime.Times{}, fmt.Errorf("read CPU time: %w", context.Cause(ctx))
	}
}
