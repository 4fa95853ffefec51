package antispoof

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
)

const (
	dhcpServer4 = 67
	dhcpClient4 = 68
	dhcpClient6 = 546

	groupQuery             = 0x11 // of IGMP, RFC 3376
	listenerQuery          = 130  // of ICMPv6, RFC 3810
	routerAdvertisement    = 134  // RFC 4861
	neighbourSolicitation  = 135
	neighbourAdvertisement = 136
	redirect               = 137
	listenerReport         = 143 // RFC 3810
)

// Fields of a frame.
var (
	etherDestination = nft.Link(0, 6)
	etherSource      = nft.Link(6, 6)
	etherType        = nft.Link(12, 2) // of a tagged frame: the tag's
	arpKind          = nft.Network(0, 6)
	arpSenderMAC     = nft.Network(8, 6)
	arpSender        = nft.Network(14, 4)
	arpTarget        = nft.Network(24, 4)
	ipv4Source       = nft.Network(12, 4)
	ipv4Addresses    = nft.Network(12, 8)
	ipv6Source       = nft.Network(8, 16)
	ipv6HopLimit     = nft.Network(7, 1)   // behind the next header
	solicitedNode    = nft.Network(24, 13) // destination, without the target's last 3 bytes
	udpPorts         = nft.Transport(0, 4)
	udpDestination   = nft.Transport(2, 2)
	icmpType         = nft.Transport(0, 1) // and of IGMP
	ndTarget         = nft.Transport(8, 16)
)

// solicitedNodes are the first 13 bytes of every solicited-node multicast address
// (RFC 4291, section 2.7.1).
var solicitedNodes = []byte{0xff, 0x02, 11: 0x01, 12: 0xff}

// own holds when the set has the interface's name with the field, if one is given.
func own(s *nftables.Set, f ...nft.Operand) []expr.Any {
	return nft.In(s, append([]nft.Operand{nft.InInterface}, f...)...)
}

func notOwn(s *nftables.Set, f nft.Field) []expr.Any { return nft.NotIn(s, nft.InInterface, f) }

var (
	// Rules that look up a field begin with its protocol, though the chain implies it:
	// else nft does not know the field.
	isARP  = nft.Is(etherType, 0x08, 0x06)
	isIPv4 = nft.Is(etherType, 0x08, 0x00)
	isIPv6 = nft.Is(etherType, 0x86, 0xdd)
	udp    = nft.Payload(unix.IPPROTO_UDP)
	icmpv6 = nft.Payload(unix.IPPROTO_ICMPV6)
	// parsed holds when the kernel has found the transport protocol, so that no chain
	// of extension headers hides it from the rules. 255 is not a protocol.
	parsed        = nft.NotPayload(255)
	bridgeAddress = nft.Masked(etherDestination, []byte{255, 255, 255, 255, 255, 0xf0}, []byte{1, 0x80, 0xc2, 0, 0, 0})
	multicast     = nft.Masked(etherDestination, []byte{1, 0, 0, 0, 0, 0}, []byte{1, 0, 0, 0, 0, 0})
	accept        = nft.Accept()
	// acceptTarget accepts the frame when the port may claim the target.
	acceptTarget = nft.Verdict(targets, nft.InInterface)
)
