package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

var table = &nftables.Table{Family: nftables.TableFamilyINet, Name: "unnest-tenants"}

// The sets that the rules look into.
var (
	bridges   = newSet(1, "bridges", nftables.TypeIFName)
	pairs     = newSet(2, "pairs", nftables.TypeIFName, nftables.TypeIFName) // a bridge with itself
	gateways4 = newSet(3, "gateways4", nftables.TypeIPAddr)
	gateways6 = newSet(4, "gateways6", nftables.TypeIP6Addr)
	own4      = newSet(5, "own4", nftables.TypeIFName, nftables.TypeIPAddr) // a bridge with its gateway
	own6      = newSet(6, "own6", nftables.TypeIFName, nftables.TypeIP6Addr)
)

func newSet(id uint32, name string, key ...nftables.SetDatatype) *nftables.Set {
	return &nftables.Set{
		ID: id, Table: table, Name: name,
		KeyType: nftables.MustConcatSetType(key...), Concatenation: len(key) > 1,
		KeyByteOrder: binaryutil.NativeEndian, // nft prints names by it
	}
}

// elements are what the networks have in the sets.
func elements(networks []Network) map[*nftables.Set][]nftables.SetElement {
	all := map[*nftables.Set][]nftables.SetElement{bridges: nil, pairs: nil, gateways4: nil, gateways6: nil, own4: nil, own6: nil}
	add := func(s *nftables.Set, key ...[]byte) {
		all[s] = append(all[s], nftables.SetElement{Key: slices.Concat(key...)})
	}
	for _, n := range networks {
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, n.Bridge)
		add(bridges, name)
		add(pairs, name, name)
		for _, g := range n.Gateways {
			gateways, own := gateways4, own4
			if g.Addr().Is6() {
				gateways, own = gateways6, own6
			}
			add(gateways, g.Addr().AsSlice())
			add(own, name, g.Addr().AsSlice())
		}
	}
	return all
}

// batch is how many elements one message has: its length has 16 bits.
const batch = 500

// filter makes table, sets and rules what they should be for these networks,
// whatever they are, in one transaction.
func filter(networks []Network) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	c.AddTable(table)
	var errs []error
	for set, all := range elements(networks) {
		errs = append(errs, c.AddSet(set, nil))
		c.FlushSet(set)
		for chunk := range slices.Chunk(all, batch) {
			errs = append(errs, c.SetAddElements(set, chunk))
		}
	}
	addChain(c, "forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter,
		rule(in(bridges, inInterface), in(bridges, outInterface), notIn(pairs, inInterface, outInterface), drop))
	addChain(c, "input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter,
		rule(in(bridges, inInterface), ipv4, in(gateways4, destination4), notIn(own4, inInterface, destination4), drop),
		rule(in(bridges, inInterface), ipv6, in(gateways6, destination6), notIn(own6, inInterface, destination6), drop))
	addChain(c, "postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource,
		masquerade(networks)...)
	if err := errors.Join(append(errs, c.Flush())...); err != nil {
		return fmt.Errorf("make packet filter %s: %w", table.Name, err)
	}
	return nil
}

func addChain(c *nftables.Conn, name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority, rules ...[]expr.Any) {
	chain := c.AddChain(&nftables.Chain{Table: table, Name: name, Type: kind, Hooknum: hook, Priority: priority})
	c.FlushChain(chain)
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r})
	}
}

// masquerade hides what leaves a subnet for the outside behind the host's address.
func masquerade(networks []Network) [][]expr.Any {
	var rules [][]expr.Any
	for _, n := range networks {
		if !n.NAT {
			continue
		}
		for _, g := range n.Gateways {
			rules = append(rules, rule(from(g.Masked()), notIn(bridges, outInterface), []expr.Any{&expr.Masq{}}))
		}
	}
	return rules
}

func rule(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

// operand loads one part of a key into a register.
type operand func(register uint32) expr.Any

func inInterface(register uint32) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register}
}

func outInterface(register uint32) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register}
}

func destination4(register uint32) expr.Any { return field(register, 16, 4) }
func destination6(register uint32) expr.Any { return field(register, 24, 16) }

func field(register, offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}
}

func in(s *nftables.Set, key ...operand) []expr.Any    { return lookup(s, false, key) }
func notIn(s *nftables.Set, key ...operand) []expr.Any { return lookup(s, true, key) }

// lookup takes at most two operands; the first of two fills its register, as
// names of interfaces do.
func lookup(s *nftables.Set, invert bool, key []operand) []expr.Any {
	var parts []expr.Any
	for i, load := range key {
		parts = append(parts, load(unix.NFT_REG_1+uint32(i)))
	}
	return append(parts, &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID, Invert: invert})
}

// from matches packets with a source in the subnet.
func from(subnet netip.Prefix) []expr.Any {
	family, offset, length := ipv4, uint32(12), uint32(4)
	if subnet.Addr().Is6() {
		family, offset, length = ipv6, 8, 16
	}
	mask := make([]byte, length)
	for i := range subnet.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return rule(family, []expr.Any{
		field(unix.NFT_REG_1, offset, length),
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: length, Mask: mask, Xor: make([]byte, length)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: subnet.Addr().AsSlice()},
	})
}

func protocol(family byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: []byte{family}},
	}
}

var (
	ipv4 = protocol(unix.NFPROTO_IPV4)
	ipv6 = protocol(unix.NFPROTO_IPV6)
	drop = []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
)
