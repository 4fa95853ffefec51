package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
)

// Guard protects the host, and what its tenants share on it, from a tenant's pods.
type Guard struct {
	// Bridges have only the tenant's pods on them: what comes from one comes from a
	// pod.
	Bridges []string
	// Ports of the host that pods may connect to, in addition to Daemon. Everything may
	// answer, and ping the host.
	Ports    []HostPort
	AllPorts bool
	Daemon   netip.AddrPort // TCP; need not be valid
	// Metadata lets pods connect to the metadata services of clouds, which give the
	// host's credentials away.
	Metadata bool
	// Connections through the host and to it, that pods have opened: at the same time,
	// and 32 times those per second. 0: no limit.
	Connections int
}

// HostPort is one of the host's ports.
type HostPort struct {
	Protocol byte // unix.IPPROTO_TCP or UDP
	Number   uint16
}

const (
	// shards divides the connections of a tenant by their source ports. The kernel
	// looks through all of a shard when it counts another connection.
	shards = 64
	// shardMask selects the shard. Linux uses even ports for outgoing connections.
	shardMask = (shards - 1) << 1
	// connectionSeconds times the new connections per second are as many as there may
	// be at the same time. A closed connection stays in the kernel's table for 120 s, but
	// does not count.
	connectionSeconds = 32

	// The host resolves so many unknown addresses per second and at once for packets
	// from one interface to a bridge, so that they fit in the kernel's table of 1,024.
	resolveRate, resolveBurst = 10, 128
	// Those of one source are fewer, so that a pod leaves some for the others of its bridge.
	sourceRate, sourceBurst = 5, 48
	sourceTime              = time.Minute
	askedTime               = 20 * time.Second // until the kernel forgets an address without answer
	aliveTime               = 10 * time.Minute
)

// Addresses of clouds' metadata services, in addition to 169.254.0.0/16.
var metadata4, metadata6 = addresses("100.100.100.200", "168.63.129.16"), addresses("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254")

func addresses(texts ...string) (keys [][]byte) {
	for _, t := range texts {
		keys = append(keys, netip.MustParseAddr(t).AsSlice())
	}
	return keys
}

// guardSets are the sets of the rules that guard. The keys of alive and asked are a
// bridge and an address on it.
type guardSets struct {
	guarded, services, ported, icmp6, metadata4, metadata6       *nftables.Set
	hosts, forwards                                              *nftables.Set
	alive4, alive6, asked4, asked6, askers, fragment4, fragment6 *nftables.Set
	sources4, sources6                                           *nftables.Set // those that ask
}

func newGuardSets(t *nftables.Table) guardSets {
	bridge, v4, v6 := nftables.TypeIFName, nftables.TypeIPAddr, nftables.TypeIP6Addr
	return guardSets{
		guarded:   nft.NewSet(11, t, "guarded", bridge),
		services:  nft.NewSet(12, t, "services", bridge, nftables.TypeInetProto, nftables.TypeInetService),
		ported:    nft.NewSet(13, t, "ported", nftables.TypeInetProto),
		icmp6:     nft.NewSet(14, t, "icmp6", nftables.TypeICMP6Type),
		metadata4: nft.NewSet(15, t, "metadata4", v4),
		metadata6: nft.NewSet(16, t, "metadata6", v6),
		hosts:     nft.NewMap(17, t, "hosts", bridge),
		forwards:  nft.NewMap(18, t, "forwards", bridge),
		alive4:    dynamic(nft.NewSet(19, t, "alive4", bridge, v4), aliveTime),
		alive6:    dynamic(nft.NewSet(20, t, "alive6", bridge, v6), aliveTime),
		asked4:    dynamic(nft.NewSet(21, t, "asked4", bridge, v4), askedTime),
		asked6:    dynamic(nft.NewSet(22, t, "asked6", bridge, v6), askedTime),
		askers:    dynamic(nft.NewSet(23, t, "askers", bridge, bridge), 0),
		fragment4: dynamic(nft.NewSet(24, t, "fragments4", bridge), 0),
		fragment6: dynamic(nft.NewSet(27, t, "fragments6", bridge), 0),
		sources4:  dynamic(nft.NewSet(25, t, "sources4", bridge, v4), sourceTime),
		sources6:  dynamic(nft.NewSet(26, t, "sources6", bridge, v6), sourceTime),
	}
}

// firstTenantSet is the ID of the first of the sets of each tenant.
const firstTenantSet = 100

// countSets returns the sets that count the connections of network i: by port, of other protocols, and per second. They stay when the rest of the
// table is replaced, because a connection counts only at its first packet. Their elements have the limit: with another one they are others.
func (f *Filter) countSets(i int, n Network) (all []*nftables.Set) {
	if n.Guard == nil || n.Guard.Connections == 0 {
		return nil
	}
	keys := []nftables.SetDatatype{nftables.TypeInetService, nftables.TypeNFProto, nftables.TypeInetProto}
	for id, name := range []string{"connections", "others", "rates"} { // nft does not read every character of a bridge in names
		name = fmt.Sprintf("%s-%x-%d", name, n.Bridge, n.Guard.Connections)
		all = append(all, dynamic(nft.NewSet(uint32(firstTenantSet+3*i+id), f.table, name, keys[id]), 0))
	}
	return all
}

// dynamic makes a set one that rules change. Its elements end after a time, 0 for never.
func dynamic(s *nftables.Set, timeout time.Duration) *nftables.Set {
	s.Dynamic, s.Size, s.Timeout, s.HasTimeout = true, 65535, timeout, timeout > 0
	return s
}

func (s guardSets) elements(networks []Network, add func(*nftables.Set, nftables.SetElement)) {
	key := func(set *nftables.Set, value ...byte) { add(set, nftables.SetElement{Key: value}) }
	for _, p := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		key(s.ported, p)
	}
	// Echo requests, multicast listeners, router and neighbour solicitations,
	// neighbour advertisements.
	for _, kind := range []byte{128, 131, 132, 133, 135, 136, 143} {
		key(s.icmp6, kind)
	}
	for _, a := range metadata4 {
		key(s.metadata4, a...)
	}
	for _, a := range metadata6 {
		key(s.metadata6, a...)
	}
	for i, n := range networks {
		if n.Guard == nil {
			continue
		}
		for _, b := range n.Guard.Bridges {
			key(s.guarded, nft.Name(b)...)
			add(s.hosts, jumpTo(b, hostChain(i)))
			add(s.forwards, jumpTo(b, forwardChain(i)))
			for _, p := range n.Guard.Ports {
				number := binaryutil.BigEndian.PutUint16(p.Number)
				key(s.services, append(nft.Name(b), p.Protocol, 0, 0, 0, number[0], number[1], 0, 0)...)
			}
		}
	}
}

func jumpTo(bridge, chain string) nftables.SetElement {
	return nftables.SetElement{Key: nft.Name(bridge), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

func hostChain(i int) string    { return fmt.Sprintf("to-host-%d", i) }
func forwardChain(i int) string { return fmt.Sprintf("through-host-%d", i) }
func countChain(i int) string   { return fmt.Sprintf("count-%d", i) }

// rules returns the chains to which those of the hooks jump.
func (s guardSets) rules() map[string][][]expr.Any {
	return map[string][][]expr.Any{
		"learn": {
			nft.Rule(ipv4, nft.Update(s.alive4, nil, nft.InInterface, source4)),
			nft.Rule(ipv6, nft.Update(s.alive6, nil, nft.InInterface, source6)),
		},
		"resolve": {
			nft.Rule(nft.Status(nft.DNAT), nft.Return()), // the operator has chosen the address
			nft.Rule(ipv4, nft.In(s.alive4, nft.OutInterface, destination4), nft.Return()),
			nft.Rule(ipv6, nft.In(s.alive6, nft.OutInterface, destination6), nft.Return()),
			nft.Rule(ipv4, nft.In(s.asked4, nft.OutInterface, destination4), nft.Return()),
			nft.Rule(ipv6, nft.In(s.asked6, nft.OutInterface, destination6), nft.Return()),
			nft.Rule(ipv4, nft.Update(s.sources4, nft.Over(sourceRate, sourceBurst), nft.InInterface, source4), drop("neighbours")),
			nft.Rule(ipv6, nft.Update(s.sources6, nft.Over(sourceRate, sourceBurst), nft.InInterface, source6), drop("neighbours")),
			nft.Rule(nft.Update(s.askers, nft.Over(resolveRate, resolveBurst), nft.InInterface, nft.OutInterface), drop("neighbours")),
			nft.Rule(ipv4, nft.Add(s.asked4, nil, nft.OutInterface, destination4)),
			nft.Rule(ipv6, nft.Add(s.asked6, nil, nft.OutInterface, destination6)),
		},
		"metadata": {
			nft.Rule(ipv4, nft.Is(linkLocal4, 169, 254), drop("metadata")),
			nft.Rule(ipv4, nft.In(s.metadata4, destination4), drop("metadata")),
			nft.Rule(ipv6, nft.In(s.metadata6, destination6), drop("metadata")),
		},
		"services-only": {
			nft.Rule(nft.In(s.services, nft.InInterface, nft.PayloadProtocol, destinationPort), nft.Return()),
			nft.Rule(ipv4, nft.Payload(unix.IPPROTO_ICMP), nft.Is(icmpType, echoRequest), nft.Return()),
			nft.Rule(ipv6, nft.Payload(unix.IPPROTO_ICMPV6), nft.In(s.icmp6, icmpType), nft.Return()),
			drop("host"),
		},
	}
}

const echoRequest = 8 // of ICMP

// addGuard adds the chains and sets of the tenant with network i.
func (f *Filter) addGuard(c *nftables.Conn, i int, network Network) (err error) {
	g, sets := network.Guard, f.countSets(i, network)
	count := [][]expr.Any{nft.Jump("learn")}
	if n := uint32(g.Connections); n > 0 {
		each := nft.CountOver(max(n/shards, 1))
		first := nft.NoStatus(nft.Confirmed) // once per connection
		rate := nft.Over(uint64(max(n/connectionSeconds, 1)), n)
		count = append(count,
			nft.Rule(first, nft.In(f.guard.ported, nft.PayloadProtocol), nft.AddMasked(sets[0], each, sourcePort, []byte{0, shardMask}), drop("connections")),
			nft.Rule(first, nft.NotIn(f.guard.ported, nft.PayloadProtocol), nft.Add(sets[1], each, nft.Family), drop("connections")),
			nft.Rule(first, nft.AddMasked(sets[2], rate, version, []byte{0}), drop("connections")), // one key
		)
		err = errors.Join(c.AddSet(sets[0], nil), c.AddSet(sets[1], nil), c.AddSet(sets[2], nil))
	}
	var host, forward [][]expr.Any
	if a := g.Daemon.Addr(); g.Daemon.IsValid() {
		family, destination := ipv4, destination4
		if a.Is6() {
			family, destination = ipv6, destination6
		}
		port := binaryutil.BigEndian.PutUint16(g.Daemon.Port())
		host = append(host, nft.Rule(family, nft.Is(destination, a.AsSlice()...), nft.Payload(unix.IPPROTO_TCP), nft.Is(destinationPort, port...), nft.Goto(countChain(i))))
	}
	if !g.Metadata {
		host, forward = append(host, nft.Jump("metadata")), append(forward, nft.Jump("metadata"))
	}
	if !g.AllPorts {
		host = append(host, nft.Jump("services-only"))
	}
	host, forward = append(host, nft.Goto(countChain(i))), append(forward, nft.Goto(countChain(i)))
	f.addRules(c, countChain(i), count)
	f.addRules(c, hostChain(i), host)
	f.addRules(c, forwardChain(i), forward)
	return err
}
