// Package antispoof limits what the host's ends of the guests' NICs may send:
// frames with the port's own MAC and addresses, and nothing that is a router's,
// a DHCP server's or a switch's to send. A tenant's pods share one bridge, so that
// the bridge is where one pod is kept from speaking for another.
//
// The filter is an nftables table of the bridge family. Sets hold the ports and
// what is theirs; the rules never change. Interfaces that are not in the sets are
// not touched. The kernel keeps the table when the daemon ends.
//
// A bridge learns the source of LLDP frames, and of the spanning tree protocol's if
// it speaks that, before any filter sees them. It has to be told not to (ip link
// set BRIDGE type bridge no_linklocal_learn 1), as package bridge does with the
// bridges that it makes, and to have BPDU guard on guests' ports if it speaks it.
//
// Which port has which addresses is not decided here, nor who may reach whom
// beyond the bridge (package bridge).
package antispoof

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Port is what one interface may send. Its frames have the MAC as source. Their
// payload is
//   - ARP with the MAC and one of the addresses as sender, or a probe for one
//     (RFC 5227);
//   - IPv4 from one of the addresses, but not to a DHCP client;
//   - IPv6 from one of the addresses, or from the link-local address that belongs
//     to the MAC (RFC 4291, appendix A), but no router advertisement, no redirect,
//     not to a DHCP client, and neighbour advertisements for these addresses only;
//   - from the unspecified IPv6 address, duplicate address detection for these
//     addresses, and the multicast listener reports that go with it.
//
// Without addresses it may send nothing; with DHCP it may, with or without
// addresses, also ask a DHCP server for one, and probe what it gets.
type Port struct {
	Interface string // in the table's network namespace; need not be there
	MAC       net.HardwareAddr
	Addresses []netip.Addr
	DHCP      bool
}

// Table is the filter in one network namespace. It may be used from several
// goroutines, but only one Table at a time changes a namespace's filter.
type Table struct {
	ns netns.NsHandle

	mu    sync.Mutex
	conn  *nftables.Conn  // for changes; nil: none open
	ports map[string]Port // what is in the kernel, by interface
}

// Open makes the filter in the calling thread's network namespace. Ports that are
// there stay, and are guarded all the while. Later calls work on that namespace
// from any thread.
func Open() (_ *Table, err error) {
	ns, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	t := &Table{ns: ns}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	ports, err := t.Ports()
	if err != nil {
		return nil, err
	}
	return t, t.Reset(ports)
}

// Close gives up what the Table holds of this process. The filter stays.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.disconnect(), t.ns.Close())
}

// Delete removes the filter: no port is guarded any more. That there is none is
// no error.
func (t *Table) Delete() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.transact(deleteTables)
	if err != nil {
		return fmt.Errorf("delete packet filter %s: %w", tableName, err)
	}
	t.ports = map[string]Port{}
	return nil
}

// Set guards a port, from now on exactly as given: the change is atomic.
func (t *Table) Set(p Port) error {
	p, err := normal(p)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.replace(p.Interface, &p)
}

// Remove ends the guard of a port: it may send what it likes. That there is none
// is no error.
func (t *Table) Remove(iface string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.ports[iface]; !ok {
		return nil
	}
	return t.replace(iface, nil)
}

// Reset guards exactly these ports. The change is atomic, and as large for one
// port as for a thousand.
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

// replace changes one port in the kernel; nil removes it. When the kernel has
// not what we think, because somebody has changed the table or flushed all rules,
// everything is made anew.
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
	err := t.transact(func(c *nftables.Conn) error {
		return errors.Join(change(c.SetDeleteElements, stale), change(c.SetAddElements, wanted))
	})
	if errors.Is(err, unix.ENOENT) {
		return t.rebuild(next)
	}
	if err != nil {
		return fmt.Errorf("change packet filter of %s: %w", iface, err)
	}
	t.ports = next
	return nil
}

// rebuild makes tables, rules and elements what they should be, whatever they
// are, in one transaction. What is there and right stays, the counters with it.
func (t *Table) rebuild(ports map[string]Port) error {
	stale, err := t.elements()
	if err != nil {
		return err
	}
	var wanted []element
	keep := map[element]bool{}
	for _, p := range ports {
		for _, e := range p.elements() {
			wanted = append(wanted, e)
			keep[e] = true
		}
	}
	stale = slices.DeleteFunc(stale, func(e element) bool { return keep[e] })
	err = t.transact(func(c *nftables.Conn) error {
		return errors.Join(addTables(c), change(c.SetDeleteElements, stale), change(c.SetAddElements, wanted))
	})
	if err != nil {
		return fmt.Errorf("make packet filter %s: %w", tableName, err)
	}
	t.ports = ports
	return nil
}

// elements lists what is in the kernel's sets.
func (t *Table) elements() ([]element, error) {
	c, err := t.connect()
	if err != nil {
		return nil, err
	}
	var all []element
	for _, table := range tables {
		there, err := c.ListTablesOfFamily(table.Family)
		if err != nil {
			return nil, fmt.Errorf("list packet filters: %w", err)
		}
		if !slices.ContainsFunc(there, func(t *nftables.Table) bool { return t.Name == tableName }) {
			continue
		}
		for _, s := range sets {
			if s.Table != table {
				continue
			}
			elements, err := c.GetSetElements(s)
			if err != nil {
				return nil, fmt.Errorf("list packet filter's set %s: %w", s.Name, err)
			}
			for _, e := range elements {
				all = append(all, element{s, string(e.Key)})
			}
		}
	}
	return all, nil
}

// sendBuffer holds a transaction of some ten thousand ports. The kernel takes a
// transaction in one piece.
const sendBuffer = 16 << 20

// transact does the changes that f adds to a connection, all or none. The
// connection stays: the kernel waits for what was deleted when one is closed. After
// an error it is given up, so that answers that are left are not taken for the
// next transaction's.
func (t *Table) transact(f func(*nftables.Conn) error) (err error) {
	if t.conn == nil {
		large := func(c *netlink.Conn) error { return c.SetWriteBuffer(sendBuffer) }
		if t.conn, err = t.connect(nftables.AsLasting(), nftables.WithSockOptions(large)); err != nil {
			return fmt.Errorf("open nftables: %w", err)
		}
	}
	if err = f(t.conn); err == nil {
		err = t.conn.Flush()
	}
	if err != nil {
		err = errors.Join(err, t.disconnect())
	}
	return err
}

func (t *Table) disconnect() error {
	c := t.conn
	t.conn = nil
	if c == nil {
		return nil
	}
	return c.CloseLasting()
}

func (t *Table) connect(options ...nftables.ConnOption) (*nftables.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	defer here.Close()
	if !here.Equal(t.ns) { // entering one, even its own, takes CAP_SYS_ADMIN
		options = append(options, nftables.WithNetNSFd(int(t.ns)))
	}
	return nftables.New(options...)
}

// Ports lists the ports that the kernel guards, by interface, each with its
// addresses in order.
func (t *Table) Ports() ([]Port, error) {
	t.mu.Lock() // a list is worthless that somebody changes meanwhile
	defer t.mu.Unlock()
	elements, err := t.elements()
	if err != nil {
		return nil, err
	}
	byName := map[string]*Port{}
	for _, e := range elements {
		name, value := splitKey(e.key)
		p := byName[name]
		if p == nil {
			p = &Port{Interface: name}
			byName[name] = p
		}
		switch e.set {
		case macs:
			p.MAC = value[:6]
		case v4, v6:
			a, _ := netip.AddrFromSlice(value)
			p.Addresses = append(p.Addresses, a)
		case dhcp:
			p.DHCP = true
		}
	}
	var ports []Port
	for _, p := range byName {
		ports = append(ports, p.withoutImplied())
	}
	slices.SortFunc(ports, func(a, b Port) int { return cmp.Compare(a.Interface, b.Interface) })
	return ports, nil
}

// Drops is how many frames have been dropped since the filter was first made, by
// reason. All reasons are in it.
func (t *Table) Drops() (map[string]uint64, error) {
	c, err := t.connect()
	if err != nil {
		return nil, err
	}
	drops := map[string]uint64{}
	for _, table := range tables {
		objects, err := c.GetObjects(table)
		if err != nil {
			return nil, fmt.Errorf("read packet filter's counters: %w", err)
		}
		for _, o := range objects {
			if counter, ok := o.(*nftables.CounterObj); ok {
				drops[counter.Name] += counter.Packets
			}
		}
	}
	return drops, nil
}

// normal returns p as Ports would, or an error when it is none.
func normal(p Port) (Port, error) {
	if n := len(p.Interface); n == 0 || n >= unix.IFNAMSIZ {
		return p, fmt.Errorf("guard port %q: want a name of 1 to %d bytes", p.Interface, unix.IFNAMSIZ-1)
	}
	if len(p.MAC) != 6 || p.MAC[0]&1 != 0 {
		return p, fmt.Errorf("guard port %s: MAC %s: want a unicast address of 6 bytes", p.Interface, p.MAC)
	}
	p.MAC = slices.Clone(p.MAC)
	var addresses []netip.Addr
	for _, a := range p.Addresses {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return p, fmt.Errorf("guard port %s: address %s: want a unicast address", p.Interface, a)
		}
		addresses = append(addresses, a.Unmap().WithZone(""))
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	p.Addresses = slices.Compact(addresses)
	return p, nil
}

// implied are the IPv6 addresses that a port has without their being given: its
// link-local one, and the unspecified one, which stands for leave to use that.
func (p Port) implied() []netip.Addr {
	m := p.MAC
	linkLocal := [16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
	return []netip.Addr{netip.AddrFrom16(linkLocal), netip.IPv6Unspecified()}
}

func (p Port) withoutImplied() Port {
	implied := p.implied()
	p.Addresses = slices.DeleteFunc(p.Addresses, func(a netip.Addr) bool { return slices.Contains(implied, a) })
	if len(p.Addresses) == 0 {
		p.Addresses = nil
	}
	slices.SortFunc(p.Addresses, netip.Addr.Compare)
	return p
}
