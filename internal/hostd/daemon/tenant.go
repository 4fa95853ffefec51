package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"unnest/internal/hostd/ipam"
	"unnest/internal/hostd/policy"
)

// tenant is the network that several guests share: what the policy says of it,
// and whose each address is.
type tenant struct {
	policy.Tenant
	path string // where the addresses that cool down outlive the daemon

	mu    sync.Mutex
	pool  *ipam.Pool
	owned map[string]bool // attachments, as owner writes them
}

func newTenant(p policy.Tenant, stateDir string) (*tenant, error) {
	pool, err := ipam.New(p.Ranges, p.Cooldown, p.Subnets()...)
	if err != nil {
		return nil, fmt.Errorf("tenant %s: %w", p.Name, err)
	}
	for _, g := range p.Gateways {
		pool.Reserve(g.Addr(), "the gateway")
	}
	t := &tenant{Tenant: p, path: filepath.Join(stateDir, "cooling", p.Name+".json"), pool: pool, owned: map[string]bool{}}
	return t, t.restore()
}

// restore reads which addresses an earlier daemon was not to give again yet.
func (t *tenant) restore() error {
	content, err := os.ReadFile(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var cooling []ipam.Cooling
	if err == nil {
		err = json.Unmarshal(content, &cooling)
	}
	if err != nil {
		return fmt.Errorf("read the addresses of tenant %s that cool down, %s: %w", t.Name, t.path, err)
	}
	t.pool.Restore(cooling)
	return nil
}

// owner is an attachment in the words of the tenant's addresses.
func owner(guest string, key fmt.Stringer) string { return guest + "/" + key.String() }

// take gives the addresses to an attachment, which may have them already; with
// allocate it chooses them.
func (t *tenant) take(owner string, asked []netip.Prefix, allocate bool) ([]ipam.Address, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !allocate {
		return nil, t.pool.Claim(owner, asked, time.Now())
	}
	return t.pool.Allocate(owner, time.Now())
}

// release takes an attachment's addresses back, to cool down.
func (t *tenant) release(owner string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owned, owner)
	if len(t.pool.Owned(owner)) == 0 {
		return nil
	}
	now := time.Now()
	t.pool.Release(owner, now)
	return writeJSON(t.path, t.pool.Cooling(now))
}

// reserve keeps an address of a guest's own from its pods and others'.
func (t *tenant) reserve(a netip.Addr, guest string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pool.Reserve(a, "guest "+guest)
}

// admit counts an attachment, once, unless that is one too many.
func (t *tenant) admit(owner string, guestNICs int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owned[owner] {
		return nil
	}
	if err := t.AdmitNIC(guestNICs, len(t.owned)); err != nil {
		return err
	}
	t.owned[owner] = true
	return nil
}

// adopt counts an attachment that is there.
func (t *tenant) adopt(owner string, addresses []netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owned[owner] = true
	if len(addresses) == 0 {
		return nil
	}
	return t.pool.Claim(owner, addresses, time.Now())
}

// stats counts addresses and attachments.
func (t *tenant) stats() (ipam.Stats, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pool.Stats(time.Now()), len(t.owned)
}

// releaseAll takes back what a guest's attachments have.
func (t *tenant) releaseAll(guest string) (err error) {
	t.mu.Lock()
	var gone []string
	for o := range t.owned {
		if strings.HasPrefix(o, guest+"/") {
			gone = append(gone, o)
		}
	}
	t.mu.Unlock()
	for _, o := range gone {
		err = errors.Join(err, t.release(o))
	}
	return err
}

// exhausted says which addresses have run out, "" when none have.
func exhausted(s ipam.Stats) string {
	for _, r := range s.Ranges {
		if r.Free == 0 {
			return fmt.Sprintf("no free address in %s (%d in use, %d cooling down)", r.Range.Subnet, r.InUse, r.Cooling)
		}
	}
	return ""
}
