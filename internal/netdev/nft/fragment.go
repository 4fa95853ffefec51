package nft

import (
	"encoding/binary"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Fragments are the conditions on a packet of one family that is a part of a datagram.
type Fragments struct {
	Any   []expr.Any // with IPv6, also a fragment that is a whole datagram
	First []expr.Any // has the transport header, and others follow
	Later []expr.Any // has no transport header
}

// Fragments4 and Fragments6 are those of IPv4 and IPv6.
var (
	Fragments4 = Fragments{
		Any:   NotMasked(Network(6, 2), []byte{0x3f, 0xff}, []byte{0, 0}),
		First: Masked(Network(6, 2), []byte{0x3f, 0xff}, []byte{0x20, 0}), // more fragments, offset 0
		Later: NotMasked(Network(6, 2), []byte{0x1f, 0xff}, []byte{0, 0}),
	}
	// A comparison of offset and flag with 0 would not survive: nft prints, and so restores, a comparison of the flag alone.
	hasHeader  = &expr.Exthdr{DestRegister: unix.NFT_REG_1, Type: unix.IPPROTO_FRAGMENT, Len: 1, Op: expr.ExthdrOpIpv6, Flags: unix.NFT_EXTHDR_F_PRESENT}
	Fragments6 = Fragments{Any: []expr.Any{hasHeader, &expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: []byte{1}}}, First: fragmentField(0xf9, 1, expr.CmpOpEq), Later: fragmentField(0xf8, 0, expr.CmpOpNeq)}
)

// fragmentField compares offset and flag in the fragment header of IPv6, of which mask has the lower byte, with
// a value.
func fragmentField(mask, value byte, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Exthdr{DestRegister: unix.NFT_REG_1, Type: unix.IPPROTO_FRAGMENT, Offset: 2, Len: 2, Op: expr.ExthdrOpIpv6},
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 2, Mask: []byte{0xff, mask}, Xor: []byte{0, 0}},
		&expr.Cmp{Op: op, Register: unix.NFT_REG_1, Data: []byte{0, value}},
	}
}

var isIPv4, isIPv6 = Is(Link(12, 2), 0x08, 0x00), Is(Link(12, 2), 0x86, 0xdd)

// TinyFragments returns rules that do something with each first fragment that may not have the whole transport
// header (RFC 1858, RFC 7112). No rule may decide by such a header: the rest comes in a later fragment, and what the
// kernel reads in its place may be the frame's padding. No system sends such fragments of itself.
func TinyFragments(do []expr.Any) [][]expr.Any {
	const header4, transport, fragmentHeader = 60, 20, 8 // bytes: the largest of IPv4 and TCP
	first := Rule(isIPv6, Fragments6.First)
	all := [][]expr.Any{
		Rule(isIPv4, Fragments4.First, Between(Network(2, 2), []byte{0, 0}, []byte{0, header4 + transport - 1}), do),
		Rule(first, Between(Network(4, 2), []byte{0, 0}, []byte{0, fragmentHeader + transport - 1}), do),
		Rule(first, IsNot(Network(6, 1), unix.IPPROTO_FRAGMENT), do), // other headers come before
	}
	for _, header := range []byte{unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_FRAGMENT, unix.IPPROTO_AH, unix.IPPROTO_DSTOPTS, unix.IPPROTO_MH} {
		all = append(all, Rule(first, Is(Network(40, 1), header), do)) // or after it
	}
	return all
}

// FragmentSteps are lengths of packets in bytes. A fragment longer than n of them takes up to n+1 times as much of the kernel's memory as a fragment
// of the first length, Ethernet's MTU.
var FragmentSteps = []int{1500, 2524, 3548, 4572, 5596, 6620, 7644, 8668}

// LargeFragments returns rules for the bridge's filters. They do something with each fragment of more than 9,216 bytes, the length of jumbo frames,
// and with each fragment that does not exceed one of FragmentSteps while its frame does. The kernel keeps the whole frame until a datagram is
// complete, but the rules of the IP layer do not see the padding. No system sends such fragments by itself.
func LargeFragments(do []expr.Any) [][]expr.Any {
	const largest, header6 = 9216, 40
	any4, any6, none := Rule(isIPv4, Fragments4.Any), Rule(isIPv6, Fragments6.Any), []byte{0, 0}
	all := [][]expr.Any{Rule(any4, Longer(largest), do), Rule(any6, Longer(largest), do)}
	for _, size := range FragmentSteps {
		shorter4 := Between(Network(2, 2), none, binary.BigEndian.AppendUint16(nil, uint16(size)))
		shorter6 := Between(Network(4, 2), none, binary.BigEndian.AppendUint16(nil, uint16(size-header6)))
		all = append(all, Rule(any4, shorter4, Longer(size), do), Rule(any6, shorter6, Longer(size), do))
	}
	return all
}
