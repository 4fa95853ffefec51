package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
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
	table   *isolation.Table           // nil: no tenant has policies
	tenants map[string]*tenantPolicies // those that have, by name
	ports   map[string]policyPort      // on the tenants' bridges, by interface
}

func newPodPolicies(stateDir string, log *slog.Logger) *podPolicies {
	return &podPolicies{stateDir: stateDir, log: log, tenants: map[string]*tenantPolicies{}, ports: map[string]policyPort{}}
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
	var ports []isolation.Port
	for _, l := range links {
		key, r, ok := attachment.ParseAlias(l.Attrs().Alias)
		if tenant := p.tenantOf(r.Bridge); ok && key.Kind == attachment.NIC && tenant != "" {
			p.ports[l.Attrs().Name] = policyPort{tenant, r.Addrs()}
			ports = append(ports, p.effective(l.Attrs().Name))
		}
	}
	for _, t := range p.tenants {
		t.forgetEnded(p.ports)
	}
	p.table, err = isolation.Open(ports)
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

// effective returns what a port may do now.
func (p *podPolicies) effective(iface string) isolation.Port {
	port := p.ports[iface]
	t := p.tenants[port.tenant]
	filtered := isolation.Port{Interface: iface, Group: port.tenant}
	if pod, ok := t.of(port.addresses); ok {
		filtered.Ingress, filtered.Egress = pod.Ingress, pod.Egress
	} else if t.required || t.unread {
		filtered.Ingress, filtered.Egress = &isolation.Direction{}, &isolation.Direction{}
	}
	return filtered
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
	p.ports[iface] = policyPort{tenant, r.Addrs()}
	return p.table.Set(p.effective(iface))
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
	return p.table.Remove(iface)
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
	before := map[string]isolation.Port{}
	for name, port := range p.ports {
		if port.tenant == session.tenant {
			before[name] = p.effective(name)
		}
	}
	old, unread := t.pods, t.unread
	t.set(pods)
	t.unread = false
	var changed []isolation.Port
	kept := map[string]podPolicy{} // those of other hosts' pods are not worth a file
	for name, was := range before {
		if now := p.effective(name); !reflect.DeepEqual(was, now) {
			changed = append(changed, now)
		}
		for _, a := range p.ports[name].addresses {
			if pod, ok := pods[t.names[a]]; ok {
				kept[t.names[a]] = pod
			}
		}
	}
	err = writeJSON(policiesPath(p.stateDir, session.tenant), kept)
	if err == nil && len(changed) > 0 {
		err = p.table.Set(changed...)
	}
	if err != nil {
		t.set(old)
		t.unread = unread
	}
	return len(kept), err
}
