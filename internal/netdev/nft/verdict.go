package nft

import (
	"encoding/binary"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Accept accepts the packet.
func Accept() []expr.Any { return verdict(expr.VerdictAccept, "") }

// Drop drops the packet.
func Drop() []expr.Any { return verdict(expr.VerdictDrop, "") }

// Return ends the chain.
func Return() []expr.Any { return verdict(expr.VerdictReturn, "") }

// Jump continues with a chain, and after it with the next rule.
func Jump(chain string) []expr.Any { return verdict(expr.VerdictJump, chain) }

// Goto continues with a chain, and does not return.
func Goto(chain string) []expr.Any { return verdict(expr.VerdictGoto, chain) }

func verdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}

// Bits of a connection's status (IPS_* in linux/netfilter/nf_conntrack_common.h).
const (
	Assured   = 1 << 2
	Confirmed = 1 << 3 // its first packet has passed
	DNAT      = 1 << 5
)

// Status holds when the status of the packet's connection has one of the bits.
func Status(bits uint32) []expr.Any { return connection(expr.CtKeySTATUS, bits, expr.CmpOpNeq) }

// NoStatus holds when there is a connection and it has none of the bits.
func NoStatus(bits uint32) []expr.Any { return connection(expr.CtKeySTATUS, bits, expr.CmpOpEq) }

// Known holds when the packet is part of a connection with packets in both directions,
// or related to a connection.
func Known() []expr.Any {
	return connection(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED, expr.CmpOpNeq)
}

// Reply holds when the packet goes to the one who has opened the connection.
func Reply() []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: unix.NFT_REG_1, Key: expr.CtKeyDIRECTION},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: []byte{1}},
	}
}

func connection(key expr.CtKey, bits uint32, op expr.CmpOp) []expr.Any {
	none := make([]byte, 4)
	return []expr.Any{
		&expr.Ct{Register: unix.NFT_REG_1, Key: key},
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, bits), Xor: none},
		&expr.Cmp{Op: op, Register: unix.NFT_REG_1, Data: none},
	}
}

// Over holds for packets beyond a rate per second, after a burst.
func Over(rate uint64, burst uint32) []expr.Any {
	return []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: rate, Unit: expr.LimitTimeSecond, Burst: burst, Over: true}}
}

// Within holds for packets up to a rate per second, after a burst.
func Within(rate uint64, burst uint32) []expr.Any {
	return []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: rate, Unit: expr.LimitTimeSecond, Burst: burst}}
}

// CountOver holds for the first packet of a connection beyond a number of connections.
func CountOver(n uint32) []expr.Any {
	return []expr.Any{&expr.Connlimit{Count: n, Flags: expr.NFT_CONNLIMIT_F_INV}}
}

// Add adds the key to a dynamic set. It holds when the condition, which is evaluated for
// each key of its own, does.
func Add(s *nftables.Set, condition []expr.Any, key ...Operand) []expr.Any {
	return append(load(key), dynset(unix.NFT_DYNSET_OP_ADD, s, condition))
}

// Update is Add, and lets the timeout of the key begin again.
func Update(s *nftables.Set, condition []expr.Any, key ...Operand) []expr.Any {
	return append(load(key), dynset(unix.NFT_DYNSET_OP_UPDATE, s, condition))
}

// UpdateFor is Update with a timeout of the key's own.
func UpdateFor(s *nftables.Set, timeout time.Duration, key ...Operand) []expr.Any {
	update := dynset(unix.NFT_DYNSET_OP_UPDATE, s, nil).(*expr.Dynset)
	update.Timeout = timeout
	return append(load(key), update)
}

// Delete deletes the key from a dynamic set.
func Delete(s *nftables.Set, key ...Operand) []expr.Any {
	return append(load(key), dynset(opDelete, s, nil))
}

const opDelete = 2 // NFT_DYNSET_OP_DELETE in linux/netfilter/nf_tables.h

// AddMasked is Add for those bits of a field that are 1 in the mask.
func AddMasked(s *nftables.Set, condition []expr.Any, f Field, mask []byte) []expr.Any {
	masked := Masked(f, mask, nil)
	return append(masked[:2:2], dynset(unix.NFT_DYNSET_OP_ADD, s, condition))
}

func dynset(operation uint32, s *nftables.Set, condition []expr.Any) expr.Any {
	return &expr.Dynset{SrcRegKey: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID, Operation: operation, Exprs: condition}
}
