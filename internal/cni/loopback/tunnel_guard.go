package loopback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// tablePrefix begins the name of each packet filter.
const tablePrefix = "unnest-segment-"

func table(id string) *nftables.Table {
	return &nftables.Table{Name: tablePrefix + id, Family: nftables.TableFamilyINet}
}

// Offsets in a packet of the tunnel, from its UDP header on.
const (
	offPort   = 2
	offVNI    = 8 + 4
	offSource = 8 + 8 + 6 // the source of the Ethernet frame
)

// guard adds the packet filter of the segment. Call it before the device is made. The filter accepts only packets from a peer's
// address with the MAC of the peer's fraction, on the link by which the node reaches that peer. So a pod of this node cannot send
// with a peer's address. The filter drops what the node forwards to the segment: a bridge with masquerading would give it the
// node's address. One rule loads the conntrack state, so the kernel reassembles fragments before the filter sees them.
func guard(id string, t Tunnel) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	filter := table(id)
	conn.AddTable(filter)
	conn.DelTable(filter) // of an ADD that was killed
	conn.AddTable(filter)
	chain := conn.AddChain(&nftables.Chain{
		Name: "input", Table: filter, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
	})
	forward := conn.AddChain(&nftables.Chain{
		Name: "forward", Table: filter, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	for _, c := range []*nftables.Chain{chain, forward} {
		conn.AddRule(&nftables.Rule{Table: filter, Chain: c, Exprs: []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: 1}}})
	}
	ours := append(tunnelPackets(), field(expr.PayloadBaseTransportHeader, offVNI, binary.BigEndian.AppendUint32(nil, t.VNI)[1:])...)
	drop := []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
	if t.encrypted() {
		leave := conn.AddChain(&nftables.Chain{ // after marks that change the route
			Name: "leave", Table: filter, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityFilter,
		})
		conn.AddRule(&nftables.Rule{Table: filter, Chain: leave, Exprs: slices.Concat(ours, onWireGuard(expr.MetaKeyOIFNAME, expr.CmpOpNeq), drop)})
		conn.AddRule(&nftables.Rule{Table: filter, Chain: chain, Exprs: slices.Concat(ours, onWireGuard(expr.MetaKeyIIFNAME, expr.CmpOpNeq), drop)})
	}
	conn.AddRule(&nftables.Rule{Table: filter, Chain: forward, Exprs: slices.Concat(ours, drop)})
	conn.AddRule(&nftables.Rule{Table: filter, Chain: chain, Exprs: slices.Concat(ours, []expr.Any{
		&expr.Fib{Register: 1, ResultOIF: true, FlagSADDR: true, FlagIIF: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)}, // no route to the source by this link
	}, drop)})
	family, source := byte(unix.NFPROTO_IPV4), uint32(12)
	if t.local().Is6() {
		family, source = unix.NFPROTO_IPV6, 8
	}
	for f, node := range t.peers {
		mac := segment.MAC(f)
		peer := append([]expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		}, ours...)
		peer = append(peer, field(expr.PayloadBaseNetworkHeader, source, node.AsSlice())...)
		peer = append(peer, field(expr.PayloadBaseTransportHeader, offSource, mac[:])...)
		conn.AddRule(&nftables.Rule{Table: filter, Chain: chain, Exprs: append(peer, &expr.Verdict{Kind: expr.VerdictReturn})})
	}
	conn.AddRule(&nftables.Rule{Table: filter, Chain: chain, Exprs: slices.Concat(ours, drop)})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("add packet filter %s: %w", filter.Name, err)
	}
	return nil
}

// tunnelPackets matches those of tunnels.
func tunnelPackets() []expr.Any {
	return append([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
	}, field(expr.PayloadBaseTransportHeader, offPort, binary.BigEndian.AppendUint16(nil, TunnelPort))...)
}

// field matches bytes of a packet.
func field(base expr.PayloadBase, offset uint32, want []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: uint32(len(want))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: want},
	}
}

// ReleaseTunnel removes the packet filter with this id, if there is one. Call it when the device is gone, because the device
// accepts packets of anybody without it.
func ReleaseTunnel(id string) error {
	return CollectTunnels(func(other string) bool { return other == id })
}

// ProbeTunnel returns an error unless the kernel has packet filters for tunnels.
func ProbeTunnel() error {
	conn, err := nftables.New()
	if err == nil {
		_, err = conn.ListTablesOfFamily(nftables.TableFamilyINet)
	}
	if err != nil {
		return fmt.Errorf("segments with span network need nftables in the node's kernel: %w", err)
	}
	return nil
}

// CollectTunnels removes the packet filters whose ids are to go. A kernel without nftables has none.
func CollectTunnels(gone func(id string) bool) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list packet filters: %w", err)
	}
	for _, t := range tables {
		if id, ok := strings.CutPrefix(t.Name, tablePrefix); ok && gone(id) {
			conn.AddTable(table(id)) // another process may have removed it
			conn.DelTable(table(id))
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("remove packet filters: %w", err)
	}
	return nil
}
