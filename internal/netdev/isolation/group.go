package isolation

import (
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

// How long a connection is known after its latest packet.
const (
	tcpTime     = time.Hour
	openingTime = time.Minute // with a SYN only
	closingTime = time.Minute // after a FIN or RST
	otherTime   = 3 * time.Minute
)

// How many connections a group has of a protocol and family. An entry takes less than 200
// bytes.
const tcpSize, otherSize = 1 << 18, 1 << 16

// group has the sets of connections of some ports: for each family those of TCP, UDP and
// SCTP by ports, and pairs of addresses for other protocols and for fragments, which have
// no ports.
type group struct {
	name  string
	known [2]flowSets
}

type flowSets struct {
	tcp, closing, udp, sctp, pairs *nftables.Set
}

func (s flowSets) all() []*nftables.Set {
	return []*nftables.Set{s.tcp, s.closing, s.udp, s.sctp, s.pairs}
}

func (g *group) sets() []*nftables.Set { return append(g.known[0].all(), g.known[1].all()...) }

// group returns the group of a name, which it makes if necessary. "" has none.
func (t *Table) group(name string) *group {
	if g := t.groups[name]; g != nil || name == "" {
		return g
	}
	g := &group{name: name}
	for i, f := range families {
		set := func(kind string, size uint32, timeout time.Duration, key ...nftables.SetDatatype) *nftables.Set {
			s := nft.NewSet(t.id(), table, fmt.Sprintf("%s%d-%s", kind, f.version, name), append([]nftables.SetDatatype{nftables.TypeIFName, f.kind, f.kind}, key...)...)
			s.Dynamic, s.Size, s.HasTimeout, s.Timeout = true, size, true, timeout
			return s
		}
		port := nftables.TypeInetService
		g.known[i] = flowSets{
			tcp: set("tcp", tcpSize, tcpTime, port, port), closing: set("closing", tcpSize, closingTime, port, port),
			udp: set("udp", otherSize, otherTime, port, port), sctp: set("sctp", otherSize, otherTime, port, port), pairs: set("pairs", otherSize, otherTime, nftables.TypeInetProto),
		}
	}
	t.groups[name] = g
	return g
}

// renumbered returns the set of a name as the present transaction has it.
func (t *Table) renumbered(s *nftables.Set) *nftables.Set {
	for _, g := range t.groups {
		for _, now := range g.sets() {
			if now.Name == s.Name {
				return now
			}
		}
	}
	return s
}

func (t *Table) id() uint32 {
	t.lastID++
	return t.lastID
}

// addGroups adds the groups of ports that the kernel does not have yet.
func (t *Table) addGroups(c *nftables.Conn, ports map[key]Port) error {
	var errs []error
	for _, p := range ports {
		if t.groups[p.Group] != nil || p.Group == "" {
			continue
		}
		g := t.group(p.Group)
		for _, s := range g.sets() {
			errs = append(errs, c.AddSet(s, nil))
		}
		for _, d := range []direction{out, in} {
			addChain(c, g.chain("passed", d), g.passed(d))
			addChain(c, g.chain("known", d), g.knownRules(d))
			addChain(c, g.chain("learn", d), g.learn(d))
		}
	}
	return errors.Join(errs...)
}

func (g *group) chain(what string, d direction) string { return what + "-" + d.name + "-" + g.name }

// pass is what accepts a packet.
func (g *group) pass(d direction) []expr.Any { return nft.Goto(g.chain("passed", d)) }

// passed accepts packets. A first fragment lets the others pass.
func (g *group) passed(d direction) (rules [][]expr.Any) {
	for i, f := range families {
		rules = append(rules, nft.Rule(f.is, f.firstFragment, nft.Update(g.known[i].pairs, nil, d.pair(f)...)))
	}
	return append(rules, nft.Accept())
}

// knownRules accept packets of connections that are known, unless they begin one.
func (g *group) knownRules(d direction) (rules [][]expr.Any) {
	add := func(parts ...[]expr.Any) { rules = append(rules, nft.Rule(parts...)) }
	add(isTCP, begins, nft.Return())
	for i, f := range families {
		s, key, pair := g.known[i], d.flow(f), d.pair(f)
		add(f.is, isTCP, nft.In(s.closing, key...), nft.Update(s.closing, nil, key...), g.pass(d))
		add(f.is, isTCP, ends, nft.In(s.tcp, key...), nft.UpdateFor(s.tcp, closingTime, key...), nft.Update(s.closing, nil, key...), g.pass(d))
		add(f.is, isTCP, nft.In(s.tcp, key...), nft.Update(s.tcp, nil, key...), g.pass(d))
		add(f.is, isUDP, nft.In(s.udp, key...), nft.Update(s.udp, nil, key...), g.pass(d))
		add(f.is, isSCTP, nft.In(s.sctp, key...), nft.Update(s.sctp, nil, key...), g.pass(d))
		add(f.is, f.laterFragment, nft.In(s.pairs, pair...), nft.Accept())
		add(f.is, notTCP, notUDP, notSCTP, nft.In(s.pairs, pair...), nft.Update(s.pairs, nil, pair...), nft.Accept())
	}
	return rules
}

// learn accepts a packet that the rules allow, and makes its connection known. It returns
// if a set is full.
func (g *group) learn(d direction) (rules [][]expr.Any) {
	add := func(parts ...[]expr.Any) { rules = append(rules, nft.Rule(parts...)) }
	for i, f := range families {
		s, key := g.known[i], d.flow(f)
		add(f.is, isTCP, begins, nft.Delete(s.closing, key...))
		add(f.is, isTCP, begins, nft.UpdateFor(s.tcp, openingTime, key...), g.pass(d))
		add(f.is, isTCP, nft.Update(s.tcp, nil, key...), g.pass(d))
		add(f.is, isUDP, nft.Update(s.udp, nil, key...), g.pass(d))
		add(f.is, isSCTP, nft.Update(s.sctp, nil, key...), g.pass(d))
		add(f.is, notTCP, notUDP, notSCTP, nft.Update(s.pairs, nil, d.pair(f)...), nft.Accept())
	}
	return rules
}

// flows returns the kernel's elements of the groups' sets, of the ports that match.
func (t *Table) flows(match func(key) bool) (map[*nftables.Set][]nftables.SetElement, error) {
	c, err := t.conn.New()
	if err != nil {
		return nil, err
	}
	found := map[*nftables.Set][]nftables.SetElement{}
	for _, g := range t.groups {
		for _, s := range g.sets() {
			elements, err := c.GetSetElements(s)
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return nil, fmt.Errorf("list set %s of packet filter: %w", s.Name, err)
			}
			for _, e := range slices.DeleteFunc(elements, func(e nftables.SetElement) bool { return len(e.Key) != int(s.KeyType.Bytes) }) {
				if isOf(e.Key, s.KeyType, match) {
					found[s] = append(found[s], nftables.SetElement{Key: e.Key, Timeout: max(e.Expires, time.Second)})
				}
			}
		}
	}
	return found, nil
}

// isOf reports whether a port matches that has a connection, or an address of whose interface
// has.
func isOf(flow []byte, kind nftables.SetDatatype, match func(key) bool) bool {
	name, _, _ := strings.Cut(string(flow[:unix.IFNAMSIZ]), "\x00")
	length := 16
	if kind.Bytes < unix.IFNAMSIZ+2*16 {
		length = 4
	}
	local, _ := netip.AddrFromSlice(flow[unix.IFNAMSIZ : unix.IFNAMSIZ+length])
	return match(key{iface: name}) || match(key{name, local})
}
