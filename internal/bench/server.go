package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"unnest/internal/place"
)

// serverPatience is how long a server may take until it takes clients. Entering
// a container takes a second or two in an emulated guest.
const serverPatience = 30 * time.Second

// startServers starts the commands in the target and waits until each is ready.
func startServers(ctx, serving context.Context, t *target, commands []serverCommand) error {
	var g errgroup.Group
	for _, c := range commands {
		g.Go(func() error {
			if err := startServer(ctx, serving, t.place, c); err != nil {
				return t.machines.explain(fmt.Errorf("start server %s: %w", c, err))
			}
			return nil
		})
	}
	return g.Wait()
}

func startServer(ctx, serving context.Context, p place.Place, c serverCommand) error {
	w := &watch{text: []byte(c.ready), found: make(chan struct{})}
	process, err := p.Start(serving, place.Command{Args: c.args, Stdout: w, Stderr: w})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	select {
	case <-w.found:
		return nil
	case err := <-ended:
		if err == nil {
			err = errors.New("exit code 0")
		}
		return fmt.Errorf("it ended at once: %w: %s", err, w)
	case <-time.After(serverPatience):
		return fmt.Errorf("it does not say %q after %v: %s", c.ready, serverPatience, w)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watch waits for a text in what is written to it.
type watch struct {
	text  []byte
	found chan struct{}
	mu    sync.Mutex
	seen  []byte
	done  bool
}

// watched is how much is kept to search in and to quote.
const watched = 4096

func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return len(p), nil
	}
	w.seen = append(w.seen, p...)
	if bytes.Contains(w.seen, w.text) {
		w.done = true
		close(w.found)
	}
	if extra := len(w.seen) - watched; extra > 0 {
		w.seen = append(w.seen[:0], w.seen[extra:]...)
	}
	return len(p), nil
}

func (w *watch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.TrimSpace(w.seen))
}
