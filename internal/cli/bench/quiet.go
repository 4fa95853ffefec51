package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/noise/procfs"
)

// Times of the look at the machine before a run.
const (
	lookTime = time.Second
	waitTime = 30 * time.Second
)

// awaitQuiet looks at this machine until no other process keeps it busy, for at most
// waitTime.
func awaitQuiet(ctx context.Context, streams terminal.Streams, look func(context.Context) (noise.Reading, error)) error {
	end := time.Now().Add(waitTime)
	for told := false; ; told = true {
		r, err := look(ctx)
		if err != nil || !r.Disturbed() {
			return err
		}
		if time.Now().After(end) {
			fmt.Fprintf(streams.Err, "warning: %s: this run may be too noisy to conclude\n", r)
			return nil
		}
		if !told {
			fmt.Fprintf(streams.Err, "%s: waiting up to %s for a quiet machine; --noisy begins at once\n", r, waitTime)
		}
	}
}

// look says what other processes do for a moment.
func look(ctx context.Context) (noise.Reading, error) {
	before, err := procfs.Read()
	if err != nil {
		return noise.Reading{}, err
	}
	select {
	case <-ctx.Done():
		return noise.Reading{}, context.Cause(ctx)
	case <-time.After(lookTime):
	}
	after, err := procfs.Read()
	if err != nil {
		return noise.Reading{}, err
	}
	return after.Since(before, os.Getpid())
}
