// Package shares gives guests the volumes and the shared memory of their pods (Bacou et
// al. 2019, §4.3): a Registry knows which guest of the host has what, and a Guest
// performs the plugs that package hotplug decides.
//
// Shared memory exists as long as a guest has it. Directories, memory files and
// virtiofsd belong to package share of netdev, the limits of a tenant to package policy.
package shares

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/share"
)

// Reasons to refuse a volume or shared memory, to be told apart with errors.Is.
var (
	ErrSize    = errors.New("the shared memory exists with another size")
	ErrNoPorts = errors.New("the guest has no ports for volumes and shared memory: start it with root ports vp1, vp2 and so on")
	ErrPrivate = errors.New("virtiofs needs a guest whose memory is shared, and the guest has no 9p export either: start it with memory-backend-memfd,share=on")
	ErrLost    = errors.New("the shared memory of an earlier daemon could not be taken over: give the daemon CAP_SYS_PTRACE, or detach the memory from all guests")
)

// Registry is what the guests of a host share. Its methods may be called from several
// goroutines.
type Registry struct {
	log *slog.Logger

	mu      sync.Mutex
	volumes map[string]map[holding]bool // attached volumes, by tenant
	regions map[regionKey]*region
}

// holding is something that a guest has.
type holding struct {
	guest string
	id    share.ID
}

// regionKey distinguishes the regions of a host.
type regionKey struct {
	tenant string
	id     share.ID
}

// region is the shared memory of a pod. Its File is nil if guests have the memory and
// the daemon does not.
type region struct {
	*share.Region
	guests map[string]bool // that have it
}

// New returns a registry in which nothing is shared.
func New(log *slog.Logger) *Registry {
	return &Registry{log: log, volumes: map[string]map[holding]bool{}, regions: map[regionKey]*region{}}
}

// takeVolume counts a volume as a guest's, unless the tenant's limit is reached.
func (r *Registry) takeVolume(t policy.Tenant, guest string, id share.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.volumes[t.Name][holding{guest, id}] {
		return nil
	}
	if err := t.AdmitVolume(len(r.volumes[t.Name])); err != nil {
		return err
	}
	r.count(t.Name, guest, id)
	return nil
}

// recheckVolumes checks the tenant's limit again for a volume that is counted. After a
// restart of the daemon, other guests' volumes may have been found since.
func (r *Registry) recheckVolumes(t policy.Tenant) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.AdmitVolume(len(r.volumes[t.Name]) - 1)
}

func (r *Registry) count(tenant, guest string, id share.ID) {
	if r.volumes[tenant] == nil {
		r.volumes[tenant] = map[holding]bool{}
	}
	r.volumes[tenant][holding{guest, id}] = true
}

// takeRegion counts memory of a pod as a guest's, and creates it if there is none. A
// size of 0 is that of the memory that exists.
func (r *Registry) takeRegion(t policy.Tenant, guest string, id share.ID, key share.Digest, size uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := regionKey{t.Name, id}
	if has := r.regions[at]; has != nil {
		switch {
		case has.File == nil:
			return ErrLost
		case subtle.ConstantTimeCompare(has.Key[:], key[:]) != 1:
			return share.ErrKey
		case size != 0 && size != uint64(has.Size):
			return fmt.Errorf("%w: %d bytes, not %d", ErrSize, has.Size, size)
		}
		has.guests[guest] = true
		return nil
	}
	if err := share.CheckSize(size); err != nil {
		return err
	}
	if err := t.AdmitMemory(r.bytes(t.Name), int64(size)); err != nil {
		return err
	}
	made := &region{&share.Region{Tenant: t.Name, ID: id, Key: key, Size: int64(size)}, map[string]bool{guest: true}}
	if err := made.Create(); err != nil {
		return err
	}
	r.regions[at] = made
	r.log.Info("create shared memory", "tenant", t.Name, "id", id, "bytes", size)
	return nil
}

// bytes is how much memory the tenant's pods share.
func (r *Registry) bytes(tenant string) (n int64) {
	for at, region := range r.regions {
		if at.tenant == tenant {
			n += region.Size
		}
	}
	return n
}

// region returns the size and the file of shared memory; zero if there is none.
func (r *Registry) region(tenant string, id share.ID) (size int64, file *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if has := r.regions[regionKey{tenant, id}]; has != nil {
		return has.Size, has.File
	}
	return 0, nil
}

// release takes something back from a guest. Memory that no guest has is freed.
func (r *Registry) release(tenant, guest string, id share.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.volumes[tenant], holding{guest, id})
	at := regionKey{tenant, id}
	has := r.regions[at]
	if has == nil {
		return nil
	}
	delete(has.guests, guest)
	if len(has.guests) > 0 {
		return nil
	}
	delete(r.regions, at)
	r.log.Info("free shared memory", "tenant", tenant, "id", id)
	if has.File == nil {
		return nil
	}
	return has.File.Close()
}

// set makes the registry say that a guest has exactly these.
func (r *Registry) set(tenant, guest string, has map[share.ID]bool) (err error) {
	for id := range has {
		r.add(tenant, guest, id)
	}
	for _, id := range r.of(tenant, guest) {
		if !has[id] {
			err = errors.Join(err, r.release(tenant, guest, id))
		}
	}
	return err
}

// add records that a guest has something.
func (r *Registry) add(tenant, guest string, id share.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id.Kind == share.Volume {
		r.count(tenant, guest, id)
		return
	}
	at := regionKey{tenant, id}
	if r.regions[at] == nil {
		r.log.Warn("a guest has shared memory that could not be taken over", "guest", guest, "id", id)
		r.regions[at] = &region{&share.Region{Tenant: tenant, ID: id}, map[string]bool{}}
	}
	r.regions[at].guests[guest] = true
}

// of lists what a guest has.
func (r *Registry) of(tenant, guest string) (all []share.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, has := range r.regions {
		if at.tenant == tenant && has.guests[guest] {
			all = append(all, at.id)
		}
	}
	for h := range r.volumes[tenant] {
		if h.guest == guest {
			all = append(all, h.id)
		}
	}
	return all
}

// RemoveGuest takes everything back from a guest that is gone. export is its 9p export,
// "" without one.
func (r *Registry) RemoveGuest(tenant, guest, export string) error {
	err := r.set(tenant, guest, nil)
	if export == "" {
		return err
	}
	e := share.Export{Dir: export}
	bound, boundErr := e.Bound()
	err = errors.Join(err, boundErr)
	for id := range bound {
		err = errors.Join(err, e.Unbind(id))
	}
	return err
}

// Recover takes over the memory that an earlier daemon has given to a guest. Call it
// before any guest asks: memory of the same name would be created again. process
// returns the ID of the VMM's process; a guest whose VMM has ended has nothing.
func (r *Registry) Recover(ctx context.Context, tenant, guest string, process func(context.Context) (int, error)) {
	pid, err := process(ctx)
	if err != nil {
		return
	}
	found, err := share.FindRegions(pid)
	if err != nil {
		r.log.Warn("look for shared memory", "guest", guest, "error", err)
	}
	for _, f := range found {
		r.takeOver(tenant, guest, f)
	}
}

// takeOver takes over a region that a guest has; other guests may have the same one.
func (r *Registry) takeOver(tenant, guest string, f *share.Region) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := regionKey{tenant, f.ID}
	if r.regions[at] == nil && f.Tenant == tenant {
		r.log.Info("take over shared memory", "tenant", tenant, "id", f.ID, "bytes", f.Size)
		r.regions[at] = &region{f, map[string]bool{guest: true}}
		return
	}
	if known := r.regions[at]; known != nil && sameFile(known.File, f.File) {
		known.guests[guest] = true
	}
	_ = f.File.Close() // nothing was written to it
}

func sameFile(a, b *os.File) bool {
	one, err := a.Stat()
	other, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(one, other)
}
