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
	ports   map[string]podPort               // on the tenants' bridges, by interface
	spoken  map[string]map[netip.Addr]string // service addresses, with their pods' ports, by the TAP of a guest's own NIC
	inForce map[string][]isolation.Port      // by tenant
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

// Configure adds the tenants that have policies. It reports whether it has opened the
// packet filter, with the ports that an earlier daemon has left on their bridges.
func (p *Policies) Configure(tenants []quota.Tenant) (opened bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range tenants {
		if t.NetworkPolicy == "" || p.tenants[t.Name] != nil {
			continue
		}
		made := &tenant{name: t.Name, bridges: append([]string{t.Bridge}, t.Bridges...), required: t.NetworkPolicy == quota.PolicyRequired}
		made.set(p.load(made))
		p.tenants[t.Name] = made
	}
	if len(p.tenants) == 0 {
		return false, p.drop()
	}
	return p.table == nil, p.open()
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
	if p.table != nil {
		return nil
	}
	links, err := link.List()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		key, r, ok := attachment.ParseAlias(l.Alias)
		if tenant := p.tenantOf(r.Bridge); ok && key.Kind == attachment.NIC && tenant != "" {
			p.ports[l.Name] = podPort{tenant, r.Addrs(), r.Services, r.Addresses}
		}
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
	tenant := p.tenantOf(r.Bridge)
	if tenant == "" {
		return nil
	}
	p.ports[iface] = podPort{tenant, r.Addrs(), r.Services, r.Addresses}
	return p.update(tenant)
}

// Disconnect ends the filter of a port whose pod has ended. If policies are required, it
// forgets that of the pod, and tells the client so.
func (p *Policies) Disconnect(iface string) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	port, ok := p.ports[iface]
	if !ok {
		return nil
	}
	delete(p.ports, iface)
	if t := p.tenants[port.tenant]; t.required {
		for _, a := range port.addresses {
			if name := t.names[a]; name != "" {
				t.forget(name)
				t.session.tell(name)
			}
		}
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
	t := *p.tenants[session.Tenant] // changed here only
	if t.session != session {
		return nil, nil, ErrSuperseded
	}
	t.set(pods)
	t.unread = ""
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
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenants[session.Tenant]
	if t.session != session {
		return c, ErrSuperseded
	}
	old, unread := t.pods, t.unread
	t.set(pods)
	t.unread = ""
	kept := map[string]podRules{} // those of other hosts' pods are not worth a file
	for _, port := range p.ports {
		if port.tenant != session.Tenant {
			continue
		}
		for _, a := range port.addresses {
			if pod, ok := pods[t.names[a]]; ok {
				kept[t.names[a]] = pod
			}
		}
	}
	if err = p.update(session.Tenant); err == nil { // what the kernel refuses must not be in the file
		err = p.keep(t, kept)
	}
	if err != nil {
		t.set(old)
		t.unread = unread
		return c, errors.Join(err, p.update(session.Tenant))
	}
	return Committed{len(kept), t.refused}, nil
}
