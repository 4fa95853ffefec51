package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"unnest.io/unnest/internal/testbed/place"
)

// StartEngine starts the container engine of a guest, which is reached as in, unless it runs. A long
// start is reported to f.Progress. An engine that is not ready within the guest's time is given up,
// with the end of its log.
func (f *Fleet) StartEngine(ctx context.Context, n *Node, in place.Place) error {
	notice, limit := n.Patience()
	return f.startEngine(ctx, n.Name, in, notice, limit, n.LogTails)
}

// logLimit is how long the guest may take to print the end of a log.
const logLimit = 10 * time.Second

var errEngine = errors.New("container engine is not ready")

func (f *Fleet) startEngine(ctx context.Context, name string, in place.Place, notice, limit time.Duration, tails func() string) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errEngine)
	defer cancel()
	ended := make(chan error, 1)
	begin := time.Now()
	go func() { ended <- place.Run(limited, in, "/etc/unnest/engine") }()
	for {
		select {
		case err := <-ended:
			if err != nil && errors.Is(context.Cause(limited), errEngine) && ctx.Err() == nil {
				return fmt.Errorf("guest %s: %w after %v: %s", name, errEngine, limit, engineLog(ctx, in, tails))
			}
			return err
		case <-time.After(notice):
			notice *= 2
			if f.Progress != nil {
				f.Progress(fmt.Sprintf("the container engine of guest %s is not ready after %.0f s: %s", name, time.Since(begin).Seconds(), engineLog(ctx, in, tails)))
			}
		}
	}
}

// engineLog returns the end of the engine's log, on one line. A guest that does not print it may hang: then tails are those of its own logs.
func engineLog(ctx context.Context, in place.Place, tails func() string) string {
	ctx, cancel := context.WithTimeout(ctx, logLimit)
	defer cancel()
	out, err := place.Output(ctx, in, "sh", "-c", "tail -n 2 /var/log/dockerd.log 2>/dev/null || tail -n 2 /var/log/containerd.log")
	if err != nil {
		return "its log cannot be read: " + err.Error() + tails()
	}
	return string(bytes.ReplaceAll(bytes.TrimSpace(out), []byte("\n"), []byte(" | ")))
}

// Load gives guests the container images of an archive (OCI, or as of `docker save`), in a namespace
// of containerd. open is called once for each guest.
func (f *Fleet) Load(ctx context.Context, names []string, namespace string, open func() (io.ReadCloser, error)) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		g.Go(func() error {
			archive, err := open()
			if err != nil {
				return err
			}
			defer archive.Close()
			if err := f.load(ctx, name, namespace, archive); err != nil {
				return fmt.Errorf("load images into guest %s: %w", name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (f *Fleet) load(ctx context.Context, name, namespace string, archive io.Reader) error {
	n, err := f.Find(name)
	if err != nil {
		return err
	}
	ssh, err := f.Reach(ctx, n)
	if err != nil {
		return err
	}
	defer ssh.Close()
	if err := f.StartEngine(ctx, n, ssh); err != nil {
		return err
	}
	p, err := ssh.Start(ctx, place.Command{Args: []string{"ctr", "--namespace", namespace, "images", "import", "-"}, Stdin: archive})
	if err != nil {
		return err
	}
	return p.Wait()
}
