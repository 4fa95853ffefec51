package daemon

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/share"
)

// Reasons to refuse what is asked of a volume or of shared memory.
var (
	errRegionSize = errors.New("the shared memory has another size")
	errNoShares   = errors.New("the guest has no ports for volumes and shared memory: start it with root ports vp1, vp2 and so on")
	errPrivate    = errors.New("the guest's memory is not shared, which virtiofs needs, and it has no 9p export: start it with memory-backend-memfd,share=on")
	errLost       = errors.New("the shared memory is an earlier daemon's and could not be taken over: detach it from all guests; the daemon needs CAP_SYS_PTRACE")
	errKept       = errors.New("the guest does not give it up")
)

// shares are what pods share beside their segments, for all guests of the host:
// which guest has what. The memory is held as long as a guest has it.
type shares struct {
	log *slog.Logger

	mu      sync.Mutex
	volumes map[string]map[string]bool // that are attached, as owner writes them, by tenant
	regions map[regionKey]*region
}

// regionKey tells a region from all others of the host.
type regionKey struct {
	tenant string
	id     share.ID
}

// region is memory that a pod shares. Without a file it is some that guests have,
// but we have not.
type region struct {
	*share.Region
	guests map[string]bool // that have it
}

func newShares(log *slog.Logger) *shares {
	return &shares{log: log, volumes: map[string]map[string]bool{}, regions: map[regionKey]*region{}}
}

// takeVolume counts a volume as a guest's, once, unless that is one too many.
func (s *shares) takeVolume(t policy.Tenant, guest string, id share.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.volumes[t.Name][owner(guest, id)] {
		return nil
	}
	if err := t.AdmitVolume(len(s.volumes[t.Name])); err != nil {
		return err
	}
	s.count(t.Name, guest, id)
	return nil
}

func (s *shares) count(tenant, guest string, id share.ID) {
	if s.volumes[tenant] == nil {
		s.volumes[tenant] = map[string]bool{}
	}
	s.volumes[tenant][owner(guest, id)] = true
}

// takeRegion gives a guest memory of a pod, which is made if there is none. size may
// be 0 for one that there is.
func (s *shares) takeRegion(t policy.Tenant, guest string, id share.ID, key share.Digest, size uint64) (*region, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := regionKey{t.Name, id}
	if r := s.regions[at]; r != nil {
		switch {
		case r.File == nil:
			return nil, errLost
		case subtle.ConstantTimeCompare(r.Key[:], key[:]) != 1:
			return nil, share.ErrKey
		case size != 0 && size != uint64(r.Size):
			return nil, fmt.Errorf("%w: %d bytes, not %d", errRegionSize, r.Size, size)
		}
		r.guests[guest] = true
		return r, nil
	}
	if err := share.CheckSize(size); err != nil {
		return nil, err
	}
	if err := t.AdmitMemory(s.bytes(t.Name), int64(size)); err != nil {
		return nil, err
	}
	r := &region{&share.Region{Tenant: t.Name, ID: id, Key: key, Size: int64(size)}, map[string]bool{guest: true}}
	if err := r.Create(); err != nil {
		return nil, err
	}
	s.regions[at] = r
	s.log.Info("make shared memory", "tenant", t.Name, "id", id, "bytes", size)
	return r, nil
}

// bytes is how much memory the tenant's pods share.
func (s *shares) bytes(tenant string) (n int64) {
	for at, r := range s.regions {
		if at.tenant == tenant {
			n += r.Size
		}
	}
	return n
}

// size is that of a region, 0 if there is none.
func (s *shares) size(tenant string, id share.ID) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.regions[regionKey{tenant, id}]; r != nil {
		return r.Size
	}
	return 0
}

// release takes something back from a guest; memory that no guest has ends.
func (s *shares) release(tenant, guest string, id share.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.volumes[tenant], owner(guest, id))
	at := regionKey{tenant, id}
	r := s.regions[at]
	if r == nil {
		return nil
	}
	delete(r.guests, guest)
	if len(r.guests) > 0 {
		return nil
	}
	delete(s.regions, at)
	s.log.Info("give up shared memory", "tenant", tenant, "id", id)
	if r.File == nil {
		return nil
	}
	return r.File.Close()
}

// adopt brings what a guest has in line with the devices that it really has.
func (s *shares) adopt(tenant, guest string, devices map[share.ID]bool) (err error) {
	for id := range devices {
		s.add(tenant, guest, id)
	}
	for _, id := range s.of(tenant, guest) {
		if !devices[id] {
			err = errors.Join(err, s.release(tenant, guest, id))
		}
	}
	return err
}

// add notes that a guest has something.
func (s *shares) add(tenant, guest string, id share.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id.Kind == share.Volume {
		s.count(tenant, guest, id)
		return
	}
	at := regionKey{tenant, id}
	if s.regions[at] == nil {
		s.log.Warn("a guest has shared memory that could not be taken over", "guest", guest, "id", id)
		s.regions[at] = &region{&share.Region{Tenant: tenant, ID: id}, map[string]bool{}}
	}
	s.regions[at].guests[guest] = true
}

// of lists what a guest has.
func (s *shares) of(tenant, guest string) (all []share.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, r := range s.regions {
		if at.tenant == tenant && r.guests[guest] {
			all = append(all, at.id)
		}
	}
	for o := range s.volumes[tenant] {
		text, own := strings.CutPrefix(o, guest+"/")
		if id, ok := share.ParseID(text); own && ok {
			all = append(all, id)
		}
	}
	return all
}

// drop takes everything back from a guest that is gone.
func (s *shares) drop(r GuestRecord) error {
	err := s.adopt(r.Tenant, r.Name, nil)
	if r.Export == "" {
		return err
	}
	export := share.Export{Dir: r.Export}
	bound, boundErr := export.Bound()
	err = errors.Join(err, boundErr)
	for id := range bound {
		err = errors.Join(err, export.Unbind(id))
	}
	return err
}

// recoverShares finds the memory that an earlier daemon has given to guests, before
// any guest asks: another's of the same name would be a second one.
func (d *daemon) recoverShares(records []GuestRecord, pid func(GuestRecord) (int, error)) {
	for _, r := range records {
		if r.QMP == "" {
			continue
		}
		process, err := pid(r)
		if err != nil { // the guest has ended
			continue
		}
		found, err := share.FindRegions(process)
		if err != nil {
			d.config.Logger.Warn("look for shared memory", "guest", r.Name, "error", err)
		}
		for _, f := range found {
			d.host.shares.recover(r, f)
		}
	}
}

// recover takes over a region that a guest has; others may have the same one.
func (s *shares) recover(r GuestRecord, f *share.Region) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := regionKey{r.Tenant, f.ID}
	if s.regions[at] == nil && f.Tenant == r.Tenant {
		s.log.Info("take over shared memory", "tenant", r.Tenant, "id", f.ID, "bytes", f.Size)
		s.regions[at] = &region{f, map[string]bool{r.Name: true}}
		return
	}
	if known := s.regions[at]; known != nil && sameFile(known.File, f.File) {
		known.guests[r.Name] = true
	}
	_ = f.File.Close() // it was only looked at
}

func sameFile(a, b *os.File) bool {
	one, err := a.Stat()
	other, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(one, other)
}
