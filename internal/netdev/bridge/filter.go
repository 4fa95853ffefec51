package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest/internal/netdev/nft"
)

var table = &nftables.Table{Family: nftables.TableFamilyINet, Name: "unnest-tenants"}

// The sets of the rules.
var (
	bridges   = nft.NewSet(1, table, "bridges", nftables.TypeIFName)
	pairs     = nft.NewSet(2, table, "pairs", nftables.TypeIFName, nftables.TypeIFName) // each bridge with itself and its tenant's others
	gateways4 = nft.NewSet(3, table, "gateways4", nftables.TypeIPAddr)
	gateways6 = nft.NewSet(4, table, "gateways6", nftables.TypeIP6Addr)
	own4      = nft.NewSet(5, table, "own4", nftables.TypeIFName, nftables.TypeIPAddr) // each bridge with its tenant's gateways
	own6      = nft.NewSet(6, table, "own6", nftables.TypeIFName, nftables.TypeIP6Addr)
)

// elements returns the networks' elements in the sets.
func elements(networks []Network) map[*nftables.Set][]nftables.SetElement {
	all := map[*nftables.Set][]nftables.SetElement{bridges: nil, pairs: nil, gateways4: nil, gateways6: nil, own4: nil, own6: nil}
	add := func(s *nftables.Set, key ...[]byte) {
		all[s] = append(all[s], nftables.SetElement{Key: slices.Concat(key...)})
	}
	for _, n := range networks {
		of := append([]string{n.Bridge}, n.Further...)
		for _, in := range of {
			add(bridges, nft.Name(in))
			for _, out := range of {
				add(pairs, nft.Name(in), nft.Name(out))
			}
		}
		for _, g := range n.Gateways {
			gateways, own := gateways4, own4
			if g.Addr().Is6() {
				gateways, own = gateways6, own6
			}
			add(gateways, g.Addr().AsSlice())
			for _, in := range of {
				add(own, nft.Name(in), g.Addr().AsSlice())
			}
		}
	}
	return all
}

var (
	ipv4, ipv6   = nft.Protocol(unix.NFPROTO_IPV4), nft.Protocol(unix.NFPROTO_IPV6)
	destination4 = nft.Network(16, 4)
	destination6 = nft.Network(24, 16)
	fromBridge   = nft.In(bridges, nft.InInterface)
)

// filter replaces the table, whatever was there before, in one transaction. Rules that
// someone has saved and restored can differ from ours in ways that the kernel does not
// let us correct.
func filter(networks []Network) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	c.AddTable(table) // else there may be nothing to delete
	c.DelTable(table)
	c.AddTable(table)
	var errs []error
	for set, all := range elements(networks) {
		errs = append(errs, c.AddSet(set, nil))
		errs = append(errs, nft.Change(c.SetAddElements, set, all))
	}
	addChain(c, "forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter,
		nft.Rule(fromBridge, nft.In(bridges, nft.OutInterface), nft.NotIn(pairs, nft.InInterface, nft.OutInterface), nft.Drop()))
	addChain(c, "input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter,
		nft.Rule(fromBridge, ipv4, nft.In(gateways4, destination4), nft.NotIn(own4, nft.InInterface, destination4), nft.Drop()),
		nft.Rule(fromBridge, ipv6, nft.In(gateways6, destination6), nft.NotIn(own6, nft.InInterface, destination6), nft.Drop()))
	addChain(c, "postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource,
		masquerade(networks)...)
	if err := errors.Join(append(errs, c.Flush())...); err != nil {
		return fmt.Errorf("set packet filter %s: %w", table.Name, err)
	}
	return nil
}

func addChain(c *nftables.Conn, name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority, rules ...[]expr.Any) {
	chain := c.AddChain(&nftables.Chain{Table: table, Name: name, Type: kind, Hooknum: hook, Priority: priority})
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r})
	}
}

// masquerade returns the NAT rules: packets that leave a subnet for the outside get
// the host's address.
func masquerade(networks []Network) [][]expr.Any {
	var rules [][]expr.Any
	for _, n := range networks {
		if !n.NAT {
			continue
		}
		for _, g := range n.Gateways {
			rules = append(rules, nft.Rule(from(g.Masked()), nft.NotIn(bridges, nft.OutInterface), []expr.Any{&expr.Masq{}}))
		}
	}
	return rules
}

// from holds for packets with a source in the subnet.
func from(subnet netip.Prefix) []expr.Any {
	family, source := ipv4, nft.Network(12, 4)
	if subnet.Addr().Is6() {
		family, source = ipv6, nft.Network(8, 16)
	}
	mask := net.CIDRMask(subnet.Bits(), subnet.Addr().BitLen())
	return nft.Rule(family, nft.Masked(source, mask, subnet.Addr().AsSlice()))
}
