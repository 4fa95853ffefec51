package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"unnest/internal/testbed/place"
)

// StartEngine starts the container engine of a guest, which is reached as in, unless it runs. A long
// start is reported to f.Progress. An engine that is not ready within the guest's time is given up,
// with the end of its log.
func (f *Fleet) StartEngine(ctx context.Context, n *Node, in place.Place) error {
	notice, limit := n.Patience()
	return f.startEngine(ctx, n.Name, in, notice, limit)
}

// logLimit is how long the guest may take to print the end of a log.
const logLimit = 10 * time.Second

var errEngine = errors.New("container engine is not ready")

func (f *Fleet) startEngine(ctx context.Context, name string, in place.Place, notice, limit time.Duration) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errEngine)
	defer cancel()
	ended := make(chan error, 1)
	begin := time.Now()
	go func() { ended <- place.Run(limited, in, "/etc/unnest/engine") }()
	for {
		select {
		case err := <-ended:
			if err != nil && errors.Is(context.Cause(limited), errEngine) && ctx.Err() == nil {
				return fmt.Errorf("guest %s: %w after %v: %s", name, errEngine, limit, engineLog(ctx, in))
			}
			return err
		case <-time.After(notice):
			notice *= 2
			if f.Progress != nil {
				f.Progress(fmt.Sprintf("the container engine of guest %s is not ready after %.0f s: %s", name, time.Since(begin).Seconds(), engineLog(ctx, in)))
			}
		}
	}
}

// engineLog returns the end of the engine's log, on one line.
func engineLog(ctx context.Context, in place.Place) string {
	ctx, cancel := context.WithTimeout(ctx, logLimit)
	defer cancel()
	out, err := place.Output(ctx, in, "tail", "-n", "2", "/var/log/containerd.log")
	if err != nil {
		return "its log cannot be read: " + err.Error()
	}
	return string(bytes.ReplaceAll(bytes.TrimSpace(out), []byte("\n"), []byte(" | ")))
}
