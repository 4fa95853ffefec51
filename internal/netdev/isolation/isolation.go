// Package isolation limits the connections of ports on bridges: with which addresses, over
// which protocols and ports, and who may begin them. Answers pass.
//
// The filter is an nftables table of the bridge family. Each port has a chain for each
// direction. The kernel's connection tracking for bridges is an option that not every
// kernel has, and its table is the host's; so rules keep the connections in sets, of
// which each port has its own. A TCP connection is known until it has been silent for an
// hour, others for up to three minutes. If a port's set is full, the port has no new connections in an isolated
// direction; other ports do not notice. The kernel keeps all when the daemon ends.
//
// These pass always: ARP, neighbour discovery and group membership on the link, requests for addresses
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

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/netdev/nft"
)

// Port says which connections one interface may have.
type Port struct {
	Interface string // in the table's network namespace; need not exist
	// Address, if it is valid, limits the port to what the interface sends from it and receives
	// for it.
	Address netip.Addr
	// Link are the addresses of the interface, with the lengths of their network's prefixes: an isolated port may send neighbour
	// discovery to these. A port with addresses of one family only has no connections of the other in an isolated
	// direction. Connections are forgotten when the families change.
	Link []netip.Prefix
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

// String returns the key in hexadecimal digits, because nft does not read every character in names.
func (k key) String() string {
	if !k.address.IsValid() {
		return fmt.Sprintf("%x", k.iface)
	}
	return fmt.Sprintf("%x-%x", k.iface, k.address.AsSlice())
}

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

	mu      sync.Mutex
	conn    *nft.Connection
	ports   map[key]Port
	peers   map[string]*nftables.Set // in use, by name
	partial map[string]bool          // sets of peers to which Prepare still adds, by name
	uses    map[key][]string         // the names of the sets of peers that each port uses
	users   map[string]int           // the number of ports that use a set
	names   map[ranges]string        // of the sets of peers that callers of Prepare have
	lastID  uint32                   // of a set
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
	err := t.conn.Transact(func(c *nftables.Conn) error {
		former, peersErr := t.addPeers(c, next, changed)
		err := errors.Join(t.owner.Mark(c), peersErr)
		for _, k := range changed {
			old, had := t.ports[k]
			p, has := next[k]
			keeps := had && has && sameFamilies(old, p)
			if had && !keeps {
				err = errors.Join(err, t.removePort(c, old))
			}
			if has {
				err = errors.Join(err, t.addPort(c, p, !keeps))
			}
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

// rebuild replaces the table in one transaction, whatever was there before, except for the
// connections of these ports. If the sets of the connections are not ours, or others change the table
// at the same time, it replaces these too: to filter matters more.
func (t *Table) rebuild(ports map[key]Port) error {
	counts := t.counts()
	err := t.apply(ports, counts, func(c *nftables.Conn) error { return t.clear(c, ports) })
	if err != nil {
		err = t.apply(ports, counts, t.owner.Replace)
	}
	if err != nil {
		return fmt.Errorf("set packet filter %s: %w", table.Name, err)
	}
	t.ports = ports
	return nil
}

// clear removes what the table has, except for the connections of ports that stay. It reads no connections, however many there are.
func (t *Table) clear(c *nftables.Conn, ports map[key]Port) error {
	read, err := t.conn.New()
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, p := range ports {
		for _, s := range t.flows(p).all() {
			keep[s.Name] = true
		}
	}
	return t.owner.Clear(read, c, keep)
}

// apply fills the table after clear.
func (t *Table) apply(ports map[key]Port, counts map[string]nftables.CounterObj, clear func(*nftables.Conn) error) error {
	t.peers, t.partial, t.uses, t.users, t.lastID = map[string]*nftables.Set{}, map[string]bool{}, map[key][]string{}, map[string]int{}, firstID
	return t.conn.Transact(func(c *nftables.Conn) error {
		err := clear(c)
		_, peersErr := t.addPeers(c, ports, slices.Collect(maps.Keys(ports)))
		err = errors.Join(err, addBase(c, counts), peersErr)
		for _, p := range ports {
			err = errors.Join(err, t.addPort(c, p, true))
		}
		return err
	})
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
func Drop() error { return nft.DeleteTable(table) }
