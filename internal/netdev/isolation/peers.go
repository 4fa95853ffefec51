package isolation

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/netdev/nft"
)

// ranges identifies peers, which do not change.
type ranges struct {
	first *iprange.Range
	count int
}

// few is the most rules of the packet filter by which a Rule matches its ranges one by one, without a set: for each set that a rule names, the
// kernel looks through all sets.
const few = 4

// Parts returns how many rules of the packet filter a Rule is whose peers are n ranges of a family, and whether they need a set of these.
func (r Rule) Parts(n int) (rules int, set bool) {
	services := max(1, len(r.Services))
	if set = n > 1 && n*services > few; set {
		n = 1
	}
	return n * services, set
}

// peerSet returns the peers of a rule of a family, and the name of their set, which says what it has,
// so that ports with the same peers share it. "": no set is needed. Peers whose name is known are not summed.
func peerSet(known map[ranges]string, f family, r Rule) (name string, peers []iprange.Range) {
	peers, six := iprange.Families(r.Peers)
	if f.version == 6 {
		peers = six
	}
	if _, set := r.Parts(len(peers)); !set {
		return "", peers
	}
	if name = known[ranges{&peers[0], len(peers)}]; name == "" {
		sum := iprange.Sum(peers)
		name = fmt.Sprintf("peers%d-%x", f.version, sum[:16])
	}
	return name, peers
}

// peerSets returns the peers of a port's rules by the names of their sets.
func (p Port) peerSets(known map[ranges]string) map[string][]iprange.Range {
	wanted := map[string][]iprange.Range{}
	for _, d := range []*Direction{p.Ingress, p.Egress} {
		if d == nil {
			continue
		}
		for _, r := range d.Allow {
			for _, f := range families {
				if name, peers := peerSet(known, f, r); name != "" {
					wanted[name] = peers
				}
			}
		}
	}
	return wanted
}

// addPeers adds the sets of peers of ports that the kernel does not have yet, or not as a whole. It returns
// those that the ports have used.
func (t *Table) addPeers(c *nftables.Conn, ports map[key]Port, changed []key) (former []string, err error) {
	var errs []error
	for _, k := range changed {
		for _, name := range t.uses[k] {
			t.users[name]--
		}
		former = append(former, t.uses[k]...)
		delete(t.uses, k)
		p, has := ports[k]
		if !has {
			continue
		}
		for name, peers := range p.peerSets(t.names) {
			t.uses[k] = append(t.uses[k], name)
			t.users[name]++
			if t.peers[name] != nil && !t.partial[name] {
				continue
			}
			if t.peers[name] == nil {
				errs = append(errs, t.addSet(c, name, peers))
			}
			delete(t.partial, name)
			errs = append(errs, nft.Change(c.SetAddElements, t.peers[name], intervals(peers))) // the kernel takes those twice that are there
		}
	}
	return former, errors.Join(errs...)
}

// addSet adds a set without elements.
func (t *Table) addSet(c *nftables.Conn, name string, peers []iprange.Range) error {
	f := families[0]
	if peers[0].First.Is6() {
		f = families[1]
	}
	s := nft.NewSet(t.id(), table, name, f.kind)
	s.Interval = true
	t.peers[name] = s
	return c.AddSet(s, nil)
}

// prepared is the number of ranges in a transaction of Prepare.
const prepared = 500

// piece is a part of a set of peers.
type piece struct {
	name        string
	peers       []iprange.Range // of the whole set
	part        []iprange.Range
	first, last bool
}

// Prepare makes the sets of peers that ports need, if they are many or large, before Set, in small transactions
// between which it calls between, and other changes pass. Until release, which deletes those that no port uses, they stay.
func (t *Table) Prepare(between func(), ports ...Port) (release func() error, err error) {
	sets, names, count, known := map[string][]iprange.Range{}, map[ranges]string{}, 0, t.known()
	for _, p := range ports {
		for name, peers := range p.peerSets(known) {
			sets[name] = peers
			if r := (ranges{&peers[0], len(peers)}); known[r] == "" {
				names[r] = name
			}
		}
	}
	t.dropKnown(sets, names)
	var pieces []piece
	for name, peers := range sets {
		count += len(peers)
		all := slices.Collect(slices.Chunk(peers, prepared))
		for i, part := range all {
			pieces = append(pieces, piece{name, peers, part, i == 0, i == len(all)-1})
		}
	}
	begun := map[string]*nftables.Set{}
	release = func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		maps.DeleteFunc(t.names, func(r ranges, _ string) bool { return names[r] != "" })
		var unused []string
		for name := range begun {
			if t.peers[name] != nil && t.users[name] == 0 {
				unused = append(unused, name)
			}
		}
		if len(unused) == 0 {
			return nil
		}
		return t.transact(func(c *nftables.Conn) error {
			t.deletePeers(c, unused)
			return nil
		})
	}
	if count <= prepared {
		return release, nil
	}
	for len(pieces) > 0 {
		n, size := 0, 0
		for n < len(pieces) && (n == 0 || size+len(pieces[n].part) <= prepared) {
			size += len(pieces[n].part)
			n++
		}
		between()
		if err := t.add(begun, pieces[:n]); err != nil {
			return release, fmt.Errorf("set packet filter %s: %w", table.Name, err)
		}
		pieces = pieces[n:]
	}
	return release, nil
}

// known returns the names of sets that callers of Prepare have.
func (t *Table) known() map[ranges]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.names)
}

// dropKnown drops the sets that the kernel has as a whole, and keeps the names of all.
func (t *Table) dropKnown(sets map[string][]iprange.Range, names map[ranges]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil {
		t.names = map[ranges]string{}
	}
	maps.Copy(t.names, names)
	for name := range sets {
		if t.peers[name] != nil && !t.partial[name] {
			delete(sets, name)
		}
	}
}

// add adds pieces of sets, as far as nobody else has completed or removed them since this caller's first piece.
func (t *Table) add(begun map[string]*nftables.Set, pieces []piece) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.transact(func(c *nftables.Conn) error {
		var errs []error
		for _, p := range pieces {
			if p.first && t.peers[p.name] == nil {
				errs = append(errs, t.addSet(c, p.name, p.peers))
				t.partial[p.name] = true
			}
			if p.first { // or somebody else has begun it, and this caller does not wait for the end
				begun[p.name] = t.peers[p.name]
			}
			if t.peers[p.name] == nil || t.peers[p.name] != begun[p.name] || !t.partial[p.name] {
				continue // the set is there, or the table was rebuilt
			}
			errs = append(errs, nft.Change(c.SetAddElements, t.peers[p.name], intervals(p.part)))
			if p.last {
				delete(t.partial, p.name)
			}
		}
		return errors.Join(errs...)
	})
}

// transact changes the table, or, if that fails, makes it again as it should be.
func (t *Table) transact(f func(*nftables.Conn) error) error {
	err := t.conn.Transact(func(c *nftables.Conn) error { return errors.Join(t.owner.Mark(c), f(c)) })
	if err != nil {
		return errors.Join(err, t.rebuild(t.ports))
	}
	return nil
}

// deletePeers deletes those of some sets of peers that no port needs.
func (t *Table) deletePeers(c *nftables.Conn, former []string) {
	for _, name := range former {
		if s := t.peers[name]; s != nil && t.users[name] == 0 {
			c.DelSet(s)
			delete(t.peers, name)
			delete(t.partial, name)
			delete(t.users, name)
		}
	}
}

// intervals returns the elements of a set of ranges: the first address of each, and the
// address behind its last one unless there is none.
func intervals(peers []iprange.Range) (elements []nftables.SetElement) {
	elements = slices.Grow(elements, 2*len(peers))
	for _, r := range peers {
		elements = append(elements, nftables.SetElement{Key: r.First.AsSlice()})
		if end := r.Last.Next(); end.IsValid() {
			elements = append(elements, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	return elements
}
