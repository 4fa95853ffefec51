package daemon

import (
	"errors"
	"io/fs"
	"slices"
	"time"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
)

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
			d.unreserve(g.Record)
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
	err := d.removeRun(r)
	for _, n := range r.NICs {
		if n.TAP != "" {
			err = errors.Join(err, d.host.Ports.UnguardOwn(n.TAP))
		}
	}
	return errors.Join(err, d.host.Own.Forget(r.Name))
}

// removeEnded removes what the host has of a guest whose VMM has ended, or seems to have. Its own
// NICs stay guarded: a VMM without a socket can send, and so can the next one before the daemon
// reaches it. What the daemon has found through the VMM it forgets with the TAP.
func (d *daemon) removeEnded(r record.Guest) error {
	return errors.Join(d.removeRun(r), d.host.Own.ForgetEnded(r.Name))
}

// removeRun removes what a run of a guest has made.
func (d *daemon) removeRun(r record.Guest) error {
	quotas := quota.Tenant{Name: r.Tenant}
	if t := d.tenant(r.Tenant); t != nil {
		defer t.ReleaseAll(r.Name)
		quotas = t.Now()
	}
	return errors.Join(d.host.Ports.RetirePrefixed(r.TAPPrefix(), r.VLANPrefix()), d.host.Segments.RemoveGuest(r.Name),
		d.host.Shares.RemoveGuest(quotas, r.Name, r.Export))
}

// unreserve ends the reservation of the addresses of a guest that is gone.
func (d *daemon) unreserve(r record.Guest) {
	configured := slices.ContainsFunc(d.quotas().Guests, func(g quota.Guest) bool { return g.Name == r.Name })
	if t := d.tenant(r.Tenant); t != nil && !configured {
		t.Reserve(r.Name)
		d.host.Ports.Policies.NodesChanged(t.Name)
	}
}

// deleteOrphans deletes ports that an earlier daemon has left of guests without a
// record. If a record cannot be read, it deletes none, because a port may be that guest's.
func (d *daemon) deleteOrphans() {
	records, unread := d.records()
	var known []string
	for _, r := range records {
		known = append(known, r.TAPPrefix(), r.VLANPrefix())
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

// endOtherShares closes the exports, and ends the ephemeral volumes, of guests that were removed while
// no daemon ran. If a record cannot be read, it leaves all as they are.
func (d *daemon) endOtherShares() {
	records, err := d.records()
	if errors.Is(err, fs.ErrNotExist) { // no guest yet
		err = nil
	}
	var exports []string
	guests := map[string][]string{} // of each tenant
	for _, r := range records {
		guests[r.Tenant] = append(guests[r.Tenant], r.Name)
		if r.Export != "" {
			exports = append(exports, r.Export)
		}
	}
	if err == nil {
		err = d.host.Shares.CloseOtherExports(exports)
		for _, t := range d.allTenants() {
			err = errors.Join(err, d.host.Shares.EndOthers(t.Now(), guests[t.Name]))
		}
	}
	if err != nil {
		d.config.Logger.Warn("end what guests that are gone shared: it is left as it is", "error", err)
	}
}

// warnOfExpiry logs which certificates expire soon.
func (d *daemon) warnOfExpiry(now time.Time) {
	records, _ := d.records()
	d.credentials.WarnOfExpiry(records, d.quotas().Tenants, now)
}

// records returns the records that can be read. The error says which cannot.
func (d *daemon) records() (all []record.Guest, err error) {
	names, err := record.Names(d.config.StateDir)
	for _, name := range names {
		r, readErr := record.Read(d.config.StateDir, name, d.quotas().Guests)
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
