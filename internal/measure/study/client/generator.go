package client

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"unnest.io/unnest/internal/measure/machines/output"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// generator is the load generator of an application while it runs. It connects and prepares the
// server, and loads it when it is told to begin, so that no CPU time of its start is counted.
type generator struct {
	in, told *os.File // a pipe: what the generator reads
	err      error    // of making the pipe
	said     output.Watch
	prepared <-chan string // receives when the generator waits to be told
}

func newGenerator() *generator {
	g := &generator{}
	g.prepared = g.said.Await(workload.Prepared)
	g.in, g.told, g.err = os.Pipe()
	return g
}

// run runs the generator and returns what it prints.
func (g *generator) run(ctx context.Context, p place.Place, command []string) ([]byte, error) {
	if g.err != nil {
		return nil, g.err
	}
	defer func() { _, _ = g.in.Close(), g.told.Close() }()
	var out bytes.Buffer
	process, err := p.Start(ctx, place.Command{Args: command, Stdin: g.in, Stdout: &out, Stderr: &g.said})
	if err != nil {
		return nil, err
	}
	err = process.Wait()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s on %s: %w", command[0], p, context.Cause(ctx))
	}
	return out.Bytes(), err
}
