package nft

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// event is what the kernel says about one object of a transaction. The last event of a
// transaction has the kind NFT_MSG_NEWGEN.
type event struct {
	kind       int // unix.NFT_MSG_*
	family     byte
	table, set string
	key        []byte // of the last element
	generation Generation
}

// Generation is a state of the packet filters of a network namespace. Each
// transaction makes the next one.
type Generation struct {
	ID      uint32
	Process string // that has made it
	PID     int
}

// parseEvent returns an event with the zero kind for a message of another kind.
func parseEvent(m netlink.Message) (event, error) {
	const header = 4 // struct nfgenmsg
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < header {
		return event{}, nil
	}
	e := event{kind: int(m.Header.Type & 0xff), family: m.Data[0]}
	attributes, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return event{}, err
	}
	attributes.ByteOrder = binary.BigEndian
	for attributes.Next() {
		if e.kind == unix.NFT_MSG_NEWGEN {
			e.generation.parse(attributes)
		} else {
			e.parse(attributes)
		}
	}
	return e, attributes.Err()
}

func (g *Generation) parse(a *netlink.AttributeDecoder) {
	switch a.Type() {
	case unix.NFTA_GEN_ID:
		g.ID = a.Uint32()
	case unix.NFTA_GEN_PROC_PID:
		g.PID = int(a.Uint32())
	case unix.NFTA_GEN_PROC_NAME:
		g.Process = a.String()
	}
}

// parse reads the table, which has the same type in messages of all kinds, and what
// names an element.
func (e *event) parse(a *netlink.AttributeDecoder) {
	elements := e.kind == unix.NFT_MSG_NEWSETELEM || e.kind == unix.NFT_MSG_DELSETELEM
	switch {
	case a.Type() == unix.NFTA_TABLE_NAME:
		e.table = a.String()
	case elements && a.Type() == unix.NFTA_SET_ELEM_LIST_SET:
		e.set = a.String()
	case elements && a.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS:
		nested(a, unix.NFTA_LIST_ELEM, func(a *netlink.AttributeDecoder) {
			nested(a, unix.NFTA_SET_ELEM_KEY, func(a *netlink.AttributeDecoder) {
				nested(a, unix.NFTA_DATA_VALUE, func(a *netlink.AttributeDecoder) { e.key = a.Bytes() })
			})
		})
	}
}

// nested calls f for the attributes of a type in an attribute.
func nested(a *netlink.AttributeDecoder, kind uint16, f func(*netlink.AttributeDecoder)) {
	a.Nested(func(in *netlink.AttributeDecoder) error {
		for in.Next() {
			if in.Type() == kind {
				f(in)
			}
		}
		return in.Err()
	})
}
