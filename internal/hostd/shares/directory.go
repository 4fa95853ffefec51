package shares

import (
	"errors"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/share"
)

// reserveVolume counts a volume as a guest's, unless the tenant's limit is reached. It
// reports whether the volume was not counted before.
func (r *Registry) reserveVolume(t quota.Tenant, guest string, id share.ID) (added bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if has := r.items[itemKey{t.Name, id}]; has != nil && has.guests[guest] {
		return false, nil
	}
	if err := t.AdmitVolume(r.volumes(t.Name)); err != nil {
		return false, err
	}
	r.item(t.Name, id).guests[guest] = true
	return true, nil
}

// recheckVolumes checks the tenant's limit again for a volume that is counted. After a
// restart of the daemon, other guests' volumes may have been found since.
func (r *Registry) recheckVolumes(t quota.Tenant) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.AdmitVolume(r.volumes(t.Name) - 1)
}

// volumes counts the tenant's volumes, once for each guest that has them.
func (r *Registry) volumes(tenant string) (n int) {
	for at, i := range r.items {
		if at.tenant == tenant && at.id.Kind == share.Volume {
			n += len(i.guests)
		}
	}
	return n
}

// maker is a guest as the maker of its tenant's volumes.
func maker(t quota.Tenant, guest string, ephemeral bool) share.Maker {
	return share.Maker{Guest: guest, Admit: t.AdmitVolumeDirectory, Ephemeral: ephemeral}
}

// openVolume opens the directory of a volume that is counted as a guest's, and makes it if
// necessary.
func (r *Registry) openVolume(t quota.Tenant, guest string, q Request) (*share.Directory, error) {
	root, err := t.VolumesIn()
	if err != nil {
		return nil, err
	}
	r.directories.Lock()
	defer r.directories.Unlock()
	return share.OpenVolume(root, q.ID, q.Key, maker(t, guest, q.Ephemeral))
}

// discard removes what openVolume has made for a guest that does not get the volume,
// unless another guest has it.
func (r *Registry) discard(tenant, guest string, id share.ID, volume *share.Directory) error {
	r.directories.Lock()
	defer r.directories.Unlock()
	if r.othersHave(tenant, guest, id) {
		return nil
	}
	return volume.Discard()
}

// endUnused ends a guest's use of ephemeral volumes that it no longer has. A volume without users ends. Its files are
// removed later, because there may be many.
func (r *Registry) endUnused(t quota.Tenant, guest string) error {
	if t.Volumes == "" {
		return nil
	}
	ended, err := r.markUnused(t, guest)
	if ended {
		r.log.Info("an ephemeral volume has ended", "tenant", t.Name, "guest", guest)
		r.removals.Go(func() { r.removeEnded(t.Volumes) })
	}
	if err != nil {
		return fmt.Errorf("end ephemeral volumes: %w", err)
	}
	return nil
}

func (r *Registry) markUnused(t quota.Tenant, guest string) (ended bool, err error) {
	has := r.of(t.Name, guest)
	r.directories.Lock()
	defer r.directories.Unlock()
	return share.EndUnused(t.Volumes, guest, func(id share.ID) bool { return slices.Contains(has, id) })
}

func (r *Registry) removeEnded(dir string) {
	r.removing.Lock()
	defer r.removing.Unlock()
	if err := share.RemoveEnded(dir); err != nil {
		r.log.Warn("remove volumes that have ended: the next start tries again", "error", err)
	}
}

// EndOthers ends what an earlier daemon has left: ephemeral volumes of a tenant that only guests other
// than these have, and the files of volumes that have ended.
func (r *Registry) EndOthers(t quota.Tenant, guests []string) error {
	if t.Volumes == "" {
		return nil
	}
	users, err := share.Users(t.Volumes)
	for _, guest := range users {
		if !slices.Contains(guests, guest) {
			err = errors.Join(err, r.endUnused(t, guest))
		}
	}
	r.removals.Go(func() { r.removeEnded(t.Volumes) })
	return err
}

func (r *Registry) othersHave(tenant, guest string, id share.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	has := r.items[itemKey{tenant, id}]
	return has != nil && (len(has.guests) > 1 || !has.guests[guest])
}
