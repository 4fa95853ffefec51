package isolation

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"

	"unnest/internal/hostapi/iprange"
	"unnest/internal/netdev/nft"
)

// peerSet returns the peers of a family, and the name of their set, which says what it has,
// so that ports with the same peers share it. "": no set is needed.
func peerSet(f family, all []iprange.Range) (name string, peers []iprange.Range) {
	for _, r := range all {
		if r.First.BitLen() == f.bits {
			peers = append(peers, r)
		}
	}
	if len(peers) == 0 || peers[0].All() {
		return "", peers
	}
	sum := iprange.Sum(peers)
	return fmt.Sprintf("peers%d-%x", f.version, sum[:16]), peers
}

// peerSets returns the peers of a port's rules by the names of their sets.
func (p Port) peerSets() map[string][]iprange.Range {
	wanted := map[string][]iprange.Range{}
	for _, d := range []*Direction{p.Ingress, p.Egress} {
		if d == nil {
			continue
		}
		for _, r := range d.Allow {
			for _, f := range families {
				if name, peers := peerSet(f, r.Peers); name != "" {
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
		for name, peers := range p.peerSets() {
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
const prepared = 2000

// Prepare makes the large sets of peers that ports need, before Set, in small transactions
// between which it calls between, and other changes pass. Until release, which deletes those that no port uses, they stay.
func (t *Table) Prepare(between func(), ports ...Port) (release func() error, err error) {
	var names []string
	release = func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		unused := slices.DeleteFunc(names, func(name string) bool { return t.peers[name] == nil || t.users[name] > 0 })
		if len(unused) == 0 {
			return nil
		}
		return t.transact(func(c *nftables.Conn) error {
			t.deletePeers(c, unused)
			return nil
		})
	}
	for _, p := range ports {
		for name, peers := range p.peerSets() {
			if len(peers) <= prepared {
				continue
			}
			names = append(names, name)
			if err := t.prepare(between, name, peers); err != nil {
				return release, fmt.Errorf("set packet filter %s: %w", table.Name, err)
			}
		}
	}
	return release, nil
}

func (t *Table) prepare(between func(), name string, peers []iprange.Range) error {
	var set *nftables.Set
	left := len(peers)
	for chunk := range slices.Chunk(peers, prepared) {
		between()
		done, err := func() (done bool, err error) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.peers[name] != set || set != nil && !t.partial[name] {
				return true, nil // the set is there, a port has needed all of it, or the table was rebuilt
			}
			err = t.transact(func(c *nftables.Conn) error {
				if set == nil {
					if err := t.addSet(c, name, peers); err != nil {
						return err
					}
					set = t.peers[name]
					t.partial[name] = true
				}
				return nft.Change(c.SetAddElements, set, intervals(chunk))
			})
			if left -= len(chunk); left == 0 {
				delete(t.partial, name)
			}
			return false, err
		}()
		if done || err != nil {
			return err
		}
	}
	return nil
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
