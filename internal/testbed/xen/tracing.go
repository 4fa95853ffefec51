package xen

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/testbed/place"
)

//go:embed scripts/trace
var traceScript string

// tracePatience is how long xentrace may take to begin, and how long its records may take to come. An emulated dom0 is slow.
const tracePatience = time.Minute

// Tracing records what Xen's scheduler does.
type Tracing struct {
	input   io.Closer // of the script, which records until its input ends
	kill    context.CancelFunc
	process place.Process
	printed traceOutput
}

// Trace begins to record, and returns when Xen records. Call Stop. If ctx ends before, the recording is
// killed, but Xen goes on until the next one ends, or Remove.
func (h *Host) Trace(ctx context.Context) (_ *Tracing, err error) {
	ctx, kill := context.WithCancel(ctx)
	input, end := io.Pipe()
	t := &Tracing{input: end, kill: kill, printed: traceOutput{begun: make(chan struct{})}}
	args := []string{"sh", "-c", traceScript, "trace", h.Dir}
	if t.process, err = h.Dom0.Start(ctx, place.Command{Args: args, Stdin: input, Stdout: &t.printed}); err != nil {
		kill()
		return nil, fmt.Errorf("trace Xen's scheduler: %w", err)
	}
	select {
	case <-t.printed.begun:
		if len(t.printed.line) > 0 {
			return t, nil
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(tracePatience):
		kill()
		err = fmt.Errorf("it records nothing for %v", tracePatience)
	}
	return nil, fmt.Errorf("trace Xen's scheduler: %w", errors.Join(err, t.end()))
}

// Stop ends the recording and reads it.
func (t *Tracing) Stop() (Trace, error) {
	if err := t.end(); err != nil {
		return Trace{}, fmt.Errorf("trace Xen's scheduler: %w", err)
	}
	mhz, err := strconv.ParseFloat(strings.TrimSpace(string(t.printed.line)), 64)
	if err != nil {
		return Trace{}, fmt.Errorf("trace Xen's scheduler: frequency of the processors: %w", err)
	}
	return ParseTrace(t.printed.records.Bytes(), mhz)
}

// end ends the script, and kills it if it does not end in time.
func (t *Tracing) end() error {
	defer time.AfterFunc(tracePatience, t.kill).Stop()
	defer t.kill()
	err := t.input.Close()
	return errors.Join(t.process.Wait(), err)
}

// traceOutput takes what the script prints: a line, and records.
type traceOutput struct {
	line    []byte        // without its end
	begun   chan struct{} // closed after the line
	ended   bool          // the line
	records bytes.Buffer
}

func (o *traceOutput) Write(p []byte) (int, error) {
	if o.ended {
		return o.records.Write(p)
	}
	line, rest, ended := bytes.Cut(p, []byte("\n"))
	o.line = append(o.line, line...)
	if ended {
		o.ended = true
		close(o.begun)
		_, _ = o.records.Write(rest) // never fails
	}
	return len(p), nil
}
