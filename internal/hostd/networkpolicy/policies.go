// Package networkpolicy keeps which connections the pods of tenants may have, as each tenant's
// policy client has said, and has package isolation filter accordingly. How a client's stream
// comes does not belong here.
package networkpolicy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"sync"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/statefile"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/hostd/turns"
	"unnest.io/unnest/internal/netdev/isolation"
	"unnest.io/unnest/internal/netdev/nft"
)

// Policies are which connections the pods of the tenants may have, as a policy client of
// each has said. What a client has said is in a file per tenant, so that the next daemon
// filters as this one. Nil filters nothing.
type Policies struct {
	stateDir string
	log      *slog.Logger

	// Open opens the packet filter.
	Open      func([]isolation.Port) (Filter, error)
	addresses func() (map[string][]netip.Addr, error) // service addresses that an earlier daemon's filter limits, by interface
	disk      disk

	writing sync.Mutex // held by who writes a record
	mu      sync.Mutex
	table   Filter                           // nil: no tenant has policies
	tenants map[string]*tenant               // those that have, by name
	alone   bool                             // there is no other tenant, with or without
	records map[string]attachment.Record     // of all pods' NICs, by interface; nil before Configure
	ports   map[string]podPort               // those on the tenants' bridges
	spoken  map[string]map[netip.Addr]string // service addresses, with their pods' ports, by the TAP of a guest's own NIC
	inForce map[string][]isolation.Port      // by tenant

	// Turns has tenants put their policies into force one at a time.
	Turns *turns.Turns
	// Nodes returns the addresses of a tenant's guests. Nil: none are known.
	Nodes func(tenant string) []netip.Addr
	// NodeNames returns a function that returns the node of the guest that has a port, "" if no guest has
	// it. Nil: they are not known.
	NodeNames func() func(iface string) string
}

// disk changes the files.
type disk struct {
	write    func(path string, content func(io.Writer) error) error
	truncate func(path string, size int64) error
	rename   func(from, to string) error
	remove   func(path string) error
}

// Filter is the packet filter.
type Filter interface {
	Prepare(between func(), ports ...isolation.Port) (release func() error, err error)
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
		stateDir: stateDir, log: log, Open: openFilter, addresses: isolation.Addresses, disk: disk{statefile.Stream, statefile.Truncate, statefile.Rename, os.Remove},
		tenants: map[string]*tenant{}, ports: map[string]podPort{}, spoken: map[string]map[netip.Addr]string{}, inForce: map[string][]isolation.Port{},
	}
}

// Filter returns the packet filter, nil if no tenant has policies.
func (p *Policies) Filter() Filter {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table
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

// State says whether the network policies of a tenant apply.
func (p *Policies) State(tenant string) hostdpb.PolicyState {
	if p == nil {
		return hostdpb.PolicyState_POLICY_STATE_NONE
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch t := p.tenants[tenant]; {
	case t == nil:
		return hostdpb.PolicyState_POLICY_STATE_NONE
	case t.session == nil || !t.spoken:
		return hostdpb.PolicyState_POLICY_STATE_NO_CLIENT
	}
	return hostdpb.PolicyState_POLICY_STATE_ENFORCED
}

// BoundElsewhere returns the node to which a tenant's client says that the pod of a UID is bound, "" if that is
// the given one or is not known.
func (p *Policies) BoundElsewhere(tenant, uid, node string) string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tenants[tenant]; t != nil && t.owners.stray(podPort{podUID: uid, node: node}) {
		return t.owners.nodes[uid]
	}
	return ""
}

// Connect filters a port before it is on its bridge. It yields the turn between its transactions.
func (p *Policies) Connect(turn *turns.Turn, iface string, r attachment.Record) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.records == nil {
		return nil // not configured
	}
	p.records[iface] = r
	if !p.assign(iface, r, p.nodeNames()) {
		return nil
	}
	p.tellOwner(p.ports[iface])
	return p.update(turn, p.ports[iface].tenant, nil)
}

// Disconnect ends the filter of a port whose pod has ended, and tells the client so. It forgets
// the policy of a pod without UID, which the next pod with its address would have. It yields the turn between its transactions.
func (p *Policies) Disconnect(turn *turns.Turn, iface string) error {
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
	p.tellOwner(port)
	name, _ := t.owners.of(port)
	if name != "" && t.pods[name].UID == "" {
		t.said = t.except(func(n string, _ podRules) bool { return n == name })
	} else {
		name = ""
	}
	t.tell(func(s *Session) { s.ended = append(s.ended, endedPort{port, name}) })
	return p.update(turn, port.tenant, nil)
}

// Speak filters what a guest sends by its own NIC from the service addresses of its pods, and
// receives for them. It is given the pods' ports. It changes the TAP's own ports only: its caller holds a lock
// for which all tenants wait. Settle changes the others.
func (p *Policies) Speak(tap string, pods map[netip.Addr]string) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table == nil || len(pods) == 0 && len(p.spoken[tap]) == 0 {
		return nil
	}
	was, tenants, changed, filtered := p.spoken[tap], map[string]bool{}, map[portKey]bool{}, map[portKey]isolation.Port{}
	for _, all := range []map[netip.Addr]string{was, pods} {
		for _, iface := range all {
			tenants[p.ports[iface].tenant] = true
		}
	}
	for name := range tenants {
		maps.Copy(filtered, byKey(p.inForce[name]))
	}
	for _, all := range []map[netip.Addr]string{was, pods} {
		for a := range all {
			k := portKey{tap, a}
			_, has := filtered[k] // an earlier call may have failed
			_, wants := pods[a]
			changed[k] = was[a] != pods[a] || has != wants
		}
	}
	p.spoken[tap] = pods
	var errs []error
	for name := range tenants {
		errs = append(errs, p.update(nil, name, changed))
	}
	return errors.Join(errs...)
}

// Settle filters the other ports of the tenant of a port as they may be filtered after Speak. It yields the turn between its transactions.
func (p *Policies) Settle(turn *turns.Turn, iface string) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.update(turn, p.ports[iface].tenant, nil)
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
