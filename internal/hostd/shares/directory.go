package shares

import (
	"unnest/internal/hostd/quota"
	"unnest/internal/netdev/share"
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
func maker(t quota.Tenant, guest string) share.Maker {
	return share.Maker{Guest: guest, Admit: t.AdmitVolumeDirectory}
}

// openVolume opens the directory of a volume that is counted as a guest's, and makes it if
// necessary.
func (r *Registry) openVolume(t quota.Tenant, guest string, id share.ID, key share.Digest) (*share.Directory, error) {
	root, err := t.VolumesIn()
	if err != nil {
		return nil, err
	}
	r.directories.Lock()
	defer r.directories.Unlock()
	return share.OpenVolume(root, id, key, maker(t, guest))
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

func (r *Registry) othersHave(tenant, guest string, id share.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	has := r.items[itemKey{tenant, id}]
	return has != nil && (len(has.guests) > 1 || !has.guests[guest])
}
