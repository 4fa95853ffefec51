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

	"unnest/internal/netdev/ratelimit"
	"unnest/internal/vmm"
)

// guest returns the guest that calls, once it takes requests. It connects to the guest's
// VMM if there is no connection.
func (d *daemon) guest(ctx context.Context, c client) (*guest, error) {
	for {
		g, fresh := d.lookup(c)
		if !g.record.same(c.record) { // restarted, or with a new certificate
			g.stop(errChanged)
			select {
			case <-g.done: // QEMU takes one connection at a time
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		select {
		case <-g.ready:
			return g, nil
		case <-g.done:
			if fresh {
				return nil, g.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lookup returns the guest of the record's name; a fresh one if none runs.
func (d *daemon) lookup(c client) (g *guest, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.guests[c.record.Name]; g != nil {
		select {
		case <-g.done:
		default:
			return g, false
		}
	}
	g = newGuest(c.record, c.tenant, d.host, d.config.UnplugTimeout, d.logs.of(c.record.Name))
	d.guests[c.record.Name] = g
	d.launch(g)
	return g, true
}

// known returns the latest guest of a name, ended or not; nil if there was none.
func (d *daemon) known(name string) *guest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.guests[name]
}

// all lists the guests that the daemon has connected to, by name.
func (d *daemon) all() (guests []*guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.guests {
		guests = append(guests, g)
	}
	slices.SortFunc(guests, func(a, b *guest) int { return strings.Compare(a.record.Name, b.record.Name) })
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
		d.host.try("scan", func() { d.scan(ctx, logged) })
		d.host.try("close refused connections", d.closeRefused)
		d.host.try("warn of expiry", func() { d.warnOfExpiry(time.Now()) })
		if time.Since(looked) > unguardedInterval {
			d.host.try("guard guests that are not enrolled", func() { d.guardUnenrolled(ctx) })
			d.host.try("look for unguarded ports", func() { unguarded.look(d) })
			looked = time.Now()
		}
		d.beat(&d.scanned)
		scanned()
		if first {
			d.host.try("delete orphans", d.deleteOrphans)
			d.host.try("close other exports", d.closeOtherExports)
		}
	}
}

func (d *daemon) scan(ctx context.Context, logged map[string]string) {
	d.host.try("enroll guests of the VMM", d.enrollGuests)
	names, err := guestNames(d.config.StateDir)
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
			err, text := d.host.contain("take over guest "+name, func() error { return d.connectGuest(ctx, name) }), ""
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoRecord) {
				text = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			present[name] = !errors.Is(err, ErrNoRecord)
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
	c, err := d.client(name)
	if err != nil {
		return err
	}
	if _, err = d.guest(ctx, c); !errors.Is(err, vmm.ErrNotRunning) {
		return err
	}
	held, heldErr := d.host.ports.held(c.record.tapPrefix())
	if held != "" || heldErr != nil {
		return errors.Join(fmt.Errorf("%w, but a process has the NIC %s, so the guest's NICs are left as they are: "+
			"put the VMM's socket where the daemon sees it, such as /run", err, held), heldErr)
	}
	return errors.Join(err, d.remove(c.record), d.host.shares.PrepareExport(c.record.Export))
}

// removeMissing stops guests whose record is gone, and removes everything of them once
// they have stopped.
func (d *daemon) removeMissing(present map[string]bool) {
	for _, g := range d.all() {
		if present[g.record.Name] {
			continue
		}
		select {
		case <-g.done:
			if err := errors.Join(d.remove(g.record), d.host.shares.CloseExport(g.record.Export)); err != nil {
				d.config.Logger.Warn("remove guest", "guest", g.record.Name, "error", err)
				continue
			}
			if g.record.Credentials != "" {
				d.logEnrollment("revoke the certificates of a guest that was removed", g.record.Name, removeRecord(d.config.StateDir, g.record.Name))
			}
			d.forget(g.record.Name)
		default:
			g.stop(errRemoved) // the next scan removes it
		}
	}
}

// forget ends all that the daemon knows of a guest that is gone.
func (d *daemon) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.guests, name)
	d.logs.forget(name)
	d.host.ports.dropped.forget(name)
	for _, b := range []*budgets{&d.rates, &d.renewals, &d.refusals} {
		b.forget(name)
	}
}

// remove removes what the host has of a guest that is gone.
func (d *daemon) remove(r GuestRecord) error {
	err := errors.Join(d.host.ports.retirePrefixed(r.tapPrefix(), r.vlanPrefix()), d.host.segments.RemoveGuest(r.Name),
		d.host.shares.RemoveGuest(r.Tenant, r.Name, r.Export))
	for _, n := range r.NICs {
		if n.TAP != "" {
			err = errors.Join(err, d.host.ports.unguardOwn(n.TAP))
		}
	}
	err = errors.Join(err, d.host.own.forget(r.Name))
	if t := d.tenant(r.Tenant); t != nil {
		t.releaseAll(r.Name)
	}
	return err
}

// deleteOrphans deletes ports that an earlier daemon has left of guests without a
// record. If a record cannot be read, it deletes none, because a port may be that guest's.
func (d *daemon) deleteOrphans() {
	records, unread := d.records()
	var known []string
	for _, r := range records {
		known = append(known, r.tapPrefix(), r.vlanPrefix())
	}
	orphans, err := orphans(known)
	switch {
	case err != nil:
		d.config.Logger.Warn("look for orphans", "error", err)
	case unread != nil && len(orphans) > 0:
		d.config.Logger.Error("ports of unknown guests are left as they are: a guest's record cannot be read", "ports", orphans, "error", unread)
	default:
		for _, name := range orphans {
			d.config.Logger.Info("delete orphan", "port", name, "error", d.host.ports.retire(name))
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
		err = d.host.shares.CloseOtherExports(exports)
	}
	if err != nil {
		d.config.Logger.Warn("close exports of guests that are gone: none is closed", "error", err)
	}
}

// records returns the records that can be read. The error says which cannot.
func (d *daemon) records() (all []GuestRecord, err error) {
	names, err := guestNames(d.config.StateDir)
	for _, name := range names {
		r, readErr := readRecord(d.config.StateDir, name, d.policy().Guests)
		switch {
		case readErr == nil:
			all = append(all, r)
		case !errors.Is(readErr, ErrNoRecord):
			err = errors.Join(err, readErr)
		}
	}
	return all, err
}

// logRecords returns the records that can be read, and logs which cannot.
func (d *daemon) logRecords() []GuestRecord {
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
