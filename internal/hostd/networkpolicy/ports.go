package networkpolicy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/netdev/isolation"
)

// filtered is a port and the namespace of its pod.
type filtered struct {
	isolation.Port
	namespace string
	known     bool // a policy of the pod is
}

// effective returns what a port may do now.
func (p *Policies) effective(t *tenant, iface string) filtered {
	port := p.ports[iface]
	pod, known := t.of(port)
	f := filtered{isolation.Port{Interface: iface, Link: port.link}, pod.namespace, known}
	switch {
	case known:
		f.Ingress, f.Egress = pod.Ingress, pod.Egress
	case t.required || t.unread != "" || t.spoken && port.podUID != attachment.NoPod:
		f.Ingress, f.Egress = &isolation.Direction{}, &isolation.Direction{}
	}
	return f
}

// wanted returns what all ports of a tenant may do now, sorted. A pod may always connect to
// itself, also through a service. It closes namespaces that do not fit into the tenant's share.
func (p *Policies) wanted(t *tenant) (all []isolation.Port) {
	share := policylimit.Share(len(p.tenants))
	var own []filtered
	for iface, port := range p.ports {
		if port.tenant == t.name {
			own = append(own, p.effective(t, iface))
		}
	}
	_, t.refused = admit(own, share)
	t.strays = p.straysOf(t)
	complete, services, pods := []filtered(nil), newServices(p.serviceAddresses(t.name)), map[string]filtered{}
	for _, f := range own {
		pods[f.Interface] = f
		f.Ingress = services.with(f.Ingress)
		if f.known {
			f.Ingress = withPeers(f.Ingress, p.ports[f.Interface].services)
		}
		complete = append(complete, f)
	}
	for tap, spoken := range p.spoken {
		for a, iface := range spoken {
			f, ok := pods[iface]
			if !ok {
				continue
			}
			f.Interface, f.Address, f.Ingress = tap, a, nil
			if f.known {
				f.Egress = withPeers(f.Egress, p.ports[iface].addresses)
			}
			if f.Egress != nil { // answers only
				f.Ingress = &isolation.Direction{}
			}
			complete = append(complete, f)
		}
	}
	var refused []string
	t.size, refused = admit(complete, share) // with services they are larger
	t.refused = append(t.refused, refused...)
	for _, f := range complete {
		all = append(all, f.Port)
	}
	slices.SortFunc(all, func(a, b isolation.Port) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Address.Compare(b.Address))
	})
	return all
}

// straysOf returns the ports of a tenant that are strays, sorted.
func (p *Policies) straysOf(t *tenant) (all []string) {
	for _, iface := range slices.Sorted(maps.Keys(p.ports)) {
		if port := p.ports[iface]; port.tenant == t.name && t.owners.stray(port) {
			all = append(all, fmt.Sprintf("%s of node %s for a pod of node %s", iface, port.node, t.owners.nodes[port.podUID]))
		}
	}
	return all
}

// admit closes the ports of namespaces that do not fit into a share, and returns the size of
// the others.
func admit(all []filtered, share int) (size int, refused []string) {
	sizes, counted := map[string]int{}, map[set]bool{}
	for _, f := range all {
		sizes[f.namespace] += message(f.Port, f.namespace, counted)
		if rulesMessage(f.Port) > policylimit.PodMessage {
			sizes[f.namespace] += share + 1
		}
	}
	refused = policylimit.Refuse(sizes, share)
	for i, f := range all {
		if slices.Contains(refused, f.namespace) {
			all[i].Port = closed(f.Port)
		}
	}
	for name, s := range sizes {
		if !slices.Contains(refused, name) {
			size += s
		}
	}
	return size, refused
}

// set is peers that rules of a namespace share.
type set struct {
	namespace string
	first     *iprange.Range
}

// message returns an upper bound of the bytes that the rules of a port take in a transaction,
// with peers that are not counted yet.
func message(p isolation.Port, namespace string, counted map[set]bool) (bytes int) {
	for _, r := range (podRules{Ingress: p.Ingress, Egress: p.Egress}).rules() {
		if len(r.Peers) == 0 {
			continue
		}
		if s := (set{namespace, &r.Peers[0]}); !counted[s] {
			counted[s] = true
			bytes += policylimit.RangeMessage * len(r.Peers)
		}
	}
	return bytes + rulesMessage(p)
}

// rulesMessage is message without the peers.
func rulesMessage(p isolation.Port) (bytes int) {
	for _, r := range (podRules{Ingress: p.Ingress, Egress: p.Egress}).rules() {
		n := len(r.Peers)
		if n == 0 {
			continue
		}
		families := 1 // those of IPv4 come first
		if r.Peers[0].First.BitLen() != r.Peers[n-1].First.BitLen() {
			families = 2
		}
		bytes += policylimit.RuleMessage * families * max(1, len(r.Services))
	}
	return bytes
}

// closed returns a port that is isolated as p is, and may begin nothing.
func closed(p isolation.Port) isolation.Port {
	if p.Ingress != nil {
		p.Ingress = &isolation.Direction{}
	}
	if p.Egress != nil {
		p.Egress = &isolation.Direction{}
	}
	return p
}

// serviceAddresses returns those of a tenant's pods here.
func (p *Policies) serviceAddresses(tenant string) (all []serviceAddress) {
	for _, iface := range slices.Sorted(maps.Keys(p.ports)) {
		port := p.ports[iface]
		if port.tenant != tenant {
			continue
		}
		for _, service := range port.services {
			s := serviceAddress{service: service}
			if i := slices.IndexFunc(port.addresses, func(a netip.Addr) bool { return a.Is4() == service.Is4() }); i >= 0 {
				s.pod = port.addresses[i]
			}
			all = append(all, s)
		}
	}
	return all
}

// update brings the packet filter in line with what the ports of a tenant may do now. Others
// change other tenants, and what this one may do, meanwhile.
func (p *Policies) update(name string) error {
	t := p.tenants[name]
	if t == nil {
		return nil
	}
	p.unlocked(t.changing.Lock)
	defer t.changing.Unlock()
	return p.apply(t)
}

// apply is update for a caller that holds t.changing. Changes of one port are one transaction, and those of
// several if they are small.
func (p *Policies) apply(t *tenant) error {
	type key struct {
		iface   string
		address netip.Addr
	}
	was := map[key]isolation.Port{}
	for _, port := range p.inForce[t.name] {
		was[key{port.Interface, port.Address}] = port
	}
	before, strays := t.refused, t.strays
	wanted := p.wanted(t)
	if len(t.strays) > 0 && !slices.Equal(strays, t.strays) {
		p.log.Warn("NICs that guests have asked for in the name of other nodes' pods have no connections: if the guest is that node, name it with the guest's key node",
			"tenant", t.name, "nics", t.strays)
	}
	if !slices.Equal(before, t.refused) {
		p.log.Warn("policies of namespaces are larger than the tenant's share: their isolated pods have no connections",
			"tenant", t.name, "namespaces", t.refused, "bytes", t.size, "share", policylimit.Share(len(p.tenants)))
	}
	now := maps.Clone(was)
	var changed, removed []isolation.Port
	var err error
	p.unlocked(func() {
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
		for len(changed) > 0 && err == nil {
			n, bytes := 0, 0
			for ; n < len(changed) && (n == 0 || bytes < policylimit.PodMessage); n++ {
				bytes += rulesMessage(changed[n])
			}
			if err = p.table.Set(changed[:n]...); err == nil {
				for _, port := range changed[:n] {
					now[key{port.Interface, port.Address}] = port
				}
				changed = changed[n:]
			}
		}
		if err == nil {
			err = p.table.Remove(removed...)
		}
	})
	for k := range was {
		if err == nil {
			delete(now, k)
		}
	}
	p.inForce[t.name] = slices.Collect(maps.Values(now))
	return err
}
