package networkpolicy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/isolation"
	"unnest.io/unnest/internal/netdev/link"
)

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
			made = &tenant{name: t.Name, keeping: &sync.Mutex{}, changing: &sync.Mutex{}}
			made.said = newSaid(p.load(made))
		}
		next[t.Name] = made
	}
	for _, t := range next { // nobody else holds those of two tenants
		t.keeping.Lock()
		defer t.keeping.Unlock()
	}
	for _, t := range next { // a commit has its turn between the two
		t.changing.Lock()
		defer t.changing.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.findPorts(); err != nil {
		return false, err
	}
	before, alone, was := p.tenants, p.alone, map[string]settings{}
	p.alone = len(tenants) < 2
	for name, t := range next {
		was[name] = t.settings
	}
	defer func() {
		if err != nil {
			for name, t := range next {
				t.settings = was[name]
			}
			p.alone = alone
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
	switch {
	case p.table != nil:
		return false, p.applyAll()
	case len(p.tenants) == 0:
		return false, p.drop()
	}
	return true, p.open()
}

// applyAll is apply for all tenants, whose shares may have changed. A port that has become another
// tenant's is replaced. The ports of a tenant that is gone are filtered no more.
func (p *Policies) applyAll() error {
	var errs []error
	for name, all := range p.inForce {
		p.inForce[name] = slices.DeleteFunc(slices.Clone(all), func(port isolation.Port) bool {
			now, ok := p.ports[cmp.Or(p.spoken[port.Interface][port.Address], port.Interface)]
			return ok && now.tenant != name
		})
		if p.tenants[name] == nil {
			errs = append(errs, p.table.Remove(p.inForce[name]...))
			delete(p.inForce, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.tenants)) {
		p.tenants[name].tellRanges()
		errs = append(errs, p.apply(p.tenants[name]))
	}
	return errors.Join(errs...)
}

// use makes the tenants' bridges those on which ports are filtered.
func (p *Policies) use(tenants map[string]*tenant) {
	was, nodes := p.ports, p.nodeNames()
	p.tenants, p.ports = tenants, map[string]podPort{}
	for iface, r := range p.records {
		p.assign(iface, r, nodes)
		if before, now := was[iface], p.ports[iface]; before.tenant != now.tenant || before.node != now.node {
			p.tellOwner(before)
			p.tellOwner(now)
		}
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
	p.records = recordsOf(links)
	return nil
}

// recordsOf returns the records of the pods' NICs, by interface. One that is on a bridge and whose
// alias names no attachment is nobody's yet: the daemon ended while it connected the NIC.
func recordsOf(links []link.Link) map[string]attachment.Record {
	names, records := map[int]string{}, map[string]attachment.Record{}
	for _, l := range links {
		names[l.Index] = l.Name
	}
	for _, l := range links {
		switch key, r, ok := attachment.ParseAlias(l.Alias); {
		case ok && key.Kind == attachment.NIC:
			records[l.Name] = r
		case l.Alias == attachment.WarmAlias && l.Master != 0:
			records[l.Name] = attachment.Record{Bridge: names[l.Master]}
		}
	}
	return records
}

// assign gives a port to the tenant of its bridge, if that has policies.
func (p *Policies) assign(iface string, r attachment.Record, node func(string) string) bool {
	tenant := p.tenantOf(r.Bridge)
	if tenant == "" {
		return false
	}
	p.ports[iface] = podPort{tenant, r.PodUID, node(iface), r.Addrs(), r.Services, r.Addresses}
	return true
}

func (p *Policies) nodeNames() func(iface string) string {
	if p.NodeNames == nil {
		return func(string) string { return "" }
	}
	return p.NodeNames()
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
		p.log.Error("cannot make the directory for policies: commits fail until it exists", "error", err)
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
	if p.table, err = p.Open(all); err == nil {
		return nil
	}
	p.log.Error("the kernel refuses the policies of an earlier daemon together: trying those of each tenant", "error", err)
	for i := range all {
		all[i].Ingress, all[i].Egress = &isolation.Direction{}, &isolation.Direction{}
	}
	if p.table, err = p.Open(all); err != nil {
		return err
	}
	for name, t := range p.tenants {
		if err := p.table.Set(p.inForce[name]...); err != nil {
			p.quarantine(t, err)
			t.said = newSaid(map[string]podRules{})
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
	left, err := p.addresses()
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
