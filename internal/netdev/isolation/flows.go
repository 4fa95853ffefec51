package isolation

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"unnest.io/unnest/internal/netdev/nft"
)

// How long a connection is known. One of TCP is opening until the other end has answered without
// SYN, and closing after a FIN or RST of either. UDP and SCTP are known for onceTime after one datagram of
// the end that has begun, and for knownTime after each further one; answers do not count. So whoever forges
// packets takes an entry for a minute at most.
const (
	openTime    = time.Hour // after an answer
	openingTime = time.Minute
	closingTime = time.Minute
	onceTime    = 30 * time.Second
	knownTime   = 3 * time.Minute
)

// How many connections of a family a port may have begun, and as many that others have. An
// entry takes about 100 bytes, so the sets of a port take 45 MB at most.
const (
	flowSize    = 1 << 15
	closingSize = 1<<16 - 1
	pairSize    = 1 << 12
)

// flows has the sets of the connections of a port, for each family. No other port uses them: a port
// that is flooded, or that floods, fills its own. Connections that the port has begun have
// sets of their own in each state, and for fragments, so others cannot fill them.
type flows []flowSets

// flowSets are by the direction of a connection's first packet: egress, ingress. TCP is closing after a FIN or RST, and pairs
// are of addresses: for protocols without ports, and for fragments.
type flowSets struct {
	family
	begun, closing, pairs [2]*nftables.Set
}

func (f flows) all() (all []*nftables.Set) {
	for _, s := range f {
		all = slices.Concat(all, s.begun[:], s.closing[:], s.pairs[:])
	}
	return all
}

// has reports whether a port can have connections of a family. If nothing is known of its addresses, it can.
func (p Port) has(f family) bool {
	if p.Address.IsValid() {
		return p.Address.BitLen() == f.bits
	}
	return len(p.Link) == 0 || slices.ContainsFunc(p.Link, func(l netip.Prefix) bool { return l.Addr().BitLen() == f.bits })
}

// sameFamilies reports whether two ports can have connections of the same families.
func sameFamilies(p, q Port) bool {
	return !slices.ContainsFunc(families, func(f family) bool { return p.has(f) != q.has(f) })
}

// flows returns the sets of a port. The kernel looks through all sets for each that a rule names, which
// takes most of the time of a large transaction. So there are none for a family that the port does not have.
func (t *Table) flows(p Port) (all flows) {
	for _, f := range families {
		if !p.has(f) {
			continue
		}
		set := func(kind string, size uint32, timeout time.Duration, parts ...nftables.SetDatatype) *nftables.Set {
			parts = append([]nftables.SetDatatype{f.kind, f.kind, nftables.TypeInetProto}, parts...)
			s := nft.NewSet(t.id(), table, fmt.Sprintf("%s%d-%s", kind, f.version, p.key()), parts...)
			s.Dynamic, s.Size, s.HasTimeout, s.Timeout = true, size, true, timeout
			return s
		}
		port := nftables.TypeInetService
		sets := flowSets{family: f}
		for j, d := range directions {
			sets.begun[j] = set("begun-"+d.name, flowSize, knownTime, port, port)
			sets.closing[j] = set("closing-"+d.name, closingSize, closingTime, port, port)
			sets.pairs[j] = set("pairs-"+d.name, pairSize, knownTime)
		}
		all = append(all, sets)
	}
	return all
}

func (t *Table) id() uint32 {
	t.lastID++
	return t.lastID
}

// addFlows adds the sets of a port, as far as the kernel does not have them, and the chains
// that use them.
func (t *Table) addFlows(c *nftables.Conn, p Port) error {
	var errs []error
	k, sets := p.key(), t.flows(p)
	for _, s := range sets.all() {
		// With a size the kernel would allocate the whole hash table now. So the set gets its size when it has
		// rules. Before Linux 6.5 the kernel ignores that, and the set keeps its default of 65,535.
		unsized := *s
		unsized.Size = 0
		errs = append(errs, c.AddSet(&unsized, nil))
	}
	for _, d := range directions {
		for _, by := range directions {
			addChain(c, byChain("passed", d, by, k), sets.passed(d, by))
			addChain(c, byChain("seen", d, by, k), sets.seen(d, by, k))
		}
		addChain(c, flowChain("known", d, k), sets.known(d, k))
		addChain(c, flowChain("learn", d, k), sets.learn(d, k))
	}
	for _, s := range sets.all() {
		errs = append(errs, c.AddSet(s, nil))
	}
	return errors.Join(errs...)
}

func flowChain(what string, d direction, k key) string   { return what + "-" + portChain(d, k) }
func byChain(what string, d, by direction, k key) string { return flowChain(what+"-"+by.name, d, k) }

// passed accepts packets of connections that a direction has begun. A first fragment lets the others pass.
func (s flows) passed(d, by direction) (rules [][]expr.Any) {
	for _, s := range s {
		rules = append(rules, nft.Rule(s.is, s.fragments.First, nft.Update(s.pairs[by.index], nil, d.pair(s.family)...)))
	}
	return append(rules, nft.Accept())
}

// known accepts packets of connections that are known, unless they begin one.
func (s flows) known(d direction, k key) (rules [][]expr.Any) {
	add := func(parts ...[]expr.Any) { rules = append(rules, nft.Rule(parts...)) }
	add(isTCP, begins, nft.Return())
	for _, s := range s {
		f, flow, pair := s.family, d.flow(s.family), d.pair(s.family)
		for _, by := range directions {
			begun, closing, pairs := s.begun[by.index], s.closing[by.index], s.pairs[by.index]
			add(f.is, isTCP, nft.In(closing, flow...), nft.Update(closing, nil, flow...), nft.Goto(byChain("passed", d, by, k)))
			add(f.is, nft.In(begun, flow...), nft.Goto(byChain("seen", d, by, k)))
			add(f.is, f.fragments.Later, nft.In(pairs, pair...), nft.Accept())
			add(f.is, notTCP, notUDP, notSCTP, nft.In(pairs, pair...), nft.Update(pairs, nil, pair...), nft.Accept())
		}
	}
	return rules
}

// seen accepts packets of connections that a direction has begun and that are not closing.
func (s flows) seen(d, by direction, k key) (rules [][]expr.Any) {
	pass := nft.Goto(byChain("passed", d, by, k))
	for _, s := range s {
		flow, begun := d.flow(s.family), s.begun[by.index]
		lasts := nft.Rule(notTCP, nft.Update(begun, nil, flow...))
		if by.index != d.index {
			lasts = nft.Rule(isTCP, noSYN, nft.UpdateFor(begun, openTime, flow...))
		}
		rules = append(rules, nft.Rule(s.is, isTCP, ends, nft.Update(s.closing[by.index], nil, flow...), nft.Delete(begun, flow...), pass), nft.Rule(s.is, lasts))
	}
	return append(rules, pass)
}

// learn accepts a packet that the rules allow, and makes its connection known. It returns
// if a set is full.
func (s flows) learn(d direction, k key) (rules [][]expr.Any) {
	add := func(parts ...[]expr.Any) { rules = append(rules, nft.Rule(parts...)) }
	pass := nft.Goto(byChain("passed", d, d, k))
	for _, s := range s {
		f, flow, begun := s.family, d.flow(s.family), s.begun[d.index]
		add(f.is, isTCP, begins, nft.Delete(s.closing[0], flow...), nft.Delete(s.closing[1], flow...))
		add(f.is, notTCP, notUDP, notSCTP, nft.Update(s.pairs[d.index], nil, d.pair(f)...), nft.Accept())
		add(f.is, notTCP, notUDP, notSCTP, nft.Return())
		add(f.is, isTCP, nft.UpdateFor(begun, openingTime, flow...), pass)
		add(f.is, notTCP, nft.UpdateFor(begun, onceTime, flow...), pass)
	}
	return rules
}
