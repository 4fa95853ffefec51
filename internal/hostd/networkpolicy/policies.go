// Package networkpolicy keeps which connections the pods of tenants may have, as each tenant's
// policy client has said, and has package isolation filter accordingly. How a client's stream
// comes does not belong here.
package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"unnest/internal/hostapi/policylimit"
	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/quota"
	"unnest/internal/hostd/statefile"
	"unnest/internal/hostd/status"
	"unnest/internal/netdev/isolation"
	"unnest/internal/netdev/link"
	"unnest/internal/netdev/nft"
)

// Policies are which connections the pods of the tenants may have, as a policy client of
// each has said. What a client has said is in a file per tenant, so that the next daemon
// filters as this one. Nil filters nothing.
type Policies struct {
	stateDir string
	log      *slog.Logger

	openFilter func([]isolation.Port) (Filter, error)
	write      func(path string, v any) error

	mu      sync.Mutex
	table   Filter                           // nil: no tenant has policies
	tenants map[string]*tenant               // those that have, by name
	records map[string]attachment.Record     // of all pods' NICs, by interface; nil before Configure
	ports   map[string]podPort               // those on the tenants' bridges
	spoken  map[string]map[netip.Addr]string // service addresses, with their pods' ports, by the TAP of a guest's own NIC
	inForce map[string][]isolation.Port      // by tenant

	// Nodes returns the addresses of a tenant's guests. Nil: none are known.
	Nodes func(tenant string) []netip.Addr
}

// Filter is the packet filter.
type Filter interface {
	Prepare(ports ...isolation.Port) (release func() error, err error)
	Set(ports ...isolation.Port) error
	Remove(ports ...isolation.Port) error
	Watch(ctx context.Context, restored func(by nft.Generation, err error)) error
}

func openFilter(ports []isolation.Port) (Filter, error) {
	t, err := isolation.Open(ports)
	if err != nil {
		return nil, err // not a Filter without a table
	}
	return t, nil
}

// New returns the policies that are kept in a state directory. They filter nothing before
// Configure.
func New(stateDir string, log *slog.Logger) *Policies {
	return &Policies{
		stateDir: stateDir, log: log, openFilter: openFilter, write: statefile.Write,
		tenants: map[string]*tenant{}, ports: map[string]podPort{}, spoken: map[string]map[netip.Addr]string{}, inForce: map[string][]isolation.Port{},
	}
}

// Filter returns the packet filter, nil if no tenant has policies.
func (p *Policies) Filter() Filter {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table
}

// Configure makes the tenants' settings and bridges those of a configuration, for the ports that
// are there and for later ones. It reports whether it has opened the packet filter, with the
// ports that an earlier daemon has left on their bridges. It has one caller at a time.
func (p *Policies) Configure(tenants []quota.Tenant) (opened bool, err error) {
	next := map[string]*tenant{}
	for _, t := range tenants {
		if t.NetworkPolicy == "" {
			continue
		}
		made := p.tenant(t.Name)
		if made == nil {
			made = &tenant{name: t.Name, changing: &sync.Mutex{}}
			made.set(p.load(made))
		}
		next[t.Name] = made
	}
	for _, t := range next { // nobody else holds two
		t.changing.Lock()
		defer t.changing.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.findPorts(); err != nil {
		return false, err
	}
	before, was := p.tenants, map[string]settings{}
	for name, t := range next {
		was[name] = t.settings
	}
	defer func() {
		if err != nil {
			for name, t := range next {
				t.settings = was[name]
			}
			p.use(before)
			if p.table != nil { // some of the change may be in force
				err = errors.Join(err, p.applyAll())
			}
		}
	}()
	for _, t := range tenants {
		if t.NetworkPolicy != "" {
			next[t.Name].settings = settings{t.AllBridges(), t.NetworkPolicy == quota.PolicyRequired, t.PodRanges, t.NodeRanges}
		}
	}
	p.use(next)
	if len(p.tenants) == 0 {
		return false, p.drop()
	}
	if p.table == nil {
		return true, p.open()
	}
	return false, p.applyAll()
}

// applyAll is apply for all tenants, whose shares may have changed. A port that has become another
// tenant's is replaced.
func (p *Policies) applyAll() error {
	for name, all := range p.inForce {
		p.inForce[name] = slices.DeleteFunc(slices.Clone(all), func(port isolation.Port) bool {
			now, ok := p.ports[port.Interface]
			return ok && now.tenant != name
		})
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p.tenants)) {
		p.tenants[name].session.tellRanges()
		errs = append(errs, p.apply(p.tenants[name]))
	}
	return errors.Join(errs...)
}

// use makes the tenants' bridges those on which ports are filtered.
func (p *Policies) use(tenants map[string]*tenant) {
	p.tenants, p.ports = tenants, map[string]podPort{}
	for iface, r := range p.records {
		p.assign(iface, r)
	}
}

// findPorts finds the NICs that an earlier daemon has left, once.
func (p *Policies) findPorts() error {
	if p.records != nil {
		return nil
	}
	links, err := link.List()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	p.records = map[string]attachment.Record{}
	for _, l := range links {
		if key, r, ok := attachment.ParseAlias(l.Alias); ok && key.Kind == attachment.NIC {
			p.records[l.Name] = r
		}
	}
	return nil
}

// assign gives a port to the tenant of its bridge, if that has policies.
func (p *Policies) assign(iface string, r attachment.Record) bool {
	tenant := p.tenantOf(r.Bridge)
	if tenant == "" {
		return false
	}
	p.ports[iface] = podPort{tenant, r.PodUID, r.Addrs(), r.Services, r.Addresses}
	p.tenants[tenant].session.tellOwner(r.PodUID)
	return true
}

// drop removes what an earlier daemon has left that had tenants with policies.
func (p *Policies) drop() error {
	dir := filepath.Join(p.stateDir, "policies")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(isolation.Drop(), os.RemoveAll(dir))
}

func (p *Policies) open() error {
	if err := os.MkdirAll(filepath.Join(p.stateDir, "policies"), 0o700); err != nil { // so that drop finds the filter
		return err
	}
	for _, t := range p.tenants {
		t.forgetEnded(p.ports)
	}
	if err := p.readSpoken(); err != nil {
		p.log.Warn("read the service addresses of the filter of an earlier daemon: their connections may end", "error", err)
	}
	return p.fill()
}

// fill makes the filter of all tenants. If the kernel refuses it, a tenant whose policies are the reason
// is without them, and the others have theirs.
func (p *Policies) fill() (err error) {
	var all []isolation.Port
	for name, t := range p.tenants {
		p.inForce[name] = p.wanted(t)
		all = append(all, p.inForce[name]...)
	}
	if p.table, err = p.openFilter(all); err == nil {
		return nil
	}
	p.log.Error("the kernel refuses the policies of an earlier daemon together: trying those of each tenant", "error", err)
	for i := range all {
		all[i].Ingress, all[i].Egress = &isolation.Direction{}, &isolation.Direction{}
	}
	if p.table, err = p.openFilter(all); err != nil {
		return err
	}
	for name, t := range p.tenants {
		if err := p.table.Set(p.inForce[name]...); err != nil {
			p.quarantine(t, err)
			t.set(map[string]podRules{})
			p.inForce[name] = p.wanted(t)
			if err := p.table.Set(p.inForce[name]...); err != nil {
				return err
			}
		}
	}
	return nil
}

// readSpoken reads the service addresses that an earlier daemon has filtered, so that they stay
// filtered until the guests are taken over.
func (p *Policies) readSpoken() error {
	left, err := isolation.Addresses()
	for tap, addresses := range left {
		p.spoken[tap] = map[netip.Addr]string{}
		for iface, port := range p.ports {
			for _, a := range port.services {
				if slices.Contains(addresses, a) {
					p.spoken[tap][a] = iface
				}
			}
		}
	}
	return err
}

// Status describes the policies of a tenant, nil if it has none.
func (p *Policies) Status(tenant string) *status.Policies {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenants[tenant]
	if t == nil {
		return nil
	}
	return &status.Policies{Bytes: t.size, Share: policylimit.Share(len(p.tenants)), Refused: t.refused, Unknown: t.unread, Unkept: t.unkept}
}

// tenantOf returns the tenant that has policies and a bridge, "" if none.
func (p *Policies) tenantOf(bridge string) string {
	for name, t := range p.tenants {
		if slices.Contains(t.bridges, bridge) {
			return name
		}
	}
	return ""
}

// Connect filters a port before it is on its bridge.
func (p *Policies) Connect(iface string, r attachment.Record) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.records == nil {
		return nil // not configured
	}
	p.records[iface] = r
	if !p.assign(iface, r) {
		return nil
	}
	return p.update(p.ports[iface].tenant)
}

// Disconnect ends the filter of a port whose pod has ended, and tells the client so. It forgets
// the policy of a pod without UID, which the next pod with its address would have.
func (p *Policies) Disconnect(iface string) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.records, iface)
	port, ok := p.ports[iface]
	if !ok {
		return nil
	}
	delete(p.ports, iface)
	t := p.tenants[port.tenant]
	t.session.tellOwner(port.podUID)
	if name, _ := t.owners.of(port); name != "" && t.pods[name].UID == "" {
		t.forget(name)
		t.session.tell(name)
	}
	return p.update(port.tenant)
}

// Speak filters what a guest sends by its own NIC from the service addresses of its pods, and
// receives for them. It is given the pods' ports.
func (p *Policies) Speak(tap string, pods map[netip.Addr]string) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table == nil || len(pods) == 0 && len(p.spoken[tap]) == 0 {
		return nil
	}
	tenants := map[string]bool{}
	for _, all := range []map[netip.Addr]string{p.spoken[tap], pods} {
		for _, iface := range all {
			tenants[p.ports[iface].tenant] = true
		}
	}
	p.spoken[tap] = pods
	var errs []error
	for name := range tenants {
		errs = append(errs, p.update(name))
	}
	return errors.Join(errs...)
}

// Committed is the answer to a commit.
type Committed struct {
	NICs    int      // of pods that have a policy
	Refused []string // namespaces with more policies than the tenant's share has room for
}

// Commit puts what a client has said of all pods of its tenant into force, and keeps that of
// the pods here for the next daemon. After an error, what was in force before is.
func (p *Policies) Commit(session *Session, s *Staging) (c Committed, err error) {
	if c, err = p.replace(session, maps.Clone(s.pods)); err == nil {
		s.changed = map[string]bool{}
	}
	return c, err
}

// planned returns what a tenant's ports may do with other policies.
func (p *Policies) planned(session *Session, pods map[string]podRules) (Filter, []isolation.Port, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	present := p.tenants[session.Tenant]
	if present == nil || present.session != session {
		return nil, nil, ErrSuperseded
	}
	t := *present // changed here only
	t.set(pods)
	t.unread, t.spoken = "", true
	return p.table, p.wanted(&t), nil
}

func (p *Policies) replace(session *Session, pods map[string]podRules) (c Committed, err error) {
	table, wanted, err := p.planned(session, maps.Clone(pods))
	if err != nil {
		return c, err
	}
	release, err := table.Prepare(wanted...) // without the lock: other tenants do not wait
	defer func() {
		if err := release(); err != nil {
			p.log.Error("delete sets of the packet filter that no port uses", "error", err)
		}
	}()
	if err != nil {
		return c, err
	}
	t := p.tenant(session.Tenant)
	t.changing.Lock()
	defer t.changing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.session != session {
		return c, ErrSuperseded
	}
	old, unread, spoken := t.pods, t.unread, t.spoken
	t.set(pods)
	t.unread, t.spoken = "", true
	if err = p.apply(t); err == nil { // what the kernel refuses must not be in the file
		kept := p.here(t)
		c = Committed{len(kept), t.refused}
		var unkept string
		p.unlocked(func() { unkept, err = p.keep(t.name, kept) })
		t.unkept = unkept
	}
	if err != nil {
		t.set(old)
		t.unread, t.spoken = unread, spoken
		return Committed{}, errors.Join(err, p.apply(t))
	}
	return c, nil
}

// unlocked calls f without the lock, which the caller holds again after it, also after a panic.
func (p *Policies) unlocked(f func()) {
	p.mu.Unlock()
	defer p.mu.Lock()
	f()
}

func (p *Policies) tenant(name string) *tenant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tenants[name]
}

// here returns the policies of the tenant's pods that have a port: those of other hosts' pods
// are not worth a file.
func (p *Policies) here(t *tenant) map[string]podRules {
	kept := map[string]podRules{}
	for _, port := range p.ports {
		if port.tenant != t.name {
			continue
		}
		if name, _ := t.owners.of(port); name != "" {
			kept[name] = t.pods[name]
		}
	}
	return kept
}
