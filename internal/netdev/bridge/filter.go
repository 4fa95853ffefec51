package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest/internal/netdev/nft"
)

// Filter is the packet filter of networks: one nftables table in one network
// namespace. It is safe for concurrent use.
type Filter struct {
	ns    netns.NsHandle
	table *nftables.Table
	owner *nft.Owner

	// The sets of the rules.
	bridges, pairs                   *nftables.Set
	gateways4, gateways6, own4, own6 *nftables.Set

	mu       sync.Mutex
	networks []Network // of the latest Ensure
}

// The names of tables. A network namespace has one filter of each.
const (
	Tenants = "unnest-tenants" // of the host daemon
	Lab     = "unnest-lab"     // of a test lab
)

// Open returns a filter in the calling thread's network namespace. Nothing is filtered
// before Ensure.
func Open(name string) (*Filter, error) {
	ns, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: name}
	bridge := nftables.TypeIFName
	return &Filter{
		ns: ns, table: t, owner: nft.NewOwner(7, t),
		bridges:   nft.NewSet(1, t, "bridges", bridge),
		pairs:     nft.NewSet(2, t, "pairs", bridge, bridge), // each bridge with itself and its tenant's others
		gateways4: nft.NewSet(3, t, "gateways4", nftables.TypeIPAddr),
		gateways6: nft.NewSet(4, t, "gateways6", nftables.TypeIP6Addr),
		own4:      nft.NewSet(5, t, "own4", bridge, nftables.TypeIPAddr), // each bridge with its tenant's gateways
		own6:      nft.NewSet(6, t, "own6", bridge, nftables.TypeIP6Addr),
	}, nil
}

// Close closes the Filter. The rules stay.
func (f *Filter) Close() error { return f.ns.Close() }

// Watch restores the rules within a second when others have changed them, until ctx
// ends. It calls restored after each time.
func (f *Filter) Watch(ctx context.Context, restored func(by nft.Generation, err error)) error {
	return f.owner.Watch(ctx, f.ns, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.apply(f.networks)
	}, restored)
}

// elements returns the networks' elements in the sets.
func (f *Filter) elements(networks []Network) map[*nftables.Set][]nftables.SetElement {
	all := map[*nftables.Set][]nftables.SetElement{
		f.bridges: nil, f.pairs: nil, f.gateways4: nil, f.gateways6: nil, f.own4: nil, f.own6: nil,
	}
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
	return all
}

var (
	ipv4, ipv6   = nft.Protocol(unix.NFPROTO_IPV4), nft.Protocol(unix.NFPROTO_IPV6)
	destination4 = nft.Network(16, 4)
	destination6 = nft.Network(24, 16)
)

// apply replaces the table, whatever was there before, in one transaction. Rules that
// someone has saved and restored can differ from ours in ways that the kernel does not
// let us correct.
func (f *Filter) apply(networks []Network) error {
	var c *nftables.Conn
	err := nft.WithNS(f.ns, func(fd int) (err error) {
		c, err = nftables.New(nftables.WithNetNSFd(fd))
		return err
	})
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	errs := []error{f.owner.Replace(c)}
	for set, all := range f.elements(networks) {
		errs = append(errs, c.AddSet(set, nil))
		errs = append(errs, nft.Change(c.SetAddElements, set, all))
	}
	fromBridge := nft.In(f.bridges, nft.InInterface)
	f.addChain(c, "forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter,
		nft.Rule(fromBridge, nft.In(f.bridges, nft.OutInterface), nft.NotIn(f.pairs, nft.InInterface, nft.OutInterface), nft.Drop()))
	f.addChain(c, "input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter,
		nft.Rule(fromBridge, ipv4, nft.In(f.gateways4, destination4), nft.NotIn(f.own4, nft.InInterface, destination4), nft.Drop()),
		nft.Rule(fromBridge, ipv6, nft.In(f.gateways6, destination6), nft.NotIn(f.own6, nft.InInterface, destination6), nft.Drop()))
	f.addChain(c, "postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource,
		f.masquerade(networks)...)
	if err := errors.Join(append(errs, c.Flush())...); err != nil {
		return fmt.Errorf("set packet filter %s: %w", f.table.Name, err)
	}
	return nil
}

func (f *Filter) addChain(c *nftables.Conn, name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority, rules ...[]expr.Any) {
	chain := c.AddChain(&nftables.Chain{Table: f.table, Name: name, Type: kind, Hooknum: hook, Priority: priority})
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
	family, source := ipv4, nft.Network(12, 4)
	if subnet.Addr().Is6() {
		family, source = ipv6, nft.Network(8, 16)
	}
	mask := net.CIDRMask(subnet.Bits(), subnet.Addr().BitLen())
	return nft.Rule(family, nft.Masked(source, mask, subnet.Addr().AsSlice()))
}
