package nft

import (
	"encoding/binary"
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
	return o.Own(c)
}

// Own marks a transaction that adds the set of the marks to a table that has none.
func (o *Owner) Own(c *nftables.Conn) error {
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
