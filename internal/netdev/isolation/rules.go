package isolation

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/netdev/nft"
)

// table filters frames on bridges.
var table = &nftables.Table{Family: nftables.TableFamilyBridge, Name: "unnest-isolation"}

// The maps have a chain for each port and direction: of whole interfaces, and of addresses of
// each family. An ID of a set is unique in a transaction.
var (
	egress    = nft.NewMap(1, table, "egress", nftables.TypeIFName)
	ingress   = nft.NewMap(2, table, "ingress", nftables.TypeIFName)
	egressOf  = []*nftables.Set{mapOf(4, "egress", families[0]), mapOf(5, "egress", families[1])}
	ingressOf = []*nftables.Set{mapOf(6, "ingress", families[0]), mapOf(7, "ingress", families[1])}
)

func mapOf(id uint32, direction string, f family) *nftables.Set {
	return nft.NewMap(id, table, fmt.Sprintf("%s-of%d", direction, f.version), nftables.TypeIFName, f.kind)
}

const ownerID, firstID = 3, 10

// The chains run after package antispoof's.
const priority = nftables.ChainPriority(-150)

// reasons are those for which packets are dropped, each with a counter.
var reasons = []string{"egress", "ingress", "fragment"}

// counterPrefix keeps the names of counters apart from the keywords of nft.
const counterPrefix = "drop-"

func drop(reason string) []expr.Any {
	return nft.Rule([]expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: counterPrefix + reason}}, nft.Drop())
}

// addBase adds what all ports share.
func addBase(c *nftables.Conn, counts map[string]nftables.CounterObj) error {
	for _, reason := range reasons {
		old := counts[counterPrefix+reason]
		c.AddObj(&nftables.CounterObj{Table: table, Name: counterPrefix + reason, Packets: old.Packets, Bytes: old.Bytes})
	}
	var err error
	for _, m := range slices.Concat([]*nftables.Set{egress, ingress}, egressOf, ingressOf) {
		err = errors.Join(err, c.AddSet(m, nil))
	}
	addChain(c, "tiny", nft.TinyFragments(drop("fragment")))
	addChain(c, "always", always)
	from, to := [][]expr.Any{nft.Verdict(egress, nft.InInterface)}, [][]expr.Any{nft.Verdict(ingress, nft.OutInterface)}
	for i, f := range families {
		from = append(from, nft.Rule(f.is, nft.Verdict(egressOf[i], nft.InInterface, f.source)))
		to = append(to, nft.Rule(f.is, nft.Verdict(ingressOf[i], nft.OutInterface, f.destination)))
	}
	addHook(c, "prerouting", nftables.ChainHookPrerouting, from)
	addHook(c, "postrouting", nftables.ChainHookPostrouting, to)
	return err
}

// always are the rules for what every port may send and receive.
var always = [][]expr.Any{
	nft.Rule(isARP, nft.Accept()),
	nft.Rule(neighbour, toLinkGroup, nft.Accept()),
	nft.Rule(neighbour, toLinkLocal, nft.Accept()),
	nft.Rule(listener, toGroup, nft.Accept()),
	nft.Rule(listenerReport, toGroup, nft.Accept()),
	nft.Rule(families[0].is, nft.Payload(unix.IPPROTO_IGMP), nft.Masked(families[0].destination, []byte{255, 255, 255, 0}, []byte{224, 0, 0, 0}), nft.Accept()),
	nft.Rule(nft.Is(addresses4, 0, 0, 0, 0, 255, 255, 255, 255), isUDP, nft.Is(udpPorts, 0, 68, 0, 67), nft.Accept()),
	nft.Rule(families[0].is, isUDP, nft.Is(udpPorts, 0, 67, 0, 68), nft.Accept()),
}

func addHook(c *nftables.Conn, name string, hook *nftables.ChainHook, rules [][]expr.Any) {
	p, policy := priority, nftables.ChainPolicyAccept
	fill(c, &nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &p, Policy: &policy}, rules)
}

func addChain(c *nftables.Conn, name string, rules [][]expr.Any) {
	fill(c, &nftables.Chain{Table: table, Name: name}, rules)
}

// fill adds a chain, or replaces its rules.
func fill(c *nftables.Conn, chain *nftables.Chain, rules [][]expr.Any) {
	c.AddChain(chain)
	c.FlushChain(chain)
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r})
	}
}

// portChain names a port's chain.
func portChain(d direction, k key) string { return d.name + "-" + k.String() }

// addPort adds a port, or if it is not fresh replaces its rules.
func (t *Table) addPort(c *nftables.Conn, p Port, fresh bool) error {
	k := p.key()
	var err error
	if fresh {
		err = t.addFlows(c, p)
	}
	addChain(c, portChain(out, k), t.portRules(p, out, p.Egress))
	addChain(c, portChain(in, k), t.portRules(p, in, p.Ingress))
	if fresh {
		err = errors.Join(err, changeMaps(c.SetAddElements, k))
	}
	return err
}

// removePort removes a port with its connections. That takes as long for many as for none: the
// kernel frees them later.
func (t *Table) removePort(c *nftables.Conn, p Port) error {
	k := p.key()
	err := changeMaps(c.SetDeleteElements, k)
	for _, d := range directions { // a chain before those to which it jumps
		seen, passed := []string{byChain("seen", d, out, k), byChain("seen", d, in, k)}, []string{byChain("passed", d, out, k), byChain("passed", d, in, k)}
		for _, name := range slices.Concat([]string{portChain(d, k), flowChain("known", d, k), flowChain("learn", d, k)}, seen, passed) {
			chain := &nftables.Chain{Table: table, Name: name}
			c.FlushChain(chain)
			c.DelChain(chain)
		}
	}
	for _, s := range t.flows(p).all() {
		c.DelSet(s)
	}
	return err
}

func changeMaps(f func(*nftables.Set, []nftables.SetElement) error, k key) error {
	from, to := egress, ingress
	if k.address.IsValid() {
		i := 0
		if k.address.Is6() {
			i = 1
		}
		from, to = egressOf[i], ingressOf[i]
	}
	element := append(nft.Name(k.iface), k.address.AsSlice()...)
	jump := func(d direction) []nftables.SetElement {
		return []nftables.SetElement{{Key: element, VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: portChain(d, k)}}}
	}
	return errors.Join(f(from, jump(out)), f(to, jump(in)))
}

// A port receives so many ICMP errors per second that no rule allows, such as that a packet
// was too big: they may come from every router.
const errorRate = 100

func (t *Table) portRules(p Port, d direction, isolated *Direction) [][]expr.Any {
	k := p.key()
	learn := nft.Jump(flowChain("learn", d, k))
	rules := [][]expr.Any{nft.Jump("tiny"), nft.Jump("always"), nft.Jump(flowChain("known", d, k))}
	if isolated == nil { // its connections stay when it is isolated
		return append(rules, learn, nft.Accept())
	}
	rules = append(rules, p.neighbours(d)...)
	for _, r := range isolated.Allow {
		rules = append(rules, t.allow(r, d, learn)...)
	}
	if d.name == in.name {
		rules = append(rules,
			nft.Rule(families[0].is, icmp, nft.Is(icmpType, 3), nft.Within(errorRate, errorRate), nft.Accept()), // unreachable
			nft.Rule(families[0].is, icmp, nft.Between(icmpType, []byte{11}, []byte{12}), nft.Within(errorRate, errorRate), nft.Accept()),
			nft.Rule(families[1].is, icmpv6, nft.Between(icmpType, []byte{1}, []byte{4}), nft.Within(errorRate, errorRate), nft.Accept()),
		)
	}
	return append(rules, drop(d.name))
}

// neighbours accepts neighbour discovery between addresses of the link that are not link-local. A router would
// pass on what is sent to other addresses, with any content.
func (p Port) neighbours(d direction) (rules [][]expr.Any) {
	if d.name == in.name {
		return [][]expr.Any{nft.Rule(neighbour, nft.Accept())} // no router has passed it on
	}
	for _, l := range p.Link {
		if l.Addr().Is6() {
			mask, _ := netip.AddrFrom16([16]byte(slices.Repeat([]byte{0xff}, 16))).Prefix(l.Bits())
			rules = append(rules, nft.Rule(neighbour, nft.Masked(families[1].destination, mask.Addr().AsSlice(), l.Masked().Addr().AsSlice()), nft.Accept()))
		}
	}
	return rules
}

// allow returns the rules that do something with a packet that a Rule matches.
func (t *Table) allow(r Rule, d direction, do []expr.Any) (rules [][]expr.Any) {
	for _, f := range families {
		name, peers := peerSet(t.names, f, r)
		if name != "" {
			rules = append(rules, r.to(nft.Rule(f.is, nft.In(t.peers[name], d.remote(f))), do)...)
			continue
		}
		for _, p := range peers {
			rules = append(rules, r.to(nft.Rule(f.is, among(d.remote(f), p)), do)...)
		}
	}
	return rules
}

// to returns the rules for packets from the peers of a Rule.
func (r Rule) to(from, do []expr.Any) (rules [][]expr.Any) {
	if len(r.Services) == 0 {
		return [][]expr.Any{nft.Rule(from, do)}
	}
	for _, s := range r.Services {
		rules = append(rules, nft.Rule(from, s.match(), do))
	}
	return rules
}

// among holds when an address is in a range.
func among(address nft.Field, r iprange.Range) []expr.Any {
	switch first, last := r.First.AsSlice(), r.Last.AsSlice(); {
	case r.All():
		return nil
	case r.First == r.Last:
		return nft.Is(address, first...)
	default:
		return nft.Between(address, first, last)
	}
}

func (s Service) match() []expr.Any {
	first, last := binaryutil.BigEndian.PutUint16(s.First), binaryutil.BigEndian.PutUint16(s.Last)
	switch {
	case s.First == s.Last:
		return nft.Rule(nft.Payload(s.Protocol), nft.Is(destinationPort, first...))
	case s.First == 0 && s.Last == 65535:
		return nft.Payload(s.Protocol)
	}
	return nft.Rule(nft.Payload(s.Protocol), nft.Between(destinationPort, first, last))
}

// Drops returns how many packets the filter has dropped since it was first made, by reason.
func (t *Table) Drops() map[string]uint64 {
	drops := map[string]uint64{}
	for name, c := range t.counts() {
		drops[strings.TrimPrefix(name, counterPrefix)] = c.Packets
	}
	return drops
}

// counts returns the counters in the kernel by name, as far as they can be read.
func (t *Table) counts() map[string]nftables.CounterObj {
	c, err := t.conn.New()
	if err != nil {
		return nil
	}
	objects, _ := c.GetObjects(table)
	counts := map[string]nftables.CounterObj{}
	for _, o := range objects {
		if counter, ok := o.(*nftables.CounterObj); ok {
			counts[counter.Name] = *counter
		}
	}
	return counts
}
