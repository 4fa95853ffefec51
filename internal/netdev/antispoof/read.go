package antispoof

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Ports lists the ports that the kernel guards, sorted by interface, each with its
// addresses sorted.
func (t *Table) Ports() ([]Port, error) {
	t.mu.Lock() // else a change would tear the list
	defer t.mu.Unlock()
	elements, err := t.elements()
	if err != nil {
		return nil, err
	}
	return parsePorts(elements), nil
}

// Port returns a port that is guarded. It asks the kernel for nothing, however many ports there are: Watch keeps the kernel as the Table is, and
// Port fails after Watch has failed, until the filter is restored.
func (t *Table) Port(iface string) (Port, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.ports[iface]
	switch {
	case t.failed != nil:
		return p, fmt.Errorf("the packet filter may not guard port %s: %w", iface, t.failed)
	case !ok:
		return p, fmt.Errorf("the packet filter does not guard port %s", iface)
	}
	return p, nil
}

// elements lists those elements of the kernel's sets that have the form of ours.
func (t *Table) elements() ([]element, error) {
	c, err := t.conn.New()
	if err != nil {
		return nil, err
	}
	var all []element
	for _, s := range sets {
		if _, err := c.GetSetByName(s.Table, s.Name); errors.Is(err, unix.ENOENT) { // GetSetElements hides it
			continue
		}
		elements, err := c.GetSetElements(s)
		if err != nil {
			return nil, fmt.Errorf("list set %s of packet filter: %w", s.Name, err)
		}
		for _, e := range elements {
			if len(e.Key) == int(s.KeyType.Bytes) && !e.IntervalEnd {
				all = append(all, element{s, string(e.Key)})
			}
		}
	}
	return all, nil
}

// Drops returns how many frames the filter has dropped since it was first made, by
// reason. Every reason has an entry.
func (t *Table) Drops() (map[string]uint64, error) {
	counts, err := t.counts()
	if err != nil {
		return nil, err
	}
	drops := map[string]uint64{}
	for k, counter := range counts {
		drops[k.name] += counter.Packets
	}
	return drops, nil
}

// DropsOf returns how many frames of each port were dropped on its bridge. The kernel
// forgets the number after an hour without another.
func (t *Table) DropsOf() (map[string]uint64, error) {
	c, err := t.conn.New()
	if err != nil {
		return nil, err
	}
	elements, err := c.GetSetElements(dropped)
	if err != nil {
		return nil, fmt.Errorf("list set %s of packet filter: %w", dropped.Name, err)
	}
	drops := map[string]uint64{}
	for _, e := range elements {
		if e.Counter != nil {
			drops[element{dropped, string(e.Key)}.iface()] = e.Counter.Packets
		}
	}
	return drops, nil
}

// counts returns the counters in the kernel by table and reason.
func (t *Table) counts() (map[count]nftables.CounterObj, error) {
	c, err := t.conn.New()
	if err != nil {
		return nil, err
	}
	counts := map[count]nftables.CounterObj{}
	for _, table := range tables {
		objects, err := c.GetObjects(table)
		if err != nil {
			return nil, fmt.Errorf("read counters of packet filter: %w", err)
		}
		for _, o := range objects {
			if counter, ok := o.(*nftables.CounterObj); ok {
				counts[count{table, reason(counter.Name)}] = *counter
			}
		}
	}
	return counts, nil
}
