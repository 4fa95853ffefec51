package networkpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"unnest/internal/netdev/isolation"
)

// effective returns what a port may do now, and whether a policy of its pod is known.
func (p *Policies) effective(iface string) (filtered isolation.Port, known bool) {
	port := p.ports[iface]
	t := p.tenants[port.tenant]
	filtered = isolation.Port{Interface: iface, Group: port.tenant}
	pod, known := t.of(port.addresses)
	switch {
	case known:
		filtered.Ingress, filtered.Egress = pod.Ingress, pod.Egress
	case t.required || t.unread:
		filtered.Ingress, filtered.Egress = &isolation.Direction{}, &isolation.Direction{}
	}
	return filtered, known
}

// wanted returns what all ports may do now, sorted. A pod may always connect to itself, also
// through a service.
func (p *Policies) wanted() (all []isolation.Port) {
	services := p.serviceAddresses()
	for iface, port := range p.ports {
		filtered, known := p.effective(iface)
		filtered.Ingress = withServices(filtered.Ingress, services[port.tenant])
		if known {
			filtered.Ingress = withPeers(filtered.Ingress, port.services)
		}
		all = append(all, filtered)
	}
	for tap, spoken := range p.spoken {
		for a, iface := range spoken {
			port, ok := p.ports[iface]
			if !ok {
				continue
			}
			pod, known := p.effective(iface)
			filtered := isolation.Port{Interface: tap, Address: a, Group: port.tenant, Egress: pod.Egress}
			if known {
				filtered.Egress = withPeers(pod.Egress, port.addresses)
			}
			if filtered.Egress != nil { // answers only
				filtered.Ingress = &isolation.Direction{}
			}
			all = append(all, filtered)
		}
	}
	slices.SortFunc(all, func(a, b isolation.Port) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Address.Compare(b.Address))
	})
	return all
}

// serviceAddresses returns those of the pods here, by tenant.
func (p *Policies) serviceAddresses() map[string][]serviceAddress {
	all := map[string][]serviceAddress{}
	for _, iface := range slices.Sorted(maps.Keys(p.ports)) {
		port := p.ports[iface]
		for _, service := range port.services {
			s := serviceAddress{service: service}
			if i := slices.IndexFunc(port.addresses, func(a netip.Addr) bool { return a.Is4() == service.Is4() }); i >= 0 {
				s.pod = port.addresses[i]
			}
			all[port.tenant] = append(all[port.tenant], s)
		}
	}
	return all
}

// update brings the packet filter in line with what the ports may do now.
func (p *Policies) update() error {
	type key struct {
		iface   string
		address netip.Addr
	}
	was := map[key]isolation.Port{}
	for _, port := range p.inForce {
		was[key{port.Interface, port.Address}] = port
	}
	wanted := p.wanted()
	var changed, removed []isolation.Port
	for _, port := range wanted {
		k := key{port.Interface, port.Address}
		if old, ok := was[k]; !ok || !reflect.DeepEqual(old, port) {
			changed = append(changed, port)
		}
		delete(was, k)
	}
	for _, port := range was {
		removed = append(removed, port)
	}
	if len(changed) > 0 {
		if err := p.table.Set(changed...); err != nil {
			return err
		}
	}
	if err := p.table.Remove(removed...); err != nil {
		return err
	}
	p.inForce = wanted
	return nil
}
