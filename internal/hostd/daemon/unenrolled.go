package daemon

import (
	"context"
	"errors"
	"sync"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/vmm"
)

// guardUnenrolled guards the own NICs of guests of the configuration that are not enrolled:
// they can send before they can ask for anything.
func (d *daemon) guardUnenrolled(ctx context.Context) {
	configured := map[string]bool{}
	var wg sync.WaitGroup // a VMM that hangs does not keep the others waiting
	for _, c := range d.quotas().Guests {
		configured[c.Name] = true
		if _, err := record.ReadEnrolled(d.config.StateDir, c.Name); !errors.Is(err, record.ErrNoRecord) || d.known(c.Name) != nil {
			continue // its run does it
		}
		r := record.Configured(c, record.Guest{})
		wg.Go(func() { d.host.Panics.Try("guard guest "+r.Name, func() { d.guardOnce(ctx, r) }) })
	}
	wg.Wait()
	for _, guest := range d.host.Own.Guests() {
		if !configured[guest] && d.known(guest) == nil {
			if err := d.host.Own.Forget(guest); err != nil {
				d.config.Logger.Warn("end the guard of a guest that is gone", "guest", guest, "error", err)
			}
		}
	}
}

func (d *daemon) guardOnce(ctx context.Context, r record.Guest) {
	err := guestrun.New(r, d.tenant(r.Tenant), d.host, d.config.UnplugTimeout, d.logs.Of(r.Name)).GuardOnce(ctx)
	if err != nil && !errors.Is(err, vmm.ErrNotRunning) {
		d.logs.Of(r.Name).Warn("guard the NIC of a guest that is not enrolled", "guest", r.Name, "error", err)
	}
}
