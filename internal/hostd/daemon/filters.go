package daemon

import (
	"context"
	"time"

	"unnest.io/unnest/internal/hostd/guestlog"
	"unnest.io/unnest/internal/hostd/metrics"
	"unnest.io/unnest/internal/netdev/nft"
)

// watchRetry is the pause after watching a packet filter has failed.
const watchRetry = time.Second

// watchPorts watches the packet filter of the ports, once there is one.
func (d *daemon) watchPorts(ctx context.Context) {
	select {
	case t := <-d.host.Ports.Made:
		d.watchFilter(ctx, metrics.Antispoof, t.Watch)
	case <-ctx.Done():
	}
}

// watchFilter restores a packet filter when other programs change it, such as `nft flush
// ruleset`, until ctx ends.
func (d *daemon) watchFilter(ctx context.Context, name string, watch func(context.Context, func(nft.Generation, error)) error) {
	log := guestlog.Limit(d.config.Logger).With("filter", name)
	for first := true; first || wait(ctx, watchRetry); first = false {
		err := d.host.Panics.Contain("watch the packet filter", func() error {
			return watch(ctx, func(by nft.Generation, err error) {
				d.metrics.FilterRestored(name, err)
				if err != nil {
					log.Error("another program changed the packet filter, and restoring it failed", "process", by.Process, "pid", by.PID, "error", err)
					return
				}
				log.Warn("restored the packet filter, which another program had changed", "process", by.Process, "pid", by.PID)
			})
		})
		if err != nil {
			log.Error("watch the packet filter", "error", err)
		}
	}
}
