package shares

import (
	"errors"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/share"
)

func (r *Registry) export(dir string) share.Export { return share.Export{Dir: dir, Owner: r.owner} }

// RemoveGuest takes everything back from a guest that is gone. export is its 9p export,
// "" without one.
func (r *Registry) RemoveGuest(t quota.Tenant, guest, export string) error {
	err := r.set(t.Name, guest, nil)
	if g := r.groups.Load(); g != nil {
		err = errors.Join(err, g.RemoveEmpty())
	}
	if export != "" {
		err = errors.Join(err, r.mounts.Do(r.export(export).UnbindAll))
	}
	return errors.Join(err, r.endUnused(t, guest))
}

// PrepareExport makes the 9p export of a guest that is not running read-only, "" without
// one. Its VMM has to start after that.
func (r *Registry) PrepareExport(export string) error {
	if export == "" {
		return nil
	}
	return r.mounts.Do(r.export(export).Prepare)
}

// CloseExport undoes PrepareExport for a guest that will not run again.
func (r *Registry) CloseExport(export string) error {
	if export == "" {
		return nil
	}
	return r.mounts.Do(r.export(export).Close)
}

// CloseOtherExports closes the exports of an earlier daemon for guests that were removed
// while no daemon ran: all but these.
func (r *Registry) CloseOtherExports(exports []string) error {
	return r.mounts.Do(func() error { return share.CloseOwned(r.owner, exports...) })
}

// bound returns the volumes in the guest's export.
func (g *Guest) bound() (bound map[share.ID]bool, err error) {
	if g.export == "" {
		return map[share.ID]bool{}, nil
	}
	err = g.registry.mounts.Do(func() (err error) {
		bound, err = g.registry.export(g.export).Bound()
		return err
	})
	return bound, err
}

// unbind unmounts a volume from the guest's export, if it is there.
func (g *Guest) unbind(id share.ID) error {
	bound, err := g.bound()
	if err != nil || !bound[id] {
		return err
	}
	g.log.Info("detach", "shared", id, "export", g.export)
	return g.registry.mounts.Do(func() error { return g.registry.export(g.export).Unbind(id) })
}

// bind mounts a volume in the guest's export.
func (g *Guest) bind(q Request) error {
	pid, err := g.vmm.PID()
	if err == nil {
		err = g.registry.mounts.Do(func() error { return g.bindFor(pid, q) })
	}
	if err == nil {
		g.log.Info("attach", "shared", q.ID, "export", g.export)
	}
	return err
}

// bindFor opens the volume's directory and mounts it in the guest's export. Both happen in
// the mount namespace of the process vmm, because the kernel mounts no directory that was
// opened in another namespace.
func (g *Guest) bindFor(vmm int, q Request) error {
	export := g.registry.export(g.export)
	if err := export.CheckVMM(vmm); err != nil {
		return err
	}
	volume, err := g.registry.openVolume(g.tenant(), g.name, q)
	if err != nil {
		return err
	}
	defer volume.Close()
	if _, err := export.Bind(q.ID, volume.File); err != nil {
		return errors.Join(err, g.registry.discard(g.tenant().Name, g.name, q.ID, volume))
	}
	return nil
}
