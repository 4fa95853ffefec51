// Package shares gives guests the volumes and the shared memory of their pods (Bacou et
// al. 2019, §4.3): a Registry knows which guest of the host has what, and a Guest
// performs the plugs that package hotplug decides.
//
// Shared memory exists as long as a guest has it. Directories, memory files and
// virtiofsd belong to package share of netdev, the limits of a tenant to package quota.
package shares

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/vmm"
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
	log    *slog.Logger
	owner  string          // of the exports
	mounts share.Namespace // of the VMMs, for the exports

	// directories is held while directories of volumes are made or removed.
	directories sync.Mutex
	removing    sync.Mutex           // held while files of volumes that have ended are removed
	removals    sync.WaitGroup       // of these
	openGroups  func() *share.Groups // once; nil if the host has none
	groups      atomic.Pointer[share.Groups]
	warnLocks   sync.Once

	mu    sync.Mutex
	items map[itemKey]*item
}

// itemKey distinguishes what is shared on a host.
type itemKey struct {
	tenant string
	id     share.ID
}

// item is a volume or the shared memory of a pod. The memory of an item is nil for a
// volume, and for memory that guests have and the daemon could not take over.
type item struct {
	memory *share.Region
	guests map[string]bool // that have it
}

// New returns a registry in which nothing is shared. owner marks the exports that it
// prepares, in the mount namespace of the VMMs.
func New(log *slog.Logger, owner string, mounts share.Namespace) *Registry {
	r := &Registry{log: log, owner: owner, mounts: mounts, items: map[itemKey]*item{}}
	r.openGroups = sync.OnceValue(r.newGroups)
	return r
}

// newGroups returns nil on a host without control groups.
func (r *Registry) newGroups() *share.Groups {
	groups, err := share.OpenGroups()
	if err != nil {
		r.log.Warn("run virtiofsd without limits of memory and processes", "error", err)
		return nil
	}
	r.groups.Store(groups)
	return groups
}

// item returns an item, which it adds if it is missing.
func (r *Registry) item(tenant string, id share.ID) *item {
	at := itemKey{tenant, id}
	if r.items[at] == nil {
		r.items[at] = &item{guests: map[string]bool{}}
	}
	return r.items[at]
}

// reserveMemory counts memory of a pod as a guest's, and creates it if there is none. A
// size of 0 is that of the memory that exists.
func (r *Registry) reserveMemory(t quota.Tenant, guest string, id share.ID, key share.Digest, size uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if has := r.items[itemKey{t.Name, id}]; has != nil {
		switch {
		case has.memory == nil:
			return ErrLost
		case subtle.ConstantTimeCompare(has.memory.Key[:], key[:]) != 1:
			return share.ErrKey
		case size != 0 && size != uint64(has.memory.Size):
			return fmt.Errorf("%w: %d bytes, not %d", ErrSize, has.memory.Size, size)
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
	memory := &share.Region{Tenant: t.Name, ID: id, Key: key, Size: int64(size)}
	if err := memory.Create(); err != nil {
		return err
	}
	r.items[itemKey{t.Name, id}] = &item{memory, map[string]bool{guest: true}}
	r.log.Info("create shared memory", "tenant", t.Name, "id", id, "bytes", size)
	return nil
}

// bytes is how much memory the tenant's pods share.
func (r *Registry) bytes(tenant string) (n int64) {
	for at, i := range r.items {
		if at.tenant == tenant && i.memory != nil {
			n += i.memory.Size
		}
	}
	return n
}

// memory returns the size and the file of shared memory; zero if there is none.
func (r *Registry) memory(tenant string, id share.ID) (size int64, file *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if has := r.items[itemKey{tenant, id}]; has != nil && has.memory != nil {
		return has.memory.Size, has.memory.File
	}
	return 0, nil
}

// release takes something back from a guest. Memory that no guest has is freed.
func (r *Registry) release(tenant, guest string, id share.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := itemKey{tenant, id}
	has := r.items[at]
	if has == nil {
		return nil
	}
	delete(has.guests, guest)
	if len(has.guests) > 0 {
		return nil
	}
	delete(r.items, at)
	if has.memory == nil {
		return nil
	}
	r.log.Info("free shared memory", "tenant", tenant, "id", id)
	return has.memory.File.Close()
}

// set makes the registry say that a guest has exactly these.
func (r *Registry) set(tenant, guest string, has map[share.ID]bool) (err error) {
	r.add(tenant, guest, has)
	for _, id := range r.of(tenant, guest) {
		if !has[id] {
			err = errors.Join(err, r.release(tenant, guest, id))
		}
	}
	return err
}

// add makes the registry say that a guest also has these.
func (r *Registry) add(tenant, guest string, has map[share.ID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range has {
		i := r.item(tenant, id)
		if id.Kind == share.Memory && i.memory == nil {
			r.log.Warn("a guest has shared memory that could not be taken over", "guest", guest, "id", id)
		}
		i.guests[guest] = true
	}
}

// Count returns how many volumes and memories the host's guests share.
func (r *Registry) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items)
}

// of lists what a guest has.
func (r *Registry) of(tenant, guest string) (all []share.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, i := range r.items {
		if at.tenant == tenant && i.guests[guest] {
			all = append(all, at.id)
		}
	}
	return all
}

// Recover takes over the memory that an earlier daemon has given to a guest. Call it
// before any guest asks: memory of the same name would be created again. process
// returns the ID of the VMM's process; the error wraps vmm.ErrNotRunning when the VMM has
// ended and has nothing. Memory that cannot be taken over is left alone.
func (r *Registry) Recover(ctx context.Context, tenant, guest string, process func(context.Context) (int, error)) {
	pid, err := process(ctx)
	if errors.Is(err, vmm.ErrNotRunning) {
		return
	}
	var found []*share.Region
	if err == nil {
		found, err = share.FindRegions(pid)
	}
	if err != nil {
		r.log.Error("take over shared memory: it is left as it is", "guest", guest, "error", err)
	}
	for _, f := range found {
		r.takeOver(tenant, guest, f)
	}
}

// takeOver takes over memory that a guest has; other guests may have the same.
func (r *Registry) takeOver(tenant, guest string, found *share.Region) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := itemKey{tenant, found.ID}
	if r.items[at] == nil && found.Tenant == tenant {
		r.log.Info("take over shared memory", "tenant", tenant, "id", found.ID, "bytes", found.Size)
		r.items[at] = &item{found, map[string]bool{guest: true}}
		return
	}
	if known := r.items[at]; known != nil && known.memory != nil && sameFile(known.memory.File, found.File) {
		known.guests[guest] = true
	}
	_ = found.File.Close() // nothing was written to it
}

func sameFile(a, b *os.File) bool {
	one, err := a.Stat()
	other, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(one, other)
}
