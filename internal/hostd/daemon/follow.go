package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"unnest/internal/netdev/ratelimit"
)

// follow connects to guests that have come, so that what an earlier daemon has
// left is mended and what they send is guarded without waiting for a request, and
// clears up after those that have gone. It calls looked after its first look.
func (d *daemon) follow(ctx context.Context, looked func()) {
	if err := ratelimit.Reap(); err != nil { // not beside guests' own changes
		d.config.Logger.Warn("reap bandwidth limits", "error", err)
	}
	said := map[string]string{} // the last error of each, to say it once
	for first := true; ; first = false {
		d.look(ctx, said)
		looked()
		if first {
			d.sweep()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookTime):
		}
	}
}

func (d *daemon) look(ctx context.Context, said map[string]string) {
	names, err := guestNames(d.config.StateDir)
	if err != nil {
		d.config.Logger.Warn("look for guests", "error", err)
	}
	present := map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			err, text := d.meet(ctx, name), ""
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoRecord) {
				text = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			present[name] = !errors.Is(err, ErrNoRecord)
			if text != "" && text != said[name] { // it may have ended, or only begin
				d.config.Logger.Info("take over", "guest", name, "error", text)
			}
			said[name] = text
		})
	}
	wg.Wait()
	if err == nil {
		d.forget(present)
	}
}

// meet connects to a guest, unless its VMM has gone: then nothing of it stays.
func (d *daemon) meet(ctx context.Context, name string) error {
	c, err := d.client(name)
	if err != nil {
		return err
	}
	if _, err = d.guest(ctx, c); err != nil && isGone(err) {
		return errors.Join(err, d.clear(c.record))
	}
	return err
}

// forget clears up after guests whose record is gone.
func (d *daemon) forget(present map[string]bool) {
	for _, g := range d.all() {
		if present[g.record.Name] {
			continue
		}
		select {
		case <-g.done:
			if err := d.clear(g.record); err != nil {
				d.config.Logger.Warn("clear up", "guest", g.record.Name, "error", err)
				continue
			}
			d.mu.Lock()
			delete(d.guests, g.record.Name)
			delete(d.rates, g.record.Name)
			d.mu.Unlock()
		default:
			g.stop(errForgotten) // and clear up at the next look
		}
	}
}

// clear takes away what the host has of a guest that is gone.
func (d *daemon) clear(r GuestRecord) error {
	err := errors.Join(d.host.clear(r.tapPrefix(), r.vlanPrefix()), d.host.segments.drop(r.Name), d.host.shares.drop(r))
	for _, n := range r.NICs {
		if n.TAP != "" {
			err = errors.Join(err, d.host.unguard(n.TAP))
		}
	}
	if t := d.tenants[r.Tenant]; t != nil {
		err = errors.Join(err, t.releaseAll(r.Name))
	}
	return err
}

// sweep deletes ports that an earlier daemon has left of guests that nobody
// knows any more.
func (d *daemon) sweep() {
	if err := d.host.sweep(d.prefixes()); err != nil {
		d.config.Logger.Warn("sweep", "error", err)
	}
}

// prefixes are those of the ports of all guests that have a record.
func (d *daemon) prefixes() (known []string) {
	names, err := guestNames(d.config.StateDir)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if r, err := readRecord(d.config.StateDir, name, d.config.Policy.Guests); err == nil {
			known = append(known, r.tapPrefix(), r.vlanPrefix())
		}
	}
	return known
}
