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
	"unnest.io/unnest/internal/hostd/turns"
	"unnest.io/unnest/internal/netdev/isolation"
)

// filtered is a port and the namespace of its pod.
type filtered struct {
	isolation.Port
	namespace string
	known     bool // a policy of the pod is
}

// view is a copy of what a tenant's filter is computed from. It is used without the lock, so nobody changes what it points to.
type view struct {
	tenant
	ports map[string]podPort               // the tenant's, by interface
	byTAP map[string]map[netip.Addr]string // spoken of Policies
	share int
}

func (p *Policies) view(t tenant) *view {
	v := &view{tenant: t, ports: map[string]podPort{}, byTAP: maps.Clone(p.spoken), share: policylimit.Share(len(p.tenants))}
	for iface, port := range p.ports {
		if port.tenant == t.name {
			v.ports[iface] = port
		}
	}
	return v
}

// wanted computes the view's ports, and notes in t what was refused, the size and the strays.
func (p *Policies) wanted(t *tenant) []isolation.Port {
	v := p.view(*t)
	all := v.wanted()
	t.refused, t.size, t.strays = v.refused, v.size, v.strays
	return all
}

// effective returns what a port may do now.
func (t *view) effective(iface string) filtered {
	port := t.ports[iface]
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
func (t *view) wanted() (all []isolation.Port) {
	var own []filtered
	for iface := range t.ports {
		own = append(own, t.effective(iface))
	}
	_, t.refused = admit(own, t.share)
	t.strays = t.straysNow()
	complete, services, pods := []filtered(nil), newServices(t.serviceAddresses()), map[string]filtered{}
	for _, f := range own {
		pods[f.Interface] = f
		f.Ingress = services.with(f.Ingress)
		if f.known {
			f.Ingress = withPeers(f.Ingress, t.ports[f.Interface].services)
		}
		complete = append(complete, f)
	}
	for tap, spoken := range t.byTAP {
		for a, iface := range spoken {
			f, ok := pods[iface]
			if !ok {
				continue
			}
			f.Interface, f.Address, f.Ingress = tap, a, nil
			if f.known {
				f.Egress = withPeers(f.Egress, t.ports[iface].addresses)
			}
			if f.Egress != nil { // answers only
				f.Ingress = &isolation.Direction{}
			}
			complete = append(complete, f)
		}
	}
	var refused []string
	t.size, refused = admit(complete, t.share) // with services they are larger
	t.refused = append(t.refused, refused...)
	for _, f := range complete {
		all = append(all, f.Port)
	}
	slices.SortFunc(all, func(a, b isolation.Port) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Address.Compare(b.Address))
	})
	return all
}

func (t *view) straysNow() (all []string) {
	for _, iface := range slices.Sorted(maps.Keys(t.ports)) {
		if port := t.ports[iface]; t.owners.stray(port) {
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

// set identifies peers that rules of a namespace share: family 0 for all ranges, 1 and 2 for the set of IPv4 and of IPv6.
type set struct {
	namespace string
	first     *iprange.Range
	family    int
}

// perFamily returns the number of ranges of IPv4 and of IPv6.
func perFamily(peers []iprange.Range) [2]int {
	four, six := iprange.Families(peers)
	return [2]int{len(four), len(six)}
}

// message returns an upper bound of what the rules of a port count in a transaction,
// with peers that are not counted yet.
func message(p isolation.Port, namespace string, counted map[set]bool) (bytes int) {
	for _, r := range (podRules{Ingress: p.Ingress, Egress: p.Egress}).rules() {
		if len(r.Peers) == 0 {
			continue
		}
		count := func(family, size int) {
			if s := (set{namespace, &r.Peers[0], family}); !counted[s] {
				counted[s] = true
				bytes += size
			}
		}
		count(0, policylimit.RangeMessage*len(r.Peers))
		for i, n := range perFamily(r.Peers) {
			if _, set := r.Parts(n); set {
				count(i+1, policylimit.SetMessage)
			}
		}
	}
	return bytes + rulesMessage(p)
}

// rulesMessage is message without the peers.
func rulesMessage(p isolation.Port) (bytes int) {
	for _, r := range (podRules{Ingress: p.Ingress, Egress: p.Egress}).rules() {
		for _, n := range perFamily(r.Peers) {
			rules, _ := r.Parts(n)
			bytes += policylimit.RuleMessage * rules
		}
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

// serviceAddresses returns those of the pods here.
func (t *view) serviceAddresses() (all []serviceAddress) {
	for _, iface := range slices.Sorted(maps.Keys(t.ports)) {
		port := t.ports[iface]
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
// change other tenants, and what this one may do, meanwhile. It yields the turn between its transactions. If only is not nil, it
// changes nothing else.
func (p *Policies) update(turn *turns.Turn, name string, only map[portKey]bool) error {
	t := p.tenants[name]
	if t == nil {
		return nil
	}
	table, v, inForce := p.table, p.view(*t), p.inForce[name]
	release := func() error { return nil }
	p.unlocked(func() {
		if changed, _ := difference(inForce, v.wanted(), only); len(changed) > 0 {
			release, _ = table.Prepare(turn.Yield, changed...) // what it cannot prepare, a step tries again
		}
	})
	defer p.unlocked(func() { p.release(release) })
	step := func() (bool, error) {
		p.unlocked(t.changing.Lock)
		defer t.changing.Unlock()
		if p.tenants[name] != t { // a configuration has replaced it, with its filter
			return false, nil
		}
		return p.step(t, only)
	}
	for {
		if more, err := step(); !more || err != nil {
			return err
		}
		p.unlocked(turn.Yield)
	}
}

// release calls the function of that name of Filter.Prepare.
func (p *Policies) release(release func() error) {
	if err := release(); err != nil {
		p.log.Error("delete sets of the packet filter that no port uses", "error", err)
	}
}

// apply is update for a caller that holds t.changing, without a turn.
func (p *Policies) apply(t *tenant) (err error) {
	for more := true; more && err == nil; {
		more, err = p.step(t, nil)
	}
	return err
}

// portKey identifies a port in a filter.
type portKey struct {
	iface   string
	address netip.Addr
}

func byKey(ports []isolation.Port) map[portKey]isolation.Port {
	all := map[portKey]isolation.Port{}
	for _, port := range ports {
		all[portKey{port.Interface, port.Address}] = port
	}
	return all
}

// difference returns which ports, among only unless it is nil, differ from those in force, and which are no longer there.
func difference(inForce, wanted []isolation.Port, only map[portKey]bool) (changed, removed []isolation.Port) {
	was := byKey(inForce)
	for _, port := range wanted {
		k := portKey{port.Interface, port.Address}
		if old, ok := was[k]; (only == nil || only[k]) && (!ok || !reflect.DeepEqual(old, port)) {
			changed = append(changed, port)
		}
		delete(was, k)
	}
	maps.DeleteFunc(was, func(k portKey, _ isolation.Port) bool { return only != nil && !only[k] })
	return changed, slices.Collect(maps.Values(was))
}

// step makes the next change of the packet filter for a tenant, and reports whether there is another one to make. Changes of one port
// are one transaction, and those of several if they are small; before it come those that prepare its peers, unless that is done. The caller holds t.changing.
func (p *Policies) step(t *tenant, only map[portKey]bool) (more bool, err error) {
	v, inForce := p.view(*t), p.inForce[t.name]
	p.unlocked(func() {
		changed, removed := difference(inForce, v.wanted(), only)
		now := byKey(inForce)
		if len(changed) > 0 {
			n, bytes := 0, 0
			for ; n < len(changed) && (n == 0 || bytes < policylimit.PodMessage); n++ {
				bytes += rulesMessage(changed[n])
			}
			more = n < len(changed) || len(removed) > 0
			if err = p.set(changed[:n]); err == nil {
				maps.Copy(now, byKey(changed[:n]))
			}
		} else if len(removed) > 0 {
			if err = p.table.Remove(removed...); err == nil {
				for k := range byKey(removed) {
					delete(now, k)
				}
			}
		}
		inForce = slices.Collect(maps.Values(now))
	})
	if len(v.strays) > 0 && !slices.Equal(t.strays, v.strays) {
		p.log.Warn("NICs that guests have asked for in the name of other nodes' pods have no connections: if the guest is that node, name it with the guest's key node",
			"tenant", t.name, "nics", v.strays)
	}
	if !slices.Equal(t.refused, v.refused) {
		p.log.Warn("policies of namespaces are larger than the tenant's share: their isolated pods have no connections",
			"tenant", t.name, "namespaces", v.refused, "bytes", v.size, "share", v.share)
	}
	t.refused, t.size, t.strays = v.refused, v.size, v.strays
	p.inForce[t.name] = inForce
	return more, err
}

// set sets ports in the packet filter.
func (p *Policies) set(ports []isolation.Port) error {
	release, err := p.table.Prepare(func() {}, ports...)
	if err == nil {
		err = p.table.Set(ports...)
	}
	p.release(release)
	return err
}
