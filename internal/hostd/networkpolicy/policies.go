// Package networkpolicy keeps which connections the pods of tenants may have, as each tenant's
// policy client has said, and has package isolation filter accordingly. How a client's stream
// comes does not belong here.
package networkpolicy

import (
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

	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/quota"
	"unnest/internal/hostd/statefile"
	"unnest/internal/netdev/isolation"
	"unnest/internal/netdev/link"
)

// Policies are which connections the pods of the tenants may have, as a policy client of
// each has said. What a client has said is in a file per tenant, so that the next daemon
// filters as this one. Nil filters nothing.
type Policies struct {
	stateDir string
	log      *slog.Logger

	mu      sync.Mutex
	table   *isolation.Table                 // nil: no tenant has policies
	tenants map[string]*tenant               // those that have, by name
	ports   map[string]podPort               // on the tenants' bridges, by interface
	spoken  map[string]map[netip.Addr]string // service addresses, with their pods' ports, by the TAP of a guest's own NIC
	inForce []isolation.Port
}

// New returns the policies that are kept in a state directory. They filter nothing before
// Configure.
func New(stateDir string, log *slog.Logger) *Policies {
	return &Policies{stateDir: stateDir, log: log, tenants: map[string]*tenant{}, ports: map[string]podPort{}, spoken: map[string]map[netip.Addr]string{}}
}

// Filter returns the packet filter, nil if no tenant has policies.
func (p *Policies) Filter() *isolation.Table {
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
		made := &tenant{bridges: append([]string{t.Bridge}, t.Bridges...), required: t.NetworkPolicy == quota.PolicyRequired}
		pods, err := read(path(p.stateDir, t.Name))
		made.set(pods)
		if err != nil {
			made.unread = true
			p.log.Error("read policies: the pods have no connections until a client has sent them", "tenant", t.Name, "error", err)
		}
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
	if err := os.MkdirAll(filepath.Join(p.stateDir, "policies"), 0o700); err != nil { // so that drop finds the filter
		return err
	}
	links, err := link.List()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		key, r, ok := attachment.ParseAlias(l.Alias)
		if tenant := p.tenantOf(r.Bridge); ok && key.Kind == attachment.NIC && tenant != "" {
			p.ports[l.Name] = podPort{tenant, r.Addrs(), r.Services}
		}
	}
	for _, t := range p.tenants {
		t.forgetEnded(p.ports)
	}
	if err := p.readSpoken(); err != nil {
		p.log.Warn("read the service addresses of the filter of an earlier daemon: their connections may end", "error", err)
	}
	p.inForce = p.wanted()
	p.table, err = isolation.Open(p.inForce)
	return err
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
	p.ports[iface] = podPort{tenant, r.Addrs(), r.Services}
	return p.update()
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
	return p.update()
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
	p.spoken[tap] = pods
	return p.update()
}

// Commit puts what a client has said of all pods of its tenant into force, and keeps that of
// the pods here for the next daemon. It returns the number of pods that have a port and a
// policy.
func (p *Policies) Commit(session *Session, s *Staging) (nics int, err error) {
	if nics, err = p.replace(session, maps.Clone(s.pods)); err == nil {
		s.changed = map[string]bool{}
	}
	return nics, err
}

func (p *Policies) replace(session *Session, pods map[string]podRules) (nics int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenants[session.Tenant]
	if t.session != session {
		return 0, ErrSuperseded
	}
	old, unread := t.pods, t.unread
	t.set(pods)
	t.unread = false
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
	err = statefile.Write(path(p.stateDir, session.Tenant), kept)
	if err == nil {
		err = p.update()
	}
	if err != nil {
		t.set(old)
		t.unread = unread
	}
	return len(kept), err
}
