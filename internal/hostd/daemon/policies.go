package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containernetworking/plugins/pkg/netlinksafe"

	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/isolation"
)

// podPolicies are which connections the pods of the tenants may have, as a policy client of
// each has said. What a client has said is in a file per tenant, so that the next daemon
// filters as this one. A nil podPolicies filters nothing.
type podPolicies struct {
	stateDir string
	log      *slog.Logger

	mu      sync.Mutex
	table   *isolation.Table                 // nil: no tenant has policies
	tenants map[string]*tenantPolicies       // those that have, by name
	ports   map[string]policyPort            // on the tenants' bridges, by interface
	spoken  map[string]map[netip.Addr]string // service addresses, with their pods' ports, by the TAP of a guest's own NIC
	inForce []isolation.Port
}

func newPodPolicies(stateDir string, log *slog.Logger) *podPolicies {
	return &podPolicies{stateDir: stateDir, log: log, tenants: map[string]*tenantPolicies{}, ports: map[string]policyPort{}, spoken: map[string]map[netip.Addr]string{}}
}

// filter returns the packet filter, nil if no tenant has policies.
func (p *podPolicies) filter() *isolation.Table {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table
}

// configure adds the tenants that have policies. It reports whether it has opened the
// packet filter, with the ports that an earlier daemon has left on their bridges.
func (p *podPolicies) configure(tenants []policy.Tenant) (opened bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range tenants {
		if t.NetworkPolicy == "" || p.tenants[t.Name] != nil {
			continue
		}
		made := &tenantPolicies{bridges: append([]string{t.Bridge}, t.Bridges...), required: t.NetworkPolicy == policy.PolicyRequired}
		pods, err := readPolicies(policiesPath(p.stateDir, t.Name))
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
func (p *podPolicies) drop() error {
	dir := filepath.Join(p.stateDir, "policies")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(isolation.Drop(), os.RemoveAll(dir))
}

func (p *podPolicies) open() error {
	if p.table != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(p.stateDir, "policies"), 0o700); err != nil { // so that drop finds the filter
		return err
	}
	links, err := netlinksafe.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		key, r, ok := attachment.ParseAlias(l.Attrs().Alias)
		if tenant := p.tenantOf(r.Bridge); ok && key.Kind == attachment.NIC && tenant != "" {
			p.ports[l.Attrs().Name] = policyPort{tenant, r.Addrs(), r.Services}
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
func (p *podPolicies) readSpoken() error {
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
func (p *podPolicies) tenantOf(bridge string) string {
	for name, t := range p.tenants {
		if slices.Contains(t.bridges, bridge) {
			return name
		}
	}
	return ""
}

// connect filters a port before it is on its bridge.
func (p *podPolicies) connect(iface string, r attachment.Record) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	tenant := p.tenantOf(r.Bridge)
	if tenant == "" {
		return nil
	}
	p.ports[iface] = policyPort{tenant, r.Addrs(), r.Services}
	return p.update()
}

// disconnect ends the filter of a port whose pod has ended. If policies are required, it
// forgets that of the pod, and tells the client so.
func (p *podPolicies) disconnect(iface string) error {
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

// speak filters what a guest sends by its own NIC from the service addresses of its pods, and
// receives for them. It is given the pods' ports.
func (p *podPolicies) speak(tap string, pods map[netip.Addr]string) error {
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

// commit puts policies of all pods of a tenant into force, and keeps those of the pods here
// for the next daemon. It returns the number of pods that have a port and a policy.
func (p *podPolicies) commit(session *policySession, pods map[string]podPolicy) (nics int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenants[session.tenant]
	if t.session != session {
		return 0, errSuperseded
	}
	old, unread := t.pods, t.unread
	t.set(pods)
	t.unread = false
	kept := map[string]podPolicy{} // those of other hosts' pods are not worth a file
	for _, port := range p.ports {
		if port.tenant != session.tenant {
			continue
		}
		for _, a := range port.addresses {
			if pod, ok := pods[t.names[a]]; ok {
				kept[t.names[a]] = pod
			}
		}
	}
	err = writeJSON(policiesPath(p.stateDir, session.tenant), kept)
	if err == nil {
		err = p.update()
	}
	if err != nil {
		t.set(old)
		t.unread = unread
	}
	return len(kept), err
}
