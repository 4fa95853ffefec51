package antispoof

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const tableName = "unnest-antispoof"

// Frames are filtered as they come into a bridge. The other two tables are for a
// port that is on no bridge (yet): there its frames would be the host's own.
var (
	bridgeTable = &nftables.Table{Family: nftables.TableFamilyBridge, Name: tableName}
	inetTable   = &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	arpTable    = &nftables.Table{Family: nftables.TableFamilyARP, Name: tableName}
	tables      = []*nftables.Table{bridgeTable, inetTable, arpTable}
)

// The sets. All begin with the interface's name: a name alone says that the port
// is guarded, or may use DHCP; with a MAC or an address that this is the port's.
var (
	ports     = newSet(1, bridgeTable, "ports", nftables.TypeIFName)
	inetPorts = newSet(2, inetTable, "ports", nftables.TypeIFName)
	arpPorts  = newSet(3, arpTable, "ports", nftables.TypeIFName)
	macs      = newSet(4, bridgeTable, "macs", nftables.TypeIFName, nftables.TypeEtherAddr)
	v4        = newSet(5, bridgeTable, "v4", nftables.TypeIFName, nftables.TypeIPAddr)
	v6        = newSet(6, bridgeTable, "v6", nftables.TypeIFName, nftables.TypeIP6Addr)
	dhcp      = newSet(7, bridgeTable, "dhcp", nftables.TypeIFName)
	sets      = []*nftables.Set{ports, inetPorts, arpPorts, macs, v4, v6, dhcp}
)

func newSet(id uint32, t *nftables.Table, name string, key ...nftables.SetDatatype) *nftables.Set {
	return &nftables.Set{
		ID: id, Table: t, Name: name,
		KeyType: nftables.MustConcatSetType(key...), Concatenation: len(key) > 1,
		KeyByteOrder: binaryutil.NativeEndian, // nft prints names by it
	}
}

// element is one element of a set.
type element struct {
	set *nftables.Set
	key string
}

// elements are what a port has in the sets.
func (p Port) elements() []element {
	key := func(value ...byte) string { return string(setKey(p.Interface, value)) }
	all := []element{{ports, key()}, {inetPorts, key()}, {arpPorts, key()}, {macs, key(p.MAC...)}}
	if p.DHCP {
		all = append(all, element{dhcp, key()})
	}
	addresses := p.Addresses
	if p.DHCP || len(addresses) > 0 {
		addresses = slices.Concat(addresses, p.implied())
	}
	for _, a := range addresses {
		e := element{v6, key(a.AsSlice()...)}
		if a.Is4() {
			e.set = v4
		}
		if !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return all
}

// setKey is an interface's name with a value behind it, each filled up to whole
// registers.
func setKey(iface string, value []byte) []byte {
	key := make([]byte, unix.IFNAMSIZ+(len(value)+3)/4*4)
	copy(key, iface)
	copy(key[unix.IFNAMSIZ:], value)
	return key
}

func splitKey(key string) (iface string, value []byte) {
	iface, _, _ = strings.Cut(key[:unix.IFNAMSIZ], "\x00")
	return iface, []byte(key[unix.IFNAMSIZ:])
}

// batch is how many elements one message has: its length has 16 bits.
const batch = 500

// change hands elements to f, which adds them to their sets or deletes them.
func change(f func(*nftables.Set, []nftables.SetElement) error, elements []element) error {
	bySet := map[*nftables.Set][]nftables.SetElement{}
	for _, e := range elements {
		bySet[e.set] = append(bySet[e.set], nftables.SetElement{Key: []byte(e.key)})
	}
	var errs []error
	for set, all := range bySet {
		for chunk := range slices.Chunk(all, batch) {
			errs = append(errs, f(set, chunk))
		}
	}
	return errors.Join(errs...)
}

// deleteTables deletes the tables, whether they are there or not.
func deleteTables(c *nftables.Conn) error {
	for _, t := range tables {
		c.DelTable(c.AddTable(t))
	}
	return nil
}

// addTables adds what is missing of the tables, and makes the rules anew. Elements
// and counters stay.
func addTables(c *nftables.Conn) error {
	for _, t := range tables {
		c.AddTable(t)
	}
	var errs []error
	for _, s := range sets {
		errs = append(errs, c.AddSet(s, nil))
	}
	chains := chains()
	counters := map[nftables.CounterObj]bool{}
	for _, chain := range chains {
		c.FlushChain(c.AddChain(chain.Chain))
		for _, reason := range chain.reasons() {
			counters[nftables.CounterObj{Table: chain.Table, Name: reason}] = true
		}
	}
	for counter := range counters {
		c.AddObj(&counter)
	}
	for _, chain := range chains {
		for _, r := range chain.rules {
			c.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain.Chain, Exprs: r})
		}
	}
	return errors.Join(errs...)
}

type chain struct {
	*nftables.Chain
	rules [][]expr.Any
}

// reasons are the counters that the chain's rules name.
func (c chain) reasons() []string {
	var all []string
	for _, r := range c.rules {
		for _, e := range r {
			if counter, ok := e.(*expr.Objref); ok {
				all = append(all, counter.Name)
			}
		}
	}
	return all
}

func regular(name string, rules ...[]expr.Any) chain {
	return chain{&nftables.Chain{Table: bridgeTable, Name: name}, rules}
}

func base(t *nftables.Table, hook nftables.ChainHook, priority nftables.ChainPriority, name string, rules ...[]expr.Any) chain {
	return chain{&nftables.Chain{
		Table: t, Name: name, Type: nftables.ChainTypeFilter, Hooknum: &hook, Priority: &priority,
	}, rules}
}

// priorityBridgeFilter is nft's "filter" of the bridge family: before
// bridge-nf-call hands a frame to the IP layer's rules.
const priorityBridgeFilter = -200

const arpInput = 0 // NF_ARP_IN in linux/netfilter_arp.h

// chains are the rules. A chain that others go to decides about every frame.
func chains() []chain {
	return []chain{
		regular("arp",
			rule(isNot(arpKind, 0, 1, 8, 0, 6, 4), drop("arp")), // Ethernet and IPv4
			rule(notOwn(macs, arpSenderMAC), drop("arp")),
			rule(own(v4, arpSender), accept),
			rule(isNot(arpSender, 0, 0, 0, 0), drop("arp")),
			rule(own(v4, arpTarget), accept),
			rule(own(dhcp), accept),
			drop("arp"),
		),
		regular("ipv4",
			rule(own(dhcp), is(ipv4Addresses, 0, 0, 0, 0, 255, 255, 255, 255), udp, is(udpPorts, 0, dhcpClient4, 0, dhcpServer4), accept),
			rule(notOwn(v4, ipv4Source), drop("ipv4")),
			rule(udp, is(udpDestination, 0, dhcpClient4), drop("dhcp")),
			rule(parsed, accept),
			drop("ipv4"),
		),
		regular("ipv6",
			rule(notOwn(v6, ipv6Source), drop("ipv6")),
			rule(icmpv6, is(icmpType, routerAdvertisement), drop("router")),
			rule(icmpv6, is(icmpType, redirect), drop("router")),
			rule(icmpv6, is(icmpType, neighbourAdvertisement), notOwn(v6, ndTarget), drop("neighbour")),
			rule(is(ipv6Source, netip.IPv6Unspecified().AsSlice()...), jump("unspecified")),
			rule(udp, is(udpDestination, dhcpClient6>>8, dhcpClient6&0xff), drop("dhcp")),
			rule(parsed, accept),
			drop("ipv6"),
		),
		regular("unspecified",
			rule(icmpv6, is(icmpType, neighbourSolicitation), is(solicitedNode, solicitedNodes...), own(v6, ndTarget), accept),
			rule(icmpv6, is(icmpType, listenerReport), accept),
			drop("ipv6"),
		),
		regular("guard",
			rule(notOwn(macs, etherSource), drop("mac")),
			rule(is(etherType, 0x08, 0x06), jump("arp")),
			rule(is(etherType, 0x08, 0x00), jump("ipv4")),
			rule(is(etherType, 0x86, 0xdd), jump("ipv6")),
			rule(is(etherType, 0x81, 0x00), drop("vlan")),
			rule(is(etherType, 0x88, 0xa8), drop("vlan")),
			drop("ethertype"),
		),
		base(bridgeTable, *nftables.ChainHookPrerouting, priorityBridgeFilter, "prerouting",
			rule(own(ports), jump("guard")),
		),
		// What is addressed to the bridge as such (01:80:c2:00:00:00 to 0f) passes
		// no prerouting, but the bridge learns its source.
		base(bridgeTable, *nftables.ChainHookInput, priorityBridgeFilter, "input",
			rule(own(ports), bridgeAddress, drop("control")),
		),
		base(inetTable, *nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw, "prerouting",
			rule(own(inetPorts), drop("unbridged")),
		),
		base(arpTable, arpInput, *nftables.ChainPriorityFilter, "input",
			rule(own(arpPorts), drop("unbridged")),
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

// field is a part of a frame.
type field struct {
	base           expr.PayloadBase
	offset, length uint32 // bytes
}

var (
	etherDestination = field{expr.PayloadBaseLLHeader, 0, 6}
	etherSource      = field{expr.PayloadBaseLLHeader, 6, 6}
	etherType        = field{expr.PayloadBaseLLHeader, 12, 2} // a VLAN tag's, if there is one
	arpKind          = field{expr.PayloadBaseNetworkHeader, 0, 6}
	arpSenderMAC     = field{expr.PayloadBaseNetworkHeader, 8, 6}
	arpSender        = field{expr.PayloadBaseNetworkHeader, 14, 4}
	arpTarget        = field{expr.PayloadBaseNetworkHeader, 24, 4}
	ipv4Source       = field{expr.PayloadBaseNetworkHeader, 12, 4}
	ipv4Addresses    = field{expr.PayloadBaseNetworkHeader, 12, 8}
	ipv6Source       = field{expr.PayloadBaseNetworkHeader, 8, 16}
	solicitedNode    = field{expr.PayloadBaseNetworkHeader, 24, 13} // destination, without the target's last 3 bytes
	udpPorts         = field{expr.PayloadBaseTransportHeader, 0, 4}
	udpDestination   = field{expr.PayloadBaseTransportHeader, 2, 2}
	icmpType         = field{expr.PayloadBaseTransportHeader, 0, 1}
	ndTarget         = field{expr.PayloadBaseTransportHeader, 8, 16}
)

// solicitedNodes are the first 13 bytes of every solicited-node multicast address
// (RFC 4291, section 2.7.1).
var solicitedNodes = []byte{0xff, 0x02, 11: 0x01, 12: 0xff}

func (f field) load(register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: f.base, Offset: f.offset, Len: f.length}
}

func rule(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

// own matches when the interface, with the field if given, is in the set.
func own(s *nftables.Set, f ...field) []expr.Any { return lookup(s, false, f) }

// notOwn matches when it is not.
func notOwn(s *nftables.Set, f field) []expr.Any { return lookup(s, true, []field{f}) }

func lookup(s *nftables.Set, invert bool, f []field) []expr.Any {
	parts := []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1}}
	if len(f) > 0 {
		parts = append(parts, f[0].load(unix.NFT_REG_2)) // behind the name's 16 bytes
	}
	return append(parts, &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID, Invert: invert})
}

func is(f field, value ...byte) []expr.Any {
	return []expr.Any{f.load(unix.NFT_REG_1), &expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: value}}
}

func isNot(f field, value ...byte) []expr.Any {
	return []expr.Any{f.load(unix.NFT_REG_1), &expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: value}}
}

func protocol(op expr.CmpOp, number byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: op, Register: unix.NFT_REG_1, Data: []byte{number}},
	}
}

var (
	udp    = protocol(expr.CmpOpEq, unix.IPPROTO_UDP)
	icmpv6 = protocol(expr.CmpOpEq, unix.IPPROTO_ICMPV6)
	// parsed matches when the kernel has found the transport protocol: no header
	// chain hides it from the rules above. 255 is no protocol.
	parsed = protocol(expr.CmpOpNeq, 255)

	bridgeAddress = []expr.Any{
		etherDestination.load(unix.NFT_REG_1),
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 6, Mask: []byte{255, 255, 255, 255, 255, 0xf0}, Xor: make([]byte, 6)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: []byte{1, 0x80, 0xc2, 0, 0, 0}},
	}

	accept = []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
)

// drop counts the frame under the reason, and drops it.
func drop(reason string) []expr.Any {
	return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: reason}, &expr.Verdict{Kind: expr.VerdictDrop}}
}

// jump leaves the rest to the chain.
func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}
