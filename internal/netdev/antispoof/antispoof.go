// Package antispoof limits what guests may send through the host's ends of their
// NICs: frames with the port's own MAC and addresses, and no frames of routers, DHCP
// servers or switches. It filters on the bridge, which the pods of a tenant share.
//
// The filter is an nftables table of the bridge family. Sets hold the ports and
// their addresses; the rules never change. The filter ignores interfaces that are
// not in the sets. The kernel keeps it when the daemon ends.
//
// A bridge learns the source of LLDP and spanning tree frames before any filter sees
// them. The operator has to turn that off (ip link set BRIDGE type bridge
// no_linklocal_learn 1; package bridge does so for its bridges) and, on a bridge
// with spanning tree, to set BPDU guard on guests' ports.
//
// Choosing the addresses of a port, and filtering between bridges (package bridge),
// do not belong here.
package antispoof

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
)

// Table is the filter in one network namespace. It is safe for concurrent use, but
// only one Table may change a namespace's filter.
type Table struct {
	ns    netns.NsHandle
	owner *nft.Owner

	mu     sync.Mutex
	conn   *nft.Connection
	ports  map[string]Port // in the kernel, by interface
	failed error           // why the kernel may differ from ports
}

// Open makes the filter in the calling thread's network namespace. It replaces
// whatever has the name of its tables: rules of an earlier version, or rules that
// someone has changed or restored. Ports in them stay guarded without a gap; a port
// without MAC may send nothing. Later calls work on that namespace from any thread.
func Open() (_ *Table, err error) {
	ns, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	t := &Table{ns: ns, conn: nft.Connect(ns), owner: nft.NewOwner(marks, tables...)}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	ports, err := t.Ports()
	if err != nil {
		return nil, err
	}
	all := map[string]Port{}
	for _, p := range ports {
		all[p.Interface] = p
	}
	return t, t.rebuild(all)
}

// Close closes the Table. The filter stays.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.conn.Close(), t.ns.Close())
}

// Set guards a port as given, atomically, in place of an earlier Set.
func (t *Table) Set(p Port) error {
	p, err := normal(p)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.replace(p.Interface, &p)
}

// Remove ends the guard of a port, if it has one: it may send anything.
func (t *Table) Remove(iface string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.ports[iface]; !ok {
		return nil
	}
	return t.replace(iface, nil)
}

// Reset guards exactly these ports, atomically.
func (t *Table) Reset(ports []Port) error {
	all := map[string]Port{}
	for _, p := range ports {
		p, err := normal(p)
		if err != nil {
			return err
		}
		all[p.Interface] = p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rebuild(all)
}

// replace changes one port in the kernel; nil removes it. If someone else has changed
// the table, replace rebuilds it.
func (t *Table) replace(iface string, p *Port) error {
	var stale, wanted []element
	if old, ok := t.ports[iface]; ok {
		stale = old.elements()
	}
	next := maps.Clone(t.ports)
	delete(next, iface)
	if p != nil {
		next[iface] = *p
		wanted = p.elements()
		stale = slices.DeleteFunc(stale, func(e element) bool { return slices.Contains(wanted, e) })
	}
	err := t.conn.Transact(func(c *nftables.Conn) error {
		err := errors.Join(t.owner.Mark(c), change(c.SetDeleteElements, stale))
		if p != nil {
			addChains(c, *p)
		} else {
			deleteChains(c, iface)
		}
		return errors.Join(err, change(c.SetAddElements, wanted))
	})
	changed := []error{unix.ENOENT, unix.EEXIST, unix.EINVAL, unix.EOPNOTSUPP} // missing, or of another type
	if slices.ContainsFunc(changed, func(e error) bool { return errors.Is(err, e) }) {
		return t.rebuild(next)
	}
	if err != nil {
		return fmt.Errorf("change packet filter of %s: %w", iface, err)
	}
	t.ports = next
	return nil
}

// rebuild replaces the tables in one transaction, whatever was there before. The
// counters go on from their counts.
func (t *Table) rebuild(ports map[string]Port) error {
	counts, err := t.counts()
	if err != nil {
		counts = nil // of objects that are not ours: to filter matters more
	}
	var wanted []element
	for _, p := range ports {
		wanted = append(wanted, p.elements()...)
	}
	err = t.conn.Transact(func(c *nftables.Conn) error {
		err := errors.Join(t.owner.Replace(c), fillTables(c, counts))
		for _, p := range ports {
			addChains(c, p)
		}
		return errors.Join(err, change(c.SetAddElements, wanted))
	})
	if err != nil {
		return fmt.Errorf("set packet filter %s: %w", tableName, err)
	}
	t.ports, t.failed = ports, nil
	return nil
}

// Watch restores the filter within a second when others have changed it, until ctx
// ends. It calls restored after each time.
func (t *Table) Watch(ctx context.Context, restored func(by nft.Generation, err error)) error {
	err := t.owner.Watch(ctx, t.ns, func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.failed = t.rebuild(t.ports)
		return t.failed
	}, restored)
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.failed = err
	}
	return err
}
