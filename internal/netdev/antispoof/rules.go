package antispoof

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
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
			nft.Jump("check-fragment"),
			nft.Rule(isIPv4, nft.Payload(unix.IPPROTO_IGMP), nft.Is(icmpType, groupQuery), drop("router")), // ends others' memberships
			nft.Rule(udp, nft.Is(udpDestination, 0, dhcpClient4), drop("dhcp")),
			nft.Rule(parsed, accept),
			drop("ipv4"),
		),
		regular("check-ipv6",
			nft.Rule(isIPv6, notOwn(v6, ipv6Source), drop("ipv6")),
			nft.Jump("check-fragment"),
			nft.Rule(icmpv6, nft.Is(icmpType, listenerQuery), drop("router")),
			nft.Rule(icmpv6, nft.Is(icmpType, routerAdvertisement), drop("router")),
			nft.Rule(icmpv6, nft.Is(icmpType, redirect), drop("router")),
			nft.Rule(nft.Is(ipv6Source, netip.IPv6Unspecified().AsSlice()...), nft.Goto("check-unspecified")),
			nft.Rule(icmpv6, nft.Is(icmpType, neighbourAdvertisement), nft.Goto("check-neighbour")),
			nft.Rule(udp, nft.Is(udpDestination, dhcpClient6>>8, dhcpClient6&0xff), drop("dhcp")),
			nft.Rule(parsed, accept),
			drop("ipv6"),
		),
		regular("check-fragment", slices.Concat(nft.TinyFragments(drop("fragment")), nft.LargeFragments(drop("fragment")))...),
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
		// A guest chooses the size of the first piece of a frame of 4 KB or more (hdr_len of virtio_net_hdr). The kernel reads IPv6's next
		// header from that piece, even if the header is elsewhere.
		base(bridgeTable, *nftables.ChainHookPrerouting, priorityBridgeFilter-1, "gather",
			nft.Rule(own(ports), isIPv6, nft.Gather(ipv6HopLimit)),
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
