package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// restoreLimit is how long QEMU may take to start and to read the state of the devices.
const restoreLimit = 30 * time.Second

// restore starts a guest from c.Snapshot. When it returns, the guest runs, and has been
// told to take its seed.
func (c Config) restore(ctx context.Context) (_ *Guest, err error) {
	ctx, cancel := context.WithTimeout(ctx, restoreLimit)
	defer cancel()
	seed, err := c.Seed.Archive()
	if err != nil {
		return nil, err
	}
	if len(seed) > seedRoom {
		return nil, fmt.Errorf("its seed has %d bytes: want at most %d", len(seed), seedRoom)
	}
	seed = append(seed, make([]byte, seedRoom-len(seed))...)
	q := c
	q.Slots = frozenSlots(c.Slots)
	g, control, err := q.startControlled(ctx, seed, false)
	if err != nil {
		return nil, err
	}
	g.Config = c
	if err := g.thaw(ctx, control); err != nil {
		return nil, errors.Join(g.because(err), g.Kill(), control.close())
	}
	go func() { // until QEMU or this process ends: output that nobody reads would stop the guest
		_, _ = io.Copy(io.Discard, control.console)
		_ = control.console.Close()
	}()
	return g, control.monitor.Close()
}

// thaw loads the state of the devices, lets the guest run, and tells it how long its
// clock has stood still.
func (g *Guest) thaw(ctx context.Context, control *control) error {
	devices, err := os.Open(g.Snapshot.path(deviceFile))
	if err != nil {
		return err
	}
	defer devices.Close()
	if err := control.monitor.LoadState(ctx, devices); err != nil {
		return err
	}
	if g.resumed, err = control.monitor.Cont(ctx); err != nil {
		return err
	}
	return control.say("restore %+.6f", g.Snapshot.lag(g.resumed).Seconds())
}
