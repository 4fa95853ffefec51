package nft

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"golang.org/x/sys/unix"
)

// Owner owns tables. It marks its transactions, so that Watch tells them from those of
// others: each has the next number in a set of one of the tables.
type Owner struct {
	tables []*nftables.Table
	marks  *nftables.Set

	mu           sync.Mutex
	issued, seen uint32 // numbers of transactions
}

// NewOwner returns the owner of tables. The ID is that of the set of the marks, in the
// first table; no other set of a transaction has it.
func NewOwner(id uint32, tables ...*nftables.Table) *Owner {
	first := rand.Uint32() // a mark of another process, or a restored one, differs
	marks := NewSet(id, tables[0], "owner", nftables.TypeMark)
	marks.KeyByteOrder = binaryutil.NativeEndian // as nft makes it
	return &Owner{tables: tables, marks: marks, issued: first, seen: first}
}

// Replace deletes the tables, whatever they have, and adds them. The rest of the
// transaction fills them.
func (o *Owner) Replace(c *nftables.Conn) error {
	for _, t := range o.tables {
		c.AddTable(t) // else there may be nothing to delete
		c.DelTable(t)
		c.AddTable(t)
	}
	return o.own(c)
}

// Clear removes what the only table has, except for the sets with the names in keep. The rest of the transaction
// fills it. Clear reads by the connection read, which may be c. It fails if the table is missing or has flags.
func (o *Owner) Clear(read, c *nftables.Conn, keep map[string]bool) error {
	table := o.tables[0]
	there, err := read.ListTableOfFamily(table.Name, table.Family)
	chains, chainsErr := read.ListChainsOfTableFamily(table.Family)
	sets, setsErr := read.GetSets(table)
	if err := errors.Join(err, chainsErr, setsErr); err != nil {
		return err
	}
	if there.Flags != 0 { // others have made it dormant
		return errors.New("the table has flags")
	}
	chains = slices.DeleteFunc(chains, func(chain *nftables.Chain) bool { return chain.Table.Name != table.Name })
	for _, chain := range chains { // so that nothing uses the sets that stay
		c.FlushChain(chain)
	}
	for _, s := range sets { // before the chains, to which elements lead
		if !keep[s.Name] && !s.Anonymous { // an anonymous one goes with its rule
			c.DelSet(&nftables.Set{Table: table, Name: s.Name})
		}
	}
	for _, chain := range chains {
		c.DelChain(chain)
	}
	return o.own(c)
}

// own marks a transaction that adds the set of the marks to a table that has none.
func (o *Owner) own(c *nftables.Conn) error {
	if err := c.AddSet(o.marks, nil); err != nil {
		return err
	}
	return o.mark(c)
}

// Mark marks a transaction that changes the tables.
func (o *Owner) Mark(c *nftables.Conn) error {
	c.FlushSet(o.marks)
	return o.mark(c)
}

func (o *Owner) mark(c *nftables.Conn) error {
	key := binary.NativeEndian.AppendUint32(nil, o.issue())
	return c.SetAddElements(o.marks, []nftables.SetElement{{Key: key}})
}

// issue returns the number of a new mark.
func (o *Owner) issue() uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.issued++
	return o.issued
}

// owns reports whether an event is about one of the tables.
func (o *Owner) owns(e event) bool {
	return slices.ContainsFunc(o.tables, func(t *nftables.Table) bool {
		return byte(t.Family) == e.family && t.Name == e.table
	})
}

// marked reports whether an event adds a mark that was issued and not yet seen.
func (o *Owner) marked(e event) bool {
	if e.kind != unix.NFT_MSG_NEWSETELEM || e.set != o.marks.Name || e.table != o.marks.Table.Name || len(e.key) != 4 {
		return false
	}
	number := binary.NativeEndian.Uint32(e.key)
	o.mu.Lock()
	defer o.mu.Unlock()
	if ahead := number - o.seen; ahead == 0 || ahead > o.issued-o.seen {
		return false
	}
	o.seen = number
	return true
}
