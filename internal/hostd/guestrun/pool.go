package guestrun

import (
	"context"
	"time"

	"unnest.io/unnest/internal/hostd/hotplug"
)

const (
	// refillQuiet is how long a guest must have requested nothing before a NIC is
	// plugged for its pool: the guest's kernel takes time from the pod that starts.
	refillQuiet = 500 * time.Millisecond
	// refillRetry is the pause after a plug for the pool has failed.
	refillRetry = 5 * time.Second
)

// wake records that the guest's system is up, and begins to fill its pool.
func (n *nics) wake(ctx context.Context) {
	if !n.awake.Swap(true) {
		n.refillAfter(ctx, 0)
	}
}

// refillAfter plugs the next NIC for the pool, if one is wanted, after a while.
func (n *nics) refillAfter(ctx context.Context, d time.Duration) {
	if n.refilling || !n.awake.Load() || n.state.Deficit() == 0 {
		return
	}
	n.refilling = true
	n.after(ctx, d, func(ctx context.Context) {
		n.refilling = false
		if quiet := time.Since(n.asked); quiet < refillQuiet {
			n.refillAfter(ctx, refillQuiet-quiet)
			return
		}
		n.refill(ctx)
	})
}

func (n *nics) refill(ctx context.Context) {
	before := n.state.Deficit()
	n.refilling = true // feed must not schedule another
	n.feed(ctx, hotplug.Refill{})
	n.refilling = false
	pause := time.Duration(0)
	if n.state.Deficit() >= before {
		pause = refillRetry // the log says why
	}
	n.refillAfter(ctx, pause)
}

// DrainPool drains the guest's pool and waits for the end of that, as long as ctx lasts.
func (g *Guest) DrainPool(ctx context.Context) {
	err := g.submit(ctx, func(ctx context.Context) {
		if g.awake.Load() { // a system that is not up does not answer
			g.nics.feed(ctx, hotplug.Drain{})
		}
	})
	for draining := err == nil; draining; {
		time.Sleep(10 * time.Millisecond)
		if draining, err = read(ctx, g, func() bool { return g.nics.state.Draining() }); err != nil {
			return
		}
	}
}
