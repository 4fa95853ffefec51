package guestrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unnest.io/unnest/internal/hostd/contain"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/vmm"
)

// Run serves the guest until ctx or the connection ends. Requests under way fail then.
func (g *Guest) Run(ctx context.Context) {
	defer close(g.Done)
	what := "run of guest " + g.Record.Name
	err := g.host.Panics.Contain(what, func() error { return g.serve(ctx) })
	switch {
	case errors.Is(err, contain.ErrPanic):
		g.Err = fmt.Errorf("guest %s: %w", g.Record.Name, err)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
		fallthrough
	default:
		g.Err = fmt.Errorf("guest %s: %w: %w", g.Record.Name, ErrUnavailable, err)
	}
	for _, reply := range g.waiting {
		_ = g.host.Panics.Contain(what, func() error { reply(hotplug.Reply{Err: g.Err}); return nil })
	}
}

func (g *Guest) serve(ctx context.Context) error {
	if err := g.connect(ctx); err != nil {
		if !errors.Is(err, vmm.ErrNotRunning) {
			err = errors.Join(err, g.guardBootNICs())
		}
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer g.vmm.Close()
	defer g.pid.Store(0)
	defer g.endOffer(ctx)
	if err := g.guardBootNICs(); err != nil {
		return err
	}
	g.findOwnNICs(ctx, "")
	begin := time.Now()
	if err := g.observe(ctx); err != nil {
		return err
	}
	g.releaseEnded()
	g.log.Info("take over", "attachments", g.nics.count(), "total", time.Since(begin))
	failed := make(chan error, 1)
	wg.Go(func() {
		failed <- g.host.Panics.Contain("events of guest "+g.Record.Name, func() error { g.forward(ctx); return nil })
	})
	close(g.Ready)
	g.handOver(ctx)
	for {
		select {
		case f := <-g.inbox:
			f(ctx)
		case err := <-failed:
			if err != nil {
				return err
			}
			failed = nil // the connection has ended
		case <-g.vmm.Done():
			return g.vmm.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *Guest) connect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	if g.vmm, err = g.dial(ctx, g.Record); err != nil {
		return err
	}
	if g.nics, err = newNICs(g); err == nil {
		g.shares, err = newShareSlots(g)
	}
	if err != nil {
		return errors.Join(err, g.vmm.Close())
	}
	if s, ok := g.vmm.(vmm.Sharer); ok {
		pid, _ := s.PID() // without it the segments ask the VMM
		g.pid.Store(int64(pid))
	}
	return nil
}
