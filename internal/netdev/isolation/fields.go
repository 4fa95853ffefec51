package isolation

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest/internal/netdev/nft"
)

// family is what differs between IPv4 and IPv6.
type family struct {
	version             int
	kind                nftables.SetDatatype
	source, destination nft.Field
	bits                int // of an address
	is                  []expr.Any
	// A datagram in fragments: the first one has the ports, the later ones have not.
	firstFragment, laterFragment []expr.Any
}

var families = []family{
	{
		version: 4, kind: nftables.TypeIPAddr, source: nft.Network(12, 4), destination: nft.Network(16, 4), bits: 32,
		is:            nft.Is(etherType, 0x08, 0x00),
		firstFragment: nft.Masked(nft.Network(6, 2), []byte{0x3f, 0xff}, []byte{0x20, 0}), // more fragments, offset 0
		laterFragment: nft.NotMasked(nft.Network(6, 2), []byte{0x1f, 0xff}, []byte{0, 0}),
	},
	{
		version: 6, kind: nftables.TypeIP6Addr, source: nft.Network(8, 16), destination: nft.Network(24, 16), bits: 128,
		is:            nft.Is(etherType, 0x86, 0xdd),
		firstFragment: fragmentOffset(expr.CmpOpEq),
		laterFragment: fragmentOffset(expr.CmpOpNeq),
	},
}

// fragmentOffset compares the offset in the fragment header of IPv6 with 0.
func fragmentOffset(op expr.CmpOp) []expr.Any {
	const fragmentHeader = 44
	return []expr.Any{
		&expr.Exthdr{DestRegister: unix.NFT_REG_1, Type: fragmentHeader, Offset: 2, Len: 2, Op: expr.ExthdrOpIpv6},
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 2, Mask: []byte{0xff, 0xf8}, Xor: []byte{0, 0}},
		&expr.Cmp{Op: op, Register: unix.NFT_REG_1, Data: []byte{0, 0}},
	}
}

// direction is that of packets, seen from the port.
type direction struct {
	name  string
	iface nft.Operand
	// The fields of the port's end and of its peer's end of a connection.
	local, remote         func(family) nft.Field
	localPort, remotePort nft.Field
}

var (
	out = direction{"egress", nft.InInterface, source, destination, sourcePort, destinationPort}
	in  = direction{"ingress", nft.OutInterface, destination, source, destinationPort, sourcePort}
)

func source(f family) nft.Field      { return f.source }
func destination(f family) nft.Field { return f.destination }

// flow is the key of a packet's connection, the same in both directions.
func (d direction) flow(f family) []nft.Operand {
	return []nft.Operand{d.iface, d.local(f), d.remote(f), d.localPort, d.remotePort}
}

func (d direction) pair(f family) []nft.Operand {
	return []nft.Operand{d.iface, d.local(f), d.remote(f), nft.PayloadProtocol}
}

var (
	etherType       = nft.Link(12, 2)
	sourcePort      = nft.Transport(0, 2)
	destinationPort = nft.Transport(2, 2)
	udpPorts        = nft.Transport(0, 4)
	addresses4      = nft.Network(12, 8)
	icmpType        = nft.Transport(0, 1)
	tcpFlags        = nft.Transport(13, 1)

	isARP  = nft.Is(etherType, 0x08, 0x06)
	isTCP  = nft.Payload(unix.IPPROTO_TCP)
	isUDP  = nft.Payload(unix.IPPROTO_UDP)
	isSCTP = nft.Payload(unix.IPPROTO_SCTP)
	icmp   = nft.Payload(unix.IPPROTO_ICMP)
	icmpv6 = nft.Payload(unix.IPPROTO_ICMPV6)

	notTCP  = nft.NotPayload(unix.IPPROTO_TCP)
	notUDP  = nft.NotPayload(unix.IPPROTO_UDP)
	notSCTP = nft.NotPayload(unix.IPPROTO_SCTP)

	begins = nft.Masked(tcpFlags, []byte{0x17}, []byte{0x02}) // SYN, without ACK, RST and FIN
	ends   = nft.NotMasked(tcpFlags, []byte{0x05}, []byte{0}) // FIN or RST
)
