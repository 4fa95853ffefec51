package bridge

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
)

func (f *Filter) elements(networks []Network) map[*nftables.Set][]nftables.SetElement {
	all := map[*nftables.Set][]nftables.SetElement{}
	add := func(s *nftables.Set, key ...[]byte) {
		all[s] = append(all[s], nftables.SetElement{Key: slices.Concat(key...)})
	}
	for _, n := range networks {
		of := append([]string{n.Bridge}, n.Further...)
		for _, in := range of {
			add(f.bridges, nft.Name(in))
			for _, out := range of {
				add(f.pairs, nft.Name(in), nft.Name(out))
			}
		}
		for _, g := range n.Gateways {
			gateways, own := f.gateways4, f.own4
			if g.Addr().Is6() {
				gateways, own = f.gateways6, f.own6
			}
			add(gateways, g.Addr().AsSlice())
			for _, in := range of {
				add(own, nft.Name(in), g.Addr().AsSlice())
			}
		}
	}
	f.guard.elements(networks, func(s *nftables.Set, e nftables.SetElement) { all[s] = append(all[s], e) })
	return all
}

// sets lists the sets of the rules that all tenants share.
func (f *Filter) sets() []*nftables.Set {
	g := f.guard
	return []*nftables.Set{
		f.bridges, f.pairs, f.gateways4, f.gateways6, f.own4, f.own6,
		g.guarded, g.services, g.ported, g.icmp6, g.metadata4, g.metadata6, g.hosts, g.forwards,
		g.alive4, g.alive6, g.asked4, g.asked6, g.askers, g.fragment4, g.fragment6, g.sources4, g.sources6,
	}
}

var (
	ipv4, ipv6      = nft.Protocol(unix.NFPROTO_IPV4), nft.Protocol(unix.NFPROTO_IPV6)
	version         = nft.Network(0, 1) // of IP, with the first bits behind it
	source4         = nft.Network(12, 4)
	source6         = nft.Network(8, 16)
	destination4    = nft.Network(16, 4)
	destination6    = nft.Network(24, 16)
	linkLocal4      = nft.Network(16, 2) // the destination's network
	sourcePort      = nft.Transport(0, 2)
	destinationPort = nft.Transport(2, 2)
	icmpType        = nft.Transport(0, 1)
)

func (f *Filter) addChains(c *nftables.Conn, networks []Network) error {
	for name, rules := range f.guard.rules() {
		f.addRules(c, name, rules)
	}
	var errs []error
	for i, n := range networks {
		if n.Guard != nil {
			errs = append(errs, f.addGuard(c, i, n))
		}
	}
	fromBridge, fromGuarded := nft.In(f.bridges, nft.InInterface), nft.In(f.guard.guarded, nft.InInterface)
	f.addRules(c, "from-tenant", [][]expr.Any{
		nft.Rule(ipv4, nft.In(f.gateways4, destination4), nft.NotIn(f.own4, nft.InInterface, destination4), drop("tenant")),
		nft.Rule(ipv6, nft.In(f.gateways6, destination6), nft.NotIn(f.own6, nft.InInterface, destination6), drop("tenant")),
		nft.Rule(nft.Known(), nft.Accept()),
		nft.Verdict(f.guard.hosts, nft.InInterface),
	})
	f.addFragments(c)
	f.addChain(c, "input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter,
		nft.Rule(fromBridge, nft.Goto("from-tenant")))
	f.addChain(c, "forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter,
		nft.Rule(fromBridge, nft.In(f.bridges, nft.OutInterface), nft.NotIn(f.pairs, nft.InInterface, nft.OutInterface), drop("tenant")),
		nft.Rule(fromGuarded, nft.Reply(), nft.NoStatus(nft.Assured), nft.Jump("learn")),
		nft.Rule(nft.Known(), nft.Accept()),
		nft.Rule(nft.In(f.guard.guarded, nft.OutInterface), nft.Jump("resolve")),
		nft.Verdict(f.guard.forwards, nft.InInterface))
	f.addChain(c, "postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource,
		f.masquerade(networks)...)
	return errors.Join(errs...)
}

func (f *Filter) addChain(c *nftables.Conn, name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority, rules ...[]expr.Any) {
	f.fill(c, &nftables.Chain{Table: f.table, Name: name, Type: kind, Hooknum: hook, Priority: priority}, rules)
}

// addRules adds a chain without a hook.
func (f *Filter) addRules(c *nftables.Conn, name string, rules [][]expr.Any) {
	f.fill(c, &nftables.Chain{Table: f.table, Name: name}, rules)
}

func (f *Filter) fill(c *nftables.Conn, chain *nftables.Chain, rules [][]expr.Any) {
	c.AddChain(chain)
	c.FlushChain(chain) // it may be there
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: f.table, Chain: chain, Exprs: r})
	}
}

// masquerade returns the NAT rules: packets that leave a subnet for the outside get
// the host's address.
func (f *Filter) masquerade(networks []Network) [][]expr.Any {
	var rules [][]expr.Any
	for _, n := range networks {
		if !n.NAT {
			continue
		}
		for _, g := range n.Gateways {
			rules = append(rules, nft.Rule(from(g.Masked()), nft.NotIn(f.bridges, nft.OutInterface), []expr.Any{&expr.Masq{}}))
		}
	}
	return rules
}

// from holds for packets with a source in the subnet.
func from(subnet netip.Prefix) []expr.Any {
	family, source := ipv4, source4
	if subnet.Addr().Is6() {
		family, source = ipv6, source6
	}
	mask := net.CIDRMask(subnet.Bits(), subnet.Addr().BitLen())
	return nft.Rule(family, nft.Masked(source, mask, subnet.Addr().AsSlice()))
}
