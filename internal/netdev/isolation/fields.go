package isolation

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
)

// family is what differs between IPv4 and IPv6.
type family struct {
	version             int
	kind                nftables.SetDatatype
	source, destination nft.Field
	bits                int // of an address
	is                  []expr.Any
	fragments           nft.Fragments
}

var families = []family{
	{
		version: 4, kind: nftables.TypeIPAddr, source: nft.Network(12, 4), destination: nft.Network(16, 4), bits: 32,
		is:        nft.Is(etherType, 0x08, 0x00),
		fragments: nft.Fragments4,
	},
	{
		version: 6, kind: nftables.TypeIP6Addr, source: nft.Network(8, 16), destination: nft.Network(24, 16), bits: 128,
		is:        nft.Is(etherType, 0x86, 0xdd),
		fragments: nft.Fragments6,
	},
}

// direction is that of packets, seen from the port.
type direction struct {
	name  string
	index int // of the connections that a packet in this direction begins
	// The fields of the port's end and of its peer's end of a connection.
	local, remote         func(family) nft.Field
	localPort, remotePort nft.Field
}

var (
	out        = direction{"egress", 0, source, destination, sourcePort, destinationPort}
	in         = direction{"ingress", 1, destination, source, destinationPort, sourcePort}
	directions = []direction{out, in} // by their index
)

func source(f family) nft.Field      { return f.source }
func destination(f family) nft.Field { return f.destination }

// flow is the key of a packet's connection, the same in both directions.
func (d direction) flow(f family) []nft.Operand {
	return []nft.Operand{d.local(f), d.remote(f), nft.PayloadProtocol, d.localPort, d.remotePort}
}

func (d direction) pair(f family) []nft.Operand {
	return []nft.Operand{d.local(f), d.remote(f), nft.PayloadProtocol}
}

var (
	etherType       = nft.Link(12, 2)
	sourcePort      = nft.Transport(0, 2)
	destinationPort = nft.Transport(2, 2)
	udpPorts        = nft.Transport(0, 4)
	addresses4      = nft.Network(12, 8)
	icmpType        = nft.Transport(0, 1)
	tcpFlags        = nft.Transport(13, 1)
	hopLimit        = nft.Network(7, 1)

	isARP  = nft.Is(etherType, 0x08, 0x06)
	isTCP  = nft.Payload(unix.IPPROTO_TCP)
	isUDP  = nft.Payload(unix.IPPROTO_UDP)
	icmp   = nft.Payload(unix.IPPROTO_ICMP)
	icmpv6 = nft.Payload(unix.IPPROTO_ICMPV6)

	notTCP  = nft.NotPayload(unix.IPPROTO_TCP)
	notUDP  = nft.NotPayload(unix.IPPROTO_UDP)
	notSCTP = nft.NotPayload(unix.IPPROTO_SCTP)

	// Neighbour discovery (RFC 4861) is valid only as it was sent, and reports of groups (RFC 2710, RFC 3810) reach no
	// further than the link, by their hop limits.
	neighbour      = nft.Rule(families[1].is, icmpv6, nft.Between(icmpType, []byte{133}, []byte{136}), nft.Is(hopLimit, 255))
	listener       = nft.Rule(families[1].is, icmpv6, nft.Between(icmpType, []byte{130}, []byte{132}), nft.Is(hopLimit, 1))
	listenerReport = nft.Rule(families[1].is, icmpv6, nft.Is(icmpType, 143), nft.Is(hopLimit, 1))
	toGroup        = nft.Is(nft.Network(24, 1), 0xff)
	toLinkGroup    = nft.Is(nft.Network(24, 2), 0xff, 0x02)
	toLinkLocal    = nft.Masked(nft.Network(24, 2), []byte{0xff, 0xc0}, []byte{0xfe, 0x80})

	begins = nft.Masked(tcpFlags, []byte{0x17}, []byte{0x02}) // SYN, without ACK, RST and FIN
	noSYN  = nft.Masked(tcpFlags, []byte{0x02}, []byte{0})
	ends   = nft.NotMasked(tcpFlags, []byte{0x05}, []byte{0}) // FIN or RST
)
