package loopback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest/internal/hostapi/segment"
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

// guard accepts of the segment only what the peers send, each with the MAC of its fraction. It is there before the
// device.
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
	ours := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
	}
	ours = append(ours, field(expr.PayloadBaseTransportHeader, offPort, binary.BigEndian.AppendUint16(nil, TunnelPort))...)
	ours = append(ours, field(expr.PayloadBaseTransportHeader, offVNI, binary.BigEndian.AppendUint32(nil, t.VNI)[1:])...)
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
	conn.AddRule(&nftables.Rule{Table: filter, Chain: chain, Exprs: append(ours, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("add packet filter %s: %w", filter.Name, err)
	}
	return nil
}

// field matches bytes of a packet.
func field(base expr.PayloadBase, offset uint32, want []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: uint32(len(want))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: want},
	}
}

// ReleaseTunnel removes what MakeTunnel has left in the node: the packet filter with this id, if there is one. The
// device ends with the pod, or by RemoveTunnel.
func ReleaseTunnel(id string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	conn.AddTable(table(id)) // else there may be nothing to delete
	conn.DelTable(table(id))
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("remove packet filter %s: %w", table(id).Name, err)
	}
	return nil
}

// CollectTunnels removes the packet filters of all ids with the prefix but those to keep.
func CollectTunnels(prefix string, keep map[string]bool) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return fmt.Errorf("list packet filters: %w", err)
	}
	for _, t := range tables {
		if id, ok := strings.CutPrefix(t.Name, tablePrefix); ok && strings.HasPrefix(id, prefix) && !keep[id] {
			err = errors.Join(err, ReleaseTunnel(id))
		}
	}
	return err
}
