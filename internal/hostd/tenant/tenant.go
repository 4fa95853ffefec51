// Package tenant counts what the guests of one tenant have: its attachments, the queues of
// their ports, and the owner of each address. It enforces the tenant's quotas on them.
package tenant

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/ratelimit"
)

// Tenant is the network that several guests share: its quotas, its attachments, and the
// owner of each address.
type Tenant struct {
	Name string

	quotas atomic.Pointer[quota.Tenant] // the present ones
	file   *coolingFile

	mu     sync.Mutex
	pool   *ipam.Pool
	guests map[netip.Addr]string // the guests' own addresses
	owned  map[string]held       // attachments, as record.Guest.Owner names them
}

// held is what is counted of an attachment.
type held struct {
	queue  int64  // bytes of its port's queue
	podUID string // "" or attachment.NoPod: of none
}

// ErrPod is wrapped when a guest asks for a NIC of a pod of which another guest has one.
var ErrPod = errors.New("pod of another guest")

// Change gives the tenant later quotas of the same name, with the same ranges and gateways.
func (t *Tenant) Change(p quota.Tenant) { t.quotas.Store(&p) }

// Now returns the tenant's present quotas. Do not keep them: a reload changes them.
func (t *Tenant) Now() quota.Tenant { return *t.quotas.Load() }

// New makes a tenant whose cooling addresses are in the state directory. try contains
// a panic.
func New(p quota.Tenant, stateDir string, log *slog.Logger, try func(string, func())) (*Tenant, error) {
	pool, err := ipam.New(p.Ranges, p.Cooldown, p.Subnets()...)
	if err != nil {
		return nil, fmt.Errorf("tenant %s: %w", p.Name, err)
	}
	for _, g := range p.Gateways {
		pool.Reserve(g.Addr(), "the gateway")
	}
	t := &Tenant{Name: p.Name, pool: pool, owned: map[string]held{}, guests: map[netip.Addr]string{}}
	t.Change(p)
	t.file = &coolingFile{path: filepath.Join(stateDir, "cooling", p.Name+".json"), log: log.With("tenant", p.Name), try: try, read: t.cooling}
	pool.Restore(t.file.load(), time.Now())
	return t, nil
}

// Flush writes the cooling addresses now, if any have changed.
func (t *Tenant) Flush() { t.file.flush() }

func (t *Tenant) cooling() []ipam.Cooling {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pool.Cooling(time.Now())
}

// Take claims addresses for an attachment, which may have them already. With allocate
// it chooses them. The pods of a guest have no more than the tenant's limit.
func (t *Tenant) Take(owner string, asked []netip.Prefix, allocate bool) ([]ipam.Address, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wanted := len(asked)
	if allocate {
		wanted = t.pool.Families()
	}
	if err := t.Now().AdmitAddresses(t.pool.Held(owner), wanted); err != nil {
		return nil, err
	}
	if !allocate {
		if err := t.pool.AdmitClaim(owner, asked, t.Now().Claimable(), time.Now()); err != nil {
			return nil, err
		}
		return nil, t.pool.Claim(owner, asked, time.Now())
	}
	return t.pool.Allocate(owner, time.Now())
}

// servicesOf is the owner of the service addresses of an attachment.
func servicesOf(owner string) string { return owner + "/services" }

// TakeServices chooses service addresses for an attachment, one of each family, which may
// have them already. Without policies nobody needs to tell pods apart, so there are none.
func (t *Tenant) TakeServices(owner string) (chosen []netip.Addr, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Now().NetworkPolicy == "" || t.pool.Families() == 0 {
		return nil, nil
	}
	services := servicesOf(owner)
	if err := t.Now().AdmitAddresses(t.pool.Held(services), t.pool.Families()); err != nil {
		return nil, err
	}
	all, err := t.pool.Allocate(services, time.Now())
	for _, a := range all {
		chosen = append(chosen, a.Prefix.Addr())
	}
	return chosen, err
}

// Release ends an attachment: the addresses that a NIC has carried cool down.
func (t *Tenant) Release(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owned, owner)
	t.free(owner)
	t.free(servicesOf(owner))
}

// free releases the addresses of an owner.
func (t *Tenant) free(owner string) {
	if len(t.pool.Owned(owner)) > 0 {
		t.pool.Release(owner, time.Now())
		t.file.changed()
	}
}

// Reserve keeps a guest's own addresses from all pods, in place of those that it had before.
func (t *Tenant) Reserve(guest string, addresses ...netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a, of := range t.guests {
		if of == guest && !slices.Contains(addresses, a) {
			delete(t.guests, a)
			t.pool.Unreserve(a)
		}
	}
	for _, a := range addresses {
		t.pool.Reserve(a, "guest "+guest)
		t.guests[a] = guest
	}
}

// GuestAddresses returns the addresses that Reserve keeps for guests, sorted.
func (t *Tenant) GuestAddresses() []netip.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Keys(t.guests), netip.Addr.Compare)
}

// Admit counts an attachment and the queues of its port, unless the guest or the tenant
// has reached a limit. An attachment that is counted already needs no other NIC.
func (t *Tenant) Admit(owner string, r attachment.Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	had, known := t.owned[owner]
	if !known {
		guest, _, _ := strings.Cut(owner, "/")
		if err := t.Now().AdmitNIC(len(t.of(guest)), len(t.owned)); err != nil {
			return err
		}
	}
	if err := t.admitPod(owner, r.PodUID); err != nil {
		return err
	}
	queued := -had.queue
	for _, o := range t.owned {
		queued += o.queue
	}
	queue := ratelimit.Queue(ratelimit.Limits(r.Bandwidth))
	if err := t.Now().AdmitQueues(queued, queue); err != nil {
		return err
	}
	uid := had.podUID
	if r.PodUID != "" {
		uid = r.PodUID
	}
	t.owned[owner] = held{max(had.queue, queue), uid} // until the port has changed
	return nil
}

// admitPod returns an error that wraps ErrPod if another guest has a NIC of the pod: policies
// and peers go by the pod, and a guest could take those of another guest's pod by its name.
func (t *Tenant) admitPod(owner, uid string) error {
	if uid == "" || uid == attachment.NoPod {
		return nil
	}
	guest, _, _ := strings.Cut(owner, "/")
	for o, other := range t.owned {
		if has, _, _ := strings.Cut(o, "/"); other.podUID == uid && has != guest {
			return fmt.Errorf("%w: guest %s has a NIC of pod %s: remove the pod there first", ErrPod, has, uid)
		}
	}
	return nil
}

// Hold counts an attachment and claims the addresses of its record for a NIC that is
// about to carry them, in place of all that the attachment had. From now on they cool down when they are released.
func (t *Tenant) Hold(owner string, r attachment.Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owned[owner] = held{ratelimit.Queue(ratelimit.Limits(r.Bandwidth)), r.PodUID}
	services := make([]netip.Prefix, len(r.Services))
	for i, a := range r.Services {
		services[i] = netip.PrefixFrom(a, a.BitLen())
	}
	for o, addresses := range map[string][]netip.Prefix{owner: r.Addresses, servicesOf(owner): services} {
		if len(addresses) == 0 {
			t.free(o)
		}
		if err := t.pool.Keep(o, addresses, time.Now()); err != nil {
			return err
		}
		t.pool.Use(o)
	}
	return nil
}

// Multicasts is the limit of each port, as antispoof takes it.
func (t *Tenant) Multicasts() int {
	if n := t.Now().Limits.Multicasts; n > 0 {
		return n
	}
	return -1
}

// Stats returns the use of the addresses, and the number of attachments.
func (t *Tenant) Stats() (ipam.Stats, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pool.Stats(time.Now()), len(t.owned)
}

// held returns how many addresses a guest's pods have, and how many another one would be given.
func (t *Tenant) held(guest string) (held, each int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pool.Held(guest + "/"), t.pool.Families()
}

// HasPod reports whether an address is that of a pod.
func (t *Tenant) HasPod(a netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pool.Holds(a)
}

// ReleaseAll ends all attachments of a guest.
func (t *Tenant) ReleaseAll(guest string) {
	for _, o := range t.Of(guest) {
		t.Release(o)
	}
}

// Of lists the owners that are attachments of a guest.
func (t *Tenant) Of(guest string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(guest)
}

func (t *Tenant) of(guest string) (owners []string) {
	for o := range t.owned {
		if strings.HasPrefix(o, guest+"/") {
			owners = append(owners, o)
		}
	}
	return owners
}
