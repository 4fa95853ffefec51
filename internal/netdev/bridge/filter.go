package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
)

// Filter is the packet filter of networks: one nftables table in one network
// namespace. It is safe for concurrent use.
type Filter struct {
	ns    netns.NsHandle
	table *nftables.Table
	owner *nft.Owner

	// The sets of the rules.
	bridges, pairs                   *nftables.Set
	gateways4, gateways6, own4, own6 *nftables.Set
	guard                            guardSets

	// Lost is told why the counts of connections begin anew; nil: nobody is told. Set it before Ensure.
	Lost func(error)

	mu       sync.Mutex
	networks []Network // of the latest Ensure
	crowded  time.Time // when unfinished datagrams last took much memory
	limited  bool      // fragments are, see ShareFragments
}

// The names of tables. A network namespace has one filter of each.
const (
	Tenants = "unnest-tenants" // of the host daemon
	Lab     = "unnest-lab"     // of a test lab
)

// Open returns a filter in the calling thread's network namespace. Nothing is filtered
// before Ensure.
func Open(name string) (*Filter, error) {
	ns, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	t, bridge := tableOf(name), nftables.TypeIFName
	return &Filter{
		ns: ns, table: t, owner: nft.NewOwner(7, t),
		bridges:   nft.NewSet(1, t, "bridges", bridge),
		pairs:     nft.NewSet(2, t, "pairs", bridge, bridge), // each bridge with itself and its tenant's others
		gateways4: nft.NewSet(3, t, "gateways4", nftables.TypeIPAddr),
		gateways6: nft.NewSet(4, t, "gateways6", nftables.TypeIP6Addr),
		own4:      nft.NewSet(5, t, "own4", bridge, nftables.TypeIPAddr), // each bridge with its tenant's gateways
		own6:      nft.NewSet(6, t, "own6", bridge, nftables.TypeIP6Addr),
		guard:     newGuardSets(t),
	}, nil
}

// Close closes the Filter. The rules stay.
func (f *Filter) Close() error { return f.ns.Close() }

// Drop deletes the filter that an earlier process has left in the calling thread's network
// namespace.
func Drop(name string) error { return nft.DeleteTable(tableOf(name)) }

func tableOf(name string) *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: name}
}

// Watch restores the rules within a second when others have changed them, until ctx
// ends. It calls restored after each time.
func (f *Filter) Watch(ctx context.Context, restored func(by nft.Generation, err error)) error {
	return f.owner.Watch(ctx, f.ns, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.apply(f.networks)
	}, restored)
}

// apply replaces the rules, whatever was there before, in one transaction. Rules that
// someone has saved and restored can differ from ours in ways that the kernel does not
// let us correct. What counts stays. If that fails, as when the table is not ours, apply replaces the whole table and calls
// Lost, because filtering matters more than counts.
func (f *Filter) apply(networks []Network) error {
	if len(networks) == 0 { // nothing is to be filtered; the mark of the transaction is in the table
		return f.transact(f.owner.Replace, func(c *nftables.Conn) error {
			c.DelTable(f.table)
			return nil
		})
	}
	keep := map[string]bool{}
	for i, n := range networks {
		for _, s := range f.countSets(i, n) {
			keep[s.Name] = true
		}
	}
	clear := func(c *nftables.Conn) error { return f.owner.Clear(c, c, keep) }
	fill := func(c *nftables.Conn) error { return f.fillTable(c, networks) }
	err := f.transact(clear, fill)
	if err == nil {
		return nil
	}
	if f.Lost != nil && !errors.Is(err, unix.ENOENT) { // without a table nothing is lost
		f.Lost(err)
	}
	return f.transact(f.owner.Replace, fill)
}

func (f *Filter) transact(changes ...func(*nftables.Conn) error) error {
	c, err := nft.Connect(f.ns).New()
	for _, change := range changes {
		if err == nil {
			err = change(c)
		}
	}
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		return fmt.Errorf("set packet filter %s: %w", f.table.Name, err)
	}
	return nil
}

func (f *Filter) fillTable(c *nftables.Conn, networks []Network) error {
	var errs []error
	for _, set := range f.sets() {
		errs = append(errs, c.AddSet(set, nil))
	}
	for _, reason := range reasons {
		c.AddObj(&nftables.CounterObj{Table: f.table, Name: counterPrefix + reason})
	}
	errs = append(errs, f.addChains(c, networks))
	for set, all := range f.elements(networks) { // last: those of maps name chains
		errs = append(errs, nft.Change(c.SetAddElements, set, all))
	}
	return errors.Join(errs...)
}

// reasons are those for which packets are dropped, each with a counter.
var reasons = []string{"tenant", "host", "metadata", "connections", "neighbours", "fragments"}

// counterPrefix keeps the names of counters apart from the keywords of nft.
const counterPrefix = "drop-"

func drop(reason string) []expr.Any {
	return nft.Rule([]expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: counterPrefix + reason}}, nft.Drop())
}

// Drops returns how many packets the rules have dropped since the whole table was made or replaced, by reason.
func (f *Filter) Drops() (map[string]uint64, error) {
	c, err := nft.Connect(f.ns).New()
	if err != nil {
		return nil, err
	}
	objects, err := c.GetObjects(f.table)
	if err != nil {
		return nil, fmt.Errorf("read counters of packet filter %s: %w", f.table.Name, err)
	}
	drops := map[string]uint64{}
	for _, o := range objects {
		if counter, ok := o.(*nftables.CounterObj); ok {
			drops[strings.TrimPrefix(counter.Name, counterPrefix)] = counter.Packets
		}
	}
	return drops, nil
}
