package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"unnest/internal/hostd/api"
	"unnest/internal/hostd/guestrun"
	"unnest/internal/hostd/ports"
	"unnest/internal/hostd/record"
	"unnest/internal/netdev/ratelimit"
	"unnest/internal/vmm"
)

// Guest returns the guest that calls, once it takes requests. It connects to the guest's
// VMM if there is no connection.
func (d *daemon) Guest(ctx context.Context, c api.Client) (*guestrun.Guest, error) {
	for {
		g, fresh := d.lookup(c)
		if !g.Record.Same(c.Record) { // restarted, or with a new certificate
			g.Stop(guestrun.ErrChanged)
			select {
			case <-g.Done: // QEMU takes one connection at a time
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		select {
		case <-g.Ready:
			return g, nil
		case <-g.Done:
			if fresh {
				return nil, g.Err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lookup returns the guest of the record's name; a fresh one if none runs.
func (d *daemon) lookup(c api.Client) (g *guestrun.Guest, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.guests[c.Record.Name]; g != nil {
		select {
		case <-g.Done:
		default:
			return g, false
		}
	}
	g = guestrun.New(c.Record, c.Tenant, d.host, d.config.UnplugTimeout, d.logs.Of(c.Record.Name))
	d.guests[c.Record.Name] = g
	d.launch(g)
	return g, true
}

// known returns the latest guest of a name, ended or not; nil if there was none.
func (d *daemon) known(name string) *guestrun.Guest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.guests[name]
}

// all lists the guests that the daemon has connected to, by name.
func (d *daemon) all() (guests []*guestrun.Guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.guests {
		guests = append(guests, g)
	}
	slices.SortFunc(guests, func(a, b *guestrun.Guest) int { return strings.Compare(a.Record.Name, b.Record.Name) })
	return guests
}

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
			looked = time.Now()
		}
		d.beat(&d.scanned)
		scanned()
		if first {
			d.host.Panics.Try("delete orphans", d.deleteOrphans)
			d.host.Panics.Try("close other exports", d.closeOtherExports)
		}
	}
}

func (d *daemon) scan(ctx context.Context, logged map[string]string) {
	d.host.Panics.Try("enroll guests of the VMM", func() { d.credentials.EnrollGuests(d.policy().Guests) })
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
	held, heldErr := d.host.Ports.Held(c.Record.TapPrefix())
	if held != "" || heldErr != nil {
		return errors.Join(fmt.Errorf("%w, but a process has the NIC %s, so the guest's NICs are left as they are: "+
			"put the VMM's socket where the daemon sees it, such as /run", err, held), heldErr)
	}
	return errors.Join(err, d.remove(c.Record), d.host.Shares.PrepareExport(c.Record.Export))
}

// removeMissing stops guests whose record is gone, and removes everything of them once
// they have stopped.
func (d *daemon) removeMissing(present map[string]bool) {
	for _, g := range d.all() {
		if present[g.Record.Name] {
			continue
		}
		select {
		case <-g.Done:
			if err := errors.Join(d.remove(g.Record), d.host.Shares.CloseExport(g.Record.Export)); err != nil {
				d.config.Logger.Warn("remove guest", "guest", g.Record.Name, "error", err)
				continue
			}
			if g.Record.Credentials != "" {
				d.credentials.Remove(g.Record.Name)
			}
			d.forget(g.Record.Name)
		default:
			g.Stop(guestrun.ErrRemoved) // the next scan removes it
		}
	}
}

// forget ends all that the daemon knows of a guest that is gone.
func (d *daemon) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.guests, name)
	d.logs.Forget(name)
	d.host.Ports.ForgetDrops(name)
	d.api.Forget(name)
}

// remove removes what the host has of a guest that is gone.
func (d *daemon) remove(r record.Guest) error {
	err := errors.Join(d.host.Ports.RetirePrefixed(r.TapPrefix(), r.VlanPrefix()), d.host.Segments.RemoveGuest(r.Name),
		d.host.Shares.RemoveGuest(r.Tenant, r.Name, r.Export))
	for _, n := range r.NICs {
		if n.TAP != "" {
			err = errors.Join(err, d.host.Ports.UnguardOwn(n.TAP))
		}
	}
	err = errors.Join(err, d.host.Own.Forget(r.Name))
	if t := d.tenant(r.Tenant); t != nil {
		t.ReleaseAll(r.Name)
	}
	return err
}

// deleteOrphans deletes ports that an earlier daemon has left of guests without a
// record. If a record cannot be read, it deletes none, because a port may be that guest's.
func (d *daemon) deleteOrphans() {
	records, unread := d.records()
	var known []string
	for _, r := range records {
		known = append(known, r.TapPrefix(), r.VlanPrefix())
	}
	orphans, err := ports.Orphans(known)
	switch {
	case err != nil:
		d.config.Logger.Warn("look for orphans", "error", err)
	case unread != nil && len(orphans) > 0:
		d.config.Logger.Error("ports of unknown guests are left as they are: a guest's record cannot be read", "ports", orphans, "error", unread)
	default:
		for _, name := range orphans {
			d.config.Logger.Info("delete orphan", "port", name, "error", d.host.Ports.Retire(name))
		}
	}
}

// closeOtherExports closes the exports of guests that were removed while no daemon ran. If
// a record cannot be read, it closes none.
func (d *daemon) closeOtherExports() {
	records, err := d.records()
	if errors.Is(err, fs.ErrNotExist) { // no guest yet
		err = nil
	}
	var exports []string
	for _, r := range records {
		if r.Export != "" {
			exports = append(exports, r.Export)
		}
	}
	if err == nil {
		err = d.host.Shares.CloseOtherExports(exports)
	}
	if err != nil {
		d.config.Logger.Warn("close exports of guests that are gone: none is closed", "error", err)
	}
}

// warnOfExpiry logs which certificates expire soon.
func (d *daemon) warnOfExpiry(now time.Time) {
	records, _ := d.records()
	d.credentials.WarnOfExpiry(records, now)
}

// records returns the records that can be read. The error says which cannot.
func (d *daemon) records() (all []record.Guest, err error) {
	names, err := record.Names(d.config.StateDir)
	for _, name := range names {
		r, readErr := record.Read(d.config.StateDir, name, d.policy().Guests)
		switch {
		case readErr == nil:
			all = append(all, r)
		case !errors.Is(readErr, record.ErrNoRecord):
			err = errors.Join(err, readErr)
		}
	}
	return all, err
}

// logRecords returns the records that can be read, and logs which cannot.
func (d *daemon) logRecords() []record.Guest {
	all, err := d.records()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without the directory there was no guest yet
		d.config.Logger.Error("what these guests have is left as it is", "error", err)
	}
	return all
}

// wait waits for d. It reports false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
