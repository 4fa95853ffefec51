// Package isolation limits the connections of ports on bridges: with which addresses, over
// which protocols and ports, and who may begin them. Answers pass.
//
// The filter is an nftables table of the bridge family. Each port has a chain for each
// direction. The kernel's connection tracking for bridges is an option that not every
// kernel has, and its table is the host's; so rules keep the connections in sets of their
// own, one group of sets for the ports of a tenant, which no other tenant can fill. A TCP
// connection is known until it has been silent for an hour, other connections for three
// minutes. The kernel keeps all when the daemon ends.
//
// These pass always: ARP, neighbour discovery, group membership, requests for addresses
// by DHCP and their answers (package antispoof limits what a guest may say by them), and
// to an isolated port a few ICMP errors per second.
//
// Which port may have which connections does not belong here.
package isolation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"

	"unnest/internal/hostapi/iprange"
	"unnest/internal/netdev/nft"
)

// Port says which connections one interface may have.
type Port struct {
	Interface string // in the table's network namespace; need not exist
	// Address, if it is valid, limits the port to what the interface sends from it and receives
	// for it.
	Address netip.Addr
	Group   string // whose sets keep its connections: 1 to 63 of a-z, 0-9 and inner hyphens
	// Ingress are the connections that others may begin with the port, Egress those that
	// the port may begin. nil: every one.
	Ingress, Egress *Direction
}

// key identifies a port.
type key struct {
	iface   string
	address netip.Addr
}

func (p Port) key() key { return key{p.Interface, p.Address} }

// Direction is the isolation of a port in one direction.
type Direction struct {
	Allow []Rule // connections that match one of them
}

// Rule matches connections with one of the peers over one of the services.
type Rule struct {
	Peers    []iprange.Range // as iprange.Union returns them
	Services []Service       // none: every protocol and port
}

// Service is a range of ports of the connection's destination.
type Service struct {
	Protocol    byte // unix.IPPROTO_TCP, UDP or SCTP
	First, Last uint16
}

// Table is the filter in one network namespace. It is safe for concurrent use, but only
// one Table may change a namespace's filter.
type Table struct {
	ns    netns.NsHandle
	owner *nft.Owner

	mu     sync.Mutex
	conn   *nft.Connection
	ports  map[key]Port
	groups map[string]*group
	peers  map[string]*nftables.Set // in use, by name
	uses   map[key][]string         // the names of the sets of peers that each port uses
	users  map[string]int           // the number of ports that use a set
	lastID uint32                   // of a set
}

// Open makes the filter for these ports in the calling thread's network namespace, in place
// of one that an earlier process has left there. Connections that it knew stay known.
// Later calls work on that namespace from any thread.
func Open(ports []Port) (*Table, error) {
	ns, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	t := &Table{ns: ns, conn: nft.Connect(ns), owner: nft.NewOwner(ownerID, table)}
	all := map[key]Port{}
	for _, p := range ports {
		all[p.key()] = p
	}
	if err := t.rebuild(all); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close closes the Table. The filter stays.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.conn.Close(), t.ns.Close())
}

// Set filters ports as given, atomically, in place of an earlier Set.
func (t *Table) Set(ports ...Port) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(t.ports)
	var changed []key
	for _, p := range ports {
		next[p.key()] = p
		changed = append(changed, p.key())
	}
	return t.change(next, changed)
}

// Remove ends the filter of ports, of which it needs interface and address: they may have
// every connection. It forgets theirs.
func (t *Table) Remove(ports ...Port) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(t.ports)
	var changed []key
	for _, p := range ports {
		if _, ok := next[p.key()]; ok {
			delete(next, p.key())
			changed = append(changed, p.key())
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return t.change(next, changed)
}

// change changes some ports in the kernel. If that fails, because someone else has changed
// the table, it rebuilds it.
func (t *Table) change(next map[key]Port, changed []key) error {
	stale, err := t.stale(next, changed)
	if err != nil {
		return err
	}
	err = t.conn.Transact(func(c *nftables.Conn) error {
		err := errors.Join(t.owner.Mark(c), t.addGroups(c, next))
		former, peersErr := t.addPeers(c, next, changed)
		err = errors.Join(err, peersErr)
		for _, k := range changed {
			_, had := t.ports[k]
			p, has := next[k]
			if had && !has {
				err = errors.Join(err, removePort(c, k))
			}
			if has {
				err = errors.Join(err, t.addPort(c, p, !had))
			}
		}
		for set, elements := range stale {
			err = errors.Join(err, nft.Change(c.SetDeleteElements, set, elements))
		}
		t.deletePeers(c, former)
		return err
	})
	if err != nil {
		if err = t.rebuild(next); err != nil { // so that the next change does not fail, too
			return errors.Join(err, t.rebuild(t.ports))
		}
	}
	t.ports = next
	return nil
}

// stale returns the connections of ports that are removed.
func (t *Table) stale(next map[key]Port, changed []key) (map[*nftables.Set][]nftables.SetElement, error) {
	removed := slices.DeleteFunc(slices.Clone(changed), func(k key) bool { _, stays := next[k]; return stays })
	if len(removed) == 0 {
		return nil, nil
	}
	return t.flows(func(k key) bool { return slices.Contains(removed, k) })
}

// rebuild replaces the table in one transaction, whatever was there before, and keeps the
// connections and counts that it can read.
func (t *Table) rebuild(ports map[key]Port) error {
	counts := t.counts()
	t.groups, t.peers, t.uses, t.users, t.lastID = map[string]*group{}, map[string]*nftables.Set{}, map[key][]string{}, map[string]int{}, firstID
	for _, p := range ports {
		t.group(p.Group)
	}
	known, err := t.flows(func(k key) bool { _, has := ports[k]; return has })
	if err != nil {
		known = nil // of sets that are not ours: to filter matters more
	}
	t.groups = map[string]*group{}
	err = t.conn.Transact(func(c *nftables.Conn) error {
		err := errors.Join(t.owner.Replace(c), addBase(c, counts), t.addGroups(c, ports))
		_, peersErr := t.addPeers(c, ports, slices.Collect(maps.Keys(ports)))
		err = errors.Join(err, peersErr)
		for _, p := range ports {
			err = errors.Join(err, t.addPort(c, p, true))
		}
		for set, elements := range known {
			err = errors.Join(err, nft.Change(c.SetAddElements, t.renumbered(set), elements))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("set packet filter %s: %w", table.Name, err)
	}
	t.ports = ports
	return nil
}

// Watch restores the filter within a second when others have changed it, until ctx
// ends. It calls restored after each time. Connections that others have removed are known
// again once a packet passes that may begin one.
func (t *Table) Watch(ctx context.Context, restored func(by nft.Generation, err error)) error {
	return t.owner.Watch(ctx, t.ns, func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.rebuild(t.ports)
	}, restored)
}

// Drop deletes the filter of an earlier process from the calling thread's network
// namespace.
func Drop() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	c.AddTable(table) // else there may be nothing to delete
	c.DelTable(table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("delete packet filter %s: %w", table.Name, err)
	}
	return nil
}
