package servicepath

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// sources are the maps of each family from a path's end and the guest's NIC to the source.
// They are as nft would make them, as hairpins is.
func sources(t *nftables.Table) []*nftables.Set {
	m := func(name string, kind nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{
			Table: t, Name: name, KeyByteOrder: binaryutil.NativeEndian, IsMap: true,
			KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIFName), DataType: kind,
		}
	}
	return []*nftables.Set{m("sources4", nftables.TypeIPAddr), m("sources6", nftables.TypeIP6Addr)}
}

func (s source) set(t *nftables.Table) *nftables.Set {
	if s.addr.Is4() {
		return sources(t)[0]
	}
	return sources(t)[1]
}

func (s source) element() []nftables.SetElement {
	return []nftables.SetElement{{Key: append(interfaceName(s.path), interfaceName(s.nic)...), Val: s.addr.AsSlice()}}
}

// filterSource makes or repairs the chains of sources, and adds one.
func filterSource(s source) error {
	return writeWithSets(sources(table()), func(c *nftables.Conn, t *nftables.Table) error {
		addChains(c, sourceChains(t))
		return c.SetAddElements(s.set(t), s.element())
	})
}

func unfilterSource(s source) error {
	return ignoreMissing(write(func(c *nftables.Conn) error {
		return c.SetDeleteElements(s.set(table()), []nftables.SetElement{{Key: s.element()[0].Key}})
	}))
}

// listSources returns the sources in the guest's table.
func listSources() (all []source, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open packet filter: %w", err)
	}
	for _, m := range sources(table()) {
		set, err := c.GetSetByName(table(), m.Name)
		if err != nil {
			if ignoreUnlisted(err) == nil {
				continue
			}
			return nil, fmt.Errorf("find map %s of table %s: %w", m.Name, tableName, err)
		}
		have, err := c.GetSetElements(set)
		if err != nil {
			return nil, fmt.Errorf("read map %s of table %s: %w", m.Name, tableName, err)
		}
		for _, e := range have {
			if len(e.Key) != 2*unix.IFNAMSIZ {
				continue
			}
			path, _, _ := bytes.Cut(e.Key[:unix.IFNAMSIZ], []byte{0})
			nic, _, _ := bytes.Cut(e.Key[unix.IFNAMSIZ:], []byte{0})
			addr, _ := netip.AddrFromSlice(e.Val[:min(len(e.Val), int(m.DataType.Bytes))])
			all = append(all, source{string(path), string(nic), addr})
		}
	}
	return all, nil
}

// sourceChains mark the connections of paths to services, which the table outside routes,
// and give them their sources, before the chains of paths without.
func sourceChains(t *nftables.Table) []chain {
	mangle := &nftables.Chain{
		Name: "services", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest + 5),
	}
	nat := &nftables.Chain{
		Name: "sources", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityRef(*beforeSourceNAT - 1),
	}
	fromService := append(compare(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, expr.CmpOpEq, []byte(guestPrefix)),
		connectionHas(expr.CtKeySTATUS, translated, true)...)
	chains := []chain{
		{mangle, [][]expr.Any{
			slices.Concat(fromService, compare(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, expr.CmpOpEq, []byte{0}), []expr.Any{
				&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
				setMark,
				&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
			}),
		}},
		{nat, nil},
	}
	for i, family := range []byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		m := sources(t)[i]
		chains[1].rules = append(chains[1].rules, slices.Concat(
			compare(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, expr.CmpOpEq, []byte{family}), fromService, []expr.Any{
				&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG32_00},
				&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: unix.NFT_REG32_04},
				&expr.Lookup{SourceRegister: unix.NFT_REG32_00, DestRegister: 1, IsDestRegSet: true, SetName: m.Name},
				&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(family), RegAddrMin: 1},
			}))
	}
	return chains
}
