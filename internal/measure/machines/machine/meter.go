package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"unnest.io/unnest/internal/testbed/place"
)

// Meter reads CPU times through a shell that keeps running. A reading starts no process in its
// place, so it takes very little time and CPU.
type Meter struct {
	stdin io.Writer   // of the shell
	lines chan string // of its output; closed when the shell has ended
	Stop  func()
}

// The scripts of meters. The first line of /proc/stat is the sum over all processors. A process
// is named by its ID.
const (
	machineMeter = `while read -r _; do read -r line <` + statFile + `; echo "$line"; done`
	ProcessMeter = `while read -r id; do line=; read -r line <"/proc/$id/stat"; echo "$line"; done`
)

var errMeterEnded = errors.New("read CPU time: the shell that reads it has ended")

// StartMeter starts a shell with a script in p. It runs until stop, or the end of ctx.
func StartMeter(ctx context.Context, p place.Place, script string) (*Meter, error) {
	ctx, stop := place.UntilDone(ctx)
	in, stdin := io.Pipe()
	answers, out := io.Pipe()
	process, err := p.Start(ctx, place.Command{Args: []string{"sh", "-c", script}, Stdin: in, Stdout: out})
	if err != nil {
		stop()
		return nil, fmt.Errorf("start reading CPU time: %w", err)
	}
	closePipes := func() { _, _ = in.Close(), out.Close() }
	context.AfterFunc(ctx, closePipes)
	go func() {
		_ = process.Wait()
		closePipes()
	}()
	m := &Meter{stdin: stdin, lines: make(chan string), Stop: stop}
	go func() {
		defer close(m.lines)
		for lines := bufio.NewScanner(answers); lines.Scan(); {
			select {
			case m.lines <- lines.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return m, nil
}

// Read returns a line with CPU times, of the process if the script wants one. Do not use a
// meter again that has failed: a late answer would be taken for that of the next reading.
func (m *Meter) Read(ctx context.Context, process string) ([]byte, error) {
	go func() { _, _ = io.WriteString(m.stdin, process+"\n") }() // after a failure there is no answer
	select {
	case line, ok := <-m.lines:
		if !ok {
			return nil, errMeterEnded
		}
		return []byte(line + "\n"), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("read CPU time: %w", context.Cause(ctx))
	}
}
