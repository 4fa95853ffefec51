// Package nft builds the sets and rules of the host's packet filters from parts of
// frames and names of interfaces.
//
// What is filtered belongs to the packages antispoof, isolation and bridge.
package nft

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// NewSet returns a set of keys of the given types, with an ID that no other set of
// the transaction has. It is as nft would make it: else nft -f could not restore it over
// the one that is there.
func NewSet(id uint32, t *nftables.Table, name string, key ...nftables.SetDatatype) *nftables.Set {
	s := &nftables.Set{
		ID: id, Table: t, Name: name,
		KeyType:      nftables.MustConcatSetType(key...), // without the flag of a concatenation, which nft sets for intervals only
		KeyByteOrder: binaryutil.BigEndian,
	}
	if len(key) == 1 {
		s.KeyType = key[0] // not filled up to a register
	}
	if key[0].Name == nftables.TypeIFName.Name { // nft prints names by it, and restores what it prints
		s.KeyByteOrder = binaryutil.NativeEndian
	}
	return s
}

// NewMap returns a map from keys to verdicts, as NewSet.
func NewMap(id uint32, t *nftables.Table, name string, key ...nftables.SetDatatype) *nftables.Set {
	m := NewSet(id, t, name, key...)
	m.IsMap, m.DataType = true, nftables.TypeVerdict
	return m
}

// batch is the number of elements in one message, whose length has 16 bits.
const batch = 500

// Change passes elements of a set to f, which adds or deletes them.
func Change(f func(*nftables.Set, []nftables.SetElement) error, s *nftables.Set, elements []nftables.SetElement) error {
	for chunk := range slices.Chunk(elements, batch) {
		if err := f(s, chunk); err != nil {
			return err
		}
	}
	return nil
}

// Name returns an interface's name as in a key.
func Name(iface string) []byte {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, iface)
	return name
}

// Operand is a value that a rule can load.
type Operand interface {
	load(register uint32) expr.Any
	size() uint32 // bytes
}

type meta expr.MetaKey

// The names of the interfaces by which a packet comes and goes, its family, and its
// transport protocol.
const (
	InInterface     = meta(expr.MetaKeyIIFNAME)
	OutInterface    = meta(expr.MetaKeyOIFNAME)
	Family          = meta(expr.MetaKeyNFPROTO)
	PayloadProtocol = meta(expr.MetaKeyL4PROTO)
)

func (m meta) load(register uint32) expr.Any {
	return &expr.Meta{Key: expr.MetaKey(m), Register: register}
}

func (m meta) size() uint32 {
	if m == InInterface || m == OutInterface {
		return unix.IFNAMSIZ
	}
	return 1
}

// Field is a part of a packet.
type Field struct {
	base           expr.PayloadBase
	offset, length uint32 // bytes
}

// Link returns a field of the Ethernet header.
func Link(offset, length uint32) Field {
	return Field{expr.PayloadBaseLLHeader, offset, length}
}

// Network returns a field of the ARP or IP header.
func Network(offset, length uint32) Field {
	return Field{expr.PayloadBaseNetworkHeader, offset, length}
}

// Transport returns a field of the header behind the IP header.
func Transport(offset, length uint32) Field {
	return Field{expr.PayloadBaseTransportHeader, offset, length}
}

func (f Field) load(register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: f.base, Offset: f.offset, Len: f.length}
}

func (f Field) size() uint32 { return f.length }

// Rule joins the parts of a rule: conditions, and what to do when all hold.
func Rule(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

// In holds when the set has the key made of the operands, of which there are one to five
// with at most 64 bytes.
func In(s *nftables.Set, key ...Operand) []expr.Any { return lookup(s, false, key) }

// NotIn is the opposite of In.
func NotIn(s *nftables.Set, key ...Operand) []expr.Any { return lookup(s, true, key) }

func lookup(s *nftables.Set, invert bool, key []Operand) []expr.Any {
	return append(load(key), &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID, Invert: invert})
}

// load loads the parts of a key, one behind the other, each filled up to whole registers of
// 4 bytes.
func load(key []Operand) (parts []expr.Any) {
	next := uint32(0)
	for _, o := range key {
		register := unix.NFT_REG32_00 + next
		if next%4 == 0 { // as the kernel says it
			register = unix.NFT_REG_1 + next/4
		}
		parts = append(parts, o.load(register))
		next += (o.size() + 3) / 4
	}
	return parts
}

// Verdict takes the verdict that a map has for the key, if it has the key.
func Verdict(m *nftables.Set, key ...Operand) []expr.Any {
	parts := lookup(m, false, key)
	last := parts[len(parts)-1].(*expr.Lookup)
	last.IsDestRegSet, last.DestRegister = true, unix.NFT_REG_VERDICT
	return parts
}

// Is holds when the field has the value.
func Is(f Field, value ...byte) []expr.Any { return compare(f, expr.CmpOpEq, value) }

// IsNot is the opposite of Is.
func IsNot(f Field, value ...byte) []expr.Any { return compare(f, expr.CmpOpNeq, value) }

// Protocol holds when the packet is of the family (unix.NFPROTO_*).
func Protocol(family byte) []expr.Any {
	return compare(meta(expr.MetaKeyNFPROTO), expr.CmpOpEq, []byte{family})
}

// Payload holds when the packet has the transport protocol (unix.IPPROTO_*).
func Payload(protocol byte) []expr.Any {
	return compare(meta(expr.MetaKeyL4PROTO), expr.CmpOpEq, []byte{protocol})
}

// NotPayload is the opposite of Payload. It does not hold if the kernel has not
// found a transport protocol.
func NotPayload(protocol byte) []expr.Any {
	return compare(meta(expr.MetaKeyL4PROTO), expr.CmpOpNeq, []byte{protocol})
}

func compare(o Operand, op expr.CmpOp, value []byte) []expr.Any {
	return []expr.Any{o.load(unix.NFT_REG_1), &expr.Cmp{Op: op, Register: unix.NFT_REG_1, Data: value}}
}

// Longer holds when the packet has more than size bytes from the network header on, with the frame's padding unless the kernel has cut it off.
func Longer(size int) []expr.Any {
	inOrder := &expr.Byteorder{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Op: expr.ByteorderHton, Len: 4, Size: 4}
	more := &expr.Cmp{Op: expr.CmpOpGt, Register: unix.NFT_REG_1, Data: binaryutil.BigEndian.PutUint32(uint32(size))}
	return []expr.Any{meta(expr.MetaKeyLEN).load(unix.NFT_REG_1), inOrder, more}
}

// Gather has the kernel put the packet's headers up to the end of a field into one piece of memory, for chains of a later priority: the rule
// writes the field unchanged. No checksum may include the field: rules that nft has restored would correct a wrong checksum.
func Gather(f Field) []expr.Any {
	write := &expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: unix.NFT_REG_1, Base: f.base, Offset: f.offset, Len: f.length}
	return []expr.Any{f.load(unix.NFT_REG_1), write}
}

// Between holds when the field is in a range, both ends included.
func Between(f Field, first, last []byte) []expr.Any {
	return append(compare(f, expr.CmpOpGte, first), &expr.Cmp{Op: expr.CmpOpLte, Register: unix.NFT_REG_1, Data: last})
}

// NotMasked is the opposite of Masked.
func NotMasked(f Field, mask, value []byte) []expr.Any {
	parts := Masked(f, mask, value)
	parts[2].(*expr.Cmp).Op = expr.CmpOpNeq
	return parts
}

// Masked holds when those bits of the field that are 1 in mask have the value.
func Masked(f Field, mask, value []byte) []expr.Any {
	return []expr.Any{
		f.load(unix.NFT_REG_1),
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: f.length, Mask: mask, Xor: make([]byte, f.length)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: value},
	}
}
