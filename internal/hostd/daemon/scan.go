package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/netdev/ratelimit"
	"unnest.io/unnest/internal/vmm"
)

// watchGuests connects to guests whose record has appeared, so that leftovers of an
// earlier daemon are removed and the packet filter is in place before the first request.
// It cleans up after guests whose record is gone. It calls scanned after the first scan.
func (d *daemon) watchGuests(ctx context.Context, scanned func()) {
	if err := ratelimit.Reap(); err != nil { // not while guests change their limits
		d.config.Logger.Warn("reap bandwidth limits", "error", err)
	}
	logged := map[string]string{} // the last error of each guest, to log it once
	var unguarded unguardedLog
	var looked time.Time
	for first := true; first || wait(ctx, scanInterval); first = false {
		d.host.Panics.Try("scan", func() { d.scan(ctx, logged) })
		d.host.Panics.Try("close refused connections", d.api.CloseRefused)
		d.host.Panics.Try("warn of expiry", func() { d.warnOfExpiry(time.Now()) })
		if time.Since(looked) > unguardedInterval {
			d.host.Panics.Try("guard guests that are not enrolled", func() { d.guardUnenrolled(ctx) })
			d.host.Panics.Try("look for unguarded ports", func() { unguarded.look(d) })
			d.host.Panics.Try("look for deleted TAPs", func() { d.reviveTAPs(ctx) })
			looked = time.Now()
		}
		d.beat(&d.scanned)
		scanned()
		if first {
			d.host.Panics.Try("delete orphans", d.deleteOrphans)
			d.host.Panics.Try("end shares of guests that are gone", d.endOtherShares)
		}
	}
}

// reviveTAPs keeps VMMs alive whose TAPs another program has deleted.
func (d *daemon) reviveTAPs(ctx context.Context) {
	taps, err := guestrun.ObserveTAPs()
	if err != nil {
		d.config.Logger.Warn("look for deleted TAPs", "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, scanInterval) // busy guests wait for the next look
	defer cancel()
	var wg sync.WaitGroup
	for _, g := range d.all() {
		wg.Go(func() { g.ReviveTAPs(ctx, taps) })
	}
	wg.Wait()
}

func (d *daemon) scan(ctx context.Context, logged map[string]string) {
	d.host.Panics.Try("enroll guests of the VMM", func() { d.credentials.EnrollGuests(d.quotas().Guests) })
	names, err := record.Names(d.config.StateDir)
	if errors.Is(err, fs.ErrNotExist) && len(d.all()) == 0 {
		err = nil // no guest yet
	}
	if err != nil {
		d.config.Logger.Warn("look for guests", "error", err)
	}
	present := map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			err, text := d.host.Panics.Contain("take over guest "+name, func() error { return d.connectGuest(ctx, name) }), ""
			if err != nil && ctx.Err() == nil && !errors.Is(err, record.ErrNoRecord) {
				text = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			present[name] = !errors.Is(err, record.ErrNoRecord)
			if text != "" && text != logged[name] { // the guest may have ended, or still start
				d.config.Logger.Info("take over", "guest", name, "error", text)
			}
			logged[name] = text
		})
	}
	wg.Wait()
	if err == nil {
		d.removeMissing(present)
	}
}

// connectGuest connects to a guest. It removes everything of a guest whose VMM has ended.
func (d *daemon) connectGuest(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	c, err := d.Client(name)
	if err != nil {
		return err
	}
	if _, err = d.Guest(ctx, c); !errors.Is(err, vmm.ErrNotRunning) {
		return err
	}
	held, heldErr := d.host.Ports.Held(c.Record.TAPPrefix())
	if held != "" || heldErr != nil {
		return errors.Join(fmt.Errorf("%w, but a process has the NIC %s, so the guest's NICs are left as they are: "+
			"put the VMM's socket where the daemon sees it, such as /run", err, held), heldErr)
	}
	return errors.Join(err, d.removeEnded(c.Record), d.host.Shares.PrepareExport(c.Record.Export))
}
