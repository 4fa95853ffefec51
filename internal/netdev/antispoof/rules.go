package antispoof

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest/internal/netdev/nft"
)

const tableName = "unnest-antispoof"

// The bridge table filters frames as they come into a bridge. The other two are for
// a port that is not on a bridge yet: the host itself would receive its frames.
var (
	bridgeTable = &nftables.Table{Family: nftables.TableFamilyBridge, Name: tableName}
	inetTable   = &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	arpTable    = &nftables.Table{Family: nftables.TableFamilyARP, Name: tableName}
	tables      = []*nftables.Table{bridgeTable, inetTable, arpTable}
)

// The sets. Every key begins with an interface's name. A name alone says that the
// port is guarded, or may use DHCP; a name with a MAC or an address says that it is
// the port's. The map has a chain for each port, which accepts its addresses as
// targets of neighbour discovery: nft 1.0.6 has no name for this field, so it cannot
// read a lookup of it in a set of addresses.
var (
	ports     = nft.NewSet(1, bridgeTable, "ports", nftables.TypeIFName)
	inetPorts = nft.NewSet(2, inetTable, "ports", nftables.TypeIFName)
	arpPorts  = nft.NewSet(3, arpTable, "ports", nftables.TypeIFName)
	macs      = nft.NewSet(4, bridgeTable, "macs", nftables.TypeIFName, nftables.TypeEtherAddr)
	v4        = nft.NewSet(5, bridgeTable, "v4", nftables.TypeIFName, nftables.TypeIPAddr)
	v6        = nft.NewSet(6, bridgeTable, "v6", nftables.TypeIFName, nftables.TypeIP6Addr)
	dhcp      = nft.NewSet(7, bridgeTable, "dhcp", nftables.TypeIFName)
	targets   = nft.NewMap(8, bridgeTable, "targets", nftables.TypeIFName)
	sets      = []*nftables.Set{ports, inetPorts, arpPorts, macs, v4, v6, dhcp, targets, floods}
)

const marks = 9 // the ID of the owner's set

// floods has a chain for each port, which drops broadcasts beyond its limit.
var floods = nft.NewMap(10, bridgeTable, "floods", nftables.TypeIFName)

// dropped counts the frames of each port that were dropped on a bridge. Rules add its
// elements, so it is not one of sets.
var dropped = newDropped()

func newDropped() *nftables.Set {
	s := nft.NewSet(11, bridgeTable, "dropped", nftables.TypeIFName)
	s.Dynamic, s.Size, s.HasTimeout, s.Timeout = true, 65535, true, time.Hour
	return s
}

// fillTables fills new tables. Sets are empty then, and counters begin with the given
// counts by table and reason.
func fillTables(c *nftables.Conn, counts map[count]nftables.CounterObj) error {
	var errs []error
	for _, s := range append([]*nftables.Set{dropped}, sets...) {
		errs = append(errs, c.AddSet(s, nil))
	}
	chains := chains()
	counters := map[count]bool{{bridgeTable, counterPrefix + "flood"}: true}
	for _, chain := range chains {
		c.AddChain(chain.Chain)
		for _, e := range slices.Concat(chain.rules...) {
			if counter, ok := e.(*expr.Objref); ok {
				counters[count{chain.Table, counter.Name}] = true
			}
		}
	}
	for k := range counters {
		old := counts[count{k.table, reason(k.name)}]
		c.AddObj(&nftables.CounterObj{Table: k.table, Name: k.name, Packets: old.Packets, Bytes: old.Bytes})
	}
	for _, chain := range chains {
		for _, r := range chain.rules {
			c.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain.Chain, Exprs: r})
		}
	}
	return errors.Join(errs...)
}

// count names a counter of a table.
type count struct {
	table *nftables.Table
	name  string
}

// counterPrefix begins the names of counters. nft cannot read its own output when a
// counter has the name of a keyword, such as arp. Earlier versions had no prefix.
const counterPrefix = "drop-"

// reason returns the reason for which a counter counts.
func reason(counter string) string { return strings.TrimPrefix(counter, counterPrefix) }

type chain struct {
	*nftables.Chain
	rules [][]expr.Any
}

func regular(name string, rules ...[]expr.Any) chain {
	return chain{&nftables.Chain{Table: bridgeTable, Name: name}, rules}
}

func base(t *nftables.Table, hook nftables.ChainHook, priority nftables.ChainPriority, name string, rules ...[]expr.Any) chain {
	return chain{&nftables.Chain{
		Table: t, Name: name, Type: nftables.ChainTypeFilter, Hooknum: &hook, Priority: &priority,
	}, rules}
}

// priorityBridgeFilter is nft's "filter" of the bridge family. It runs before
// bridge-nf-call passes a frame to the rules of the IP layer.
const priorityBridgeFilter = -200

const arpInput = 0 // NF_ARP_IN in linux/netfilter_arp.h

// chains returns the rules. A chain that is jumped to decides about every frame. Names
// of chains must not be keywords of nft, as those of counters.
func chains() []chain {
	return []chain{
		regular("check-arp",
			nft.Rule(nft.IsNot(arpKind, 0, 1, 8, 0, 6, 4), drop("arp")), // Ethernet and IPv4
			nft.Rule(isARP, notOwn(macs, arpSenderMAC), drop("arp")),
			nft.Rule(isARP, own(v4, arpSender), accept),
			nft.Rule(nft.IsNot(arpSender, 0, 0, 0, 0), drop("arp")),
			nft.Rule(isARP, own(v4, arpTarget), accept),
			nft.Rule(own(dhcp), accept),
			drop("arp"),
		),
		regular("check-ipv4",
			nft.Rule(own(dhcp), nft.Is(ipv4Addresses, 0, 0, 0, 0, 255, 255, 255, 255), udp, nft.Is(udpPorts, 0, dhcpClient4, 0, dhcpServer4), accept),
			nft.Rule(isIPv4, notOwn(v4, ipv4Source), drop("ipv4")),
			nft.Rule(udp, nft.Is(udpDestination, 0, dhcpClient4), drop("dhcp")),
			nft.Rule(parsed, accept),
			drop("ipv4"),
		),
		regular("check-ipv6",
			nft.Rule(isIPv6, notOwn(v6, ipv6Source), drop("ipv6")),
			nft.Rule(icmpv6, nft.Is(icmpType, routerAdvertisement), drop("router")),
			nft.Rule(icmpv6, nft.Is(icmpType, redirect), drop("router")),
			nft.Rule(nft.Is(ipv6Source, netip.IPv6Unspecified().AsSlice()...), nft.Goto("check-unspecified")),
			nft.Rule(icmpv6, nft.Is(icmpType, neighbourAdvertisement), nft.Goto("check-neighbour")),
			nft.Rule(udp, nft.Is(udpDestination, dhcpClient6>>8, dhcpClient6&0xff), drop("dhcp")),
			nft.Rule(parsed, accept),
			drop("ipv6"),
		),
		regular("check-neighbour",
			acceptTarget,
			drop("neighbour"),
		),
		regular("check-unspecified",
			nft.Rule(icmpv6, nft.Is(icmpType, neighbourAdvertisement), drop("neighbour")),
			nft.Rule(isIPv6, icmpv6, nft.Is(icmpType, neighbourSolicitation), nft.Is(solicitedNode, solicitedNodes...), acceptTarget),
			nft.Rule(icmpv6, nft.Is(icmpType, listenerReport), accept),
			drop("ipv6"),
		),
		regular("guard",
			nft.Rule(notOwn(macs, etherSource), drop("mac")),
			nft.Rule(multicast, nft.Verdict(floods, nft.InInterface)),
			nft.Rule(isARP, nft.Goto("check-arp")),
			nft.Rule(isIPv4, nft.Goto("check-ipv4")),
			nft.Rule(isIPv6, nft.Goto("check-ipv6")),
			nft.Rule(nft.Is(etherType, 0x81, 0x00), drop("vlan")),
			nft.Rule(nft.Is(etherType, 0x88, 0xa8), drop("vlan")),
			drop("ethertype"),
		),
		base(bridgeTable, *nftables.ChainHookPrerouting, priorityBridgeFilter, "prerouting",
			nft.Rule(own(ports), nft.Goto("guard")),
		),
		// Frames to the bridge's own group (01:80:c2:00:00:00 to 0f) pass no prerouting,
		// but the bridge learns their source.
		base(bridgeTable, *nftables.ChainHookInput, priorityBridgeFilter, "input",
			nft.Rule(own(ports), bridgeAddress, drop("control")),
		),
		base(inetTable, *nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw, "prerouting",
			nft.Rule(own(inetPorts), dropUnbridged),
		),
		base(arpTable, arpInput, *nftables.ChainPriorityFilter, "input",
			nft.Rule(own(arpPorts), dropUnbridged),
		),
	}
}

const (
	dhcpServer4 = 67
	dhcpClient4 = 68
	dhcpClient6 = 546

	routerAdvertisement    = 134 // of ICMPv6, RFC 4861
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
	solicitedNode    = nft.Network(24, 13) // destination, without the target's last 3 bytes
	udpPorts         = nft.Transport(0, 4)
	udpDestination   = nft.Transport(2, 2)
	icmpType         = nft.Transport(0, 1)
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

// drop counts the frame under the reason and for its port, and drops it.
func drop(reason string) []expr.Any {
	counter := []expr.Any{&expr.Counter{}}
	return nft.Rule(countReason(reason), nft.Update(dropped, counter, nft.InInterface), nft.Drop())
}

// dropUnbridged is drop in the tables of other families.
var dropUnbridged = nft.Rule(countReason("unbridged"), nft.Drop())

func countReason(reason string) []expr.Any {
	return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: counterPrefix + reason}}
}

// targetChain names a port's chain in the map of targets. The interface's name is in
// hexadecimal digits, because nft does not read every character.
func targetChain(iface string) *nftables.Chain {
	return &nftables.Chain{Table: bridgeTable, Name: fmt.Sprintf("target-%x", iface)}
}

// floodChain names a port's chain in the map of floods.
func floodChain(iface string) *nftables.Chain {
	return &nftables.Chain{Table: bridgeTable, Name: fmt.Sprintf("flood-%x", iface)}
}

// addChains adds or replaces the chains of a port.
func addChains(c *nftables.Conn, p Port) {
	addTargets(c, p)
	chain := c.AddChain(floodChain(p.Interface))
	c.FlushChain(chain)
	if rate := cmp.Or(p.Multicasts, defaultMulticasts); rate > 0 {
		c.AddRule(&nftables.Rule{Table: bridgeTable, Chain: chain, Exprs: nft.Rule(nft.Over(uint64(rate), uint32(rate)), drop("flood"))})
	}
}

func addTargets(c *nftables.Conn, p Port) {
	chain := c.AddChain(targetChain(p.Interface))
	c.FlushChain(chain)
	for _, e := range p.elements() {
		if a := e.key[unix.IFNAMSIZ:]; e.set == v6 && a != unspecified {
			c.AddRule(&nftables.Rule{Table: bridgeTable, Chain: chain, Exprs: nft.Rule(nft.Is(ndTarget, []byte(a)...), accept)})
		}
	}
}

var unspecified = string(netip.IPv6Unspecified().AsSlice())

func deleteChains(c *nftables.Conn, iface string) {
	for _, chain := range []*nftables.Chain{targetChain(iface), floodChain(iface)} {
		c.FlushChain(chain)
		c.DelChain(chain)
	}
}
