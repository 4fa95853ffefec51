package servicepath

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is the name of our tables in the guest and in each pod.
const tableName = "unnest-services"

// translated is the bit of a connection's status for a translated destination
// (IPS_DST_NAT in linux/netfilter/nf_conntrack_common.h).
const translated = 1 << 5

// beforeSourceNAT runs our source translation before others': only the first has an
// effect.
var beforeSourceNAT = nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource - 5)

func table() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
}

// hairpins is the set of pairs of input and output interface of a pod's connection to
// its own service: each path's guest end, twice. It is as nft would make it, without the
// flag of a concatenation: else nft -f could not restore a saved table over it.
func hairpins(t *nftables.Table) *nftables.Set {
	return &nftables.Set{
		Table: t, Name: "hairpins", KeyByteOrder: binaryutil.NativeEndian,
		KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIFName),
	}
}

func hairpin(link string) []nftables.SetElement {
	return []nftables.SetElement{{Key: append(interfaceName(link), interfaceName(link)...)}}
}

// write makes the changes in one transaction.
func write(changes func(c *nftables.Conn) error) error {
	c, err := nftables.New()
	if err == nil {
		err = changes(c)
	}
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		return fmt.Errorf("write table %s of the packet filter: %w", tableName, err)
	}
	return nil
}

// writeWithSets adds the table and sets, and writes changes. Sets that are there with other flags, from an earlier version or
// restored, stay.
func writeWithSets(sets []*nftables.Set, changes func(c *nftables.Conn, t *nftables.Table) error) error {
	with := func(sets ...*nftables.Set) error {
		return write(func(c *nftables.Conn) error {
			t := c.AddTable(table())
			for _, set := range sets {
				if err := c.AddSet(set, nil); err != nil {
					return err
				}
			}
			return changes(c, t)
		})
	}
	err := with(sets...)
	if errors.Is(err, unix.EEXIST) {
		err = with()
	}
	return err
}

// filterGuest makes or repairs the guest's table, and adds the link.
func filterGuest(link string) error {
	set := hairpins(table())
	return writeWithSets([]*nftables.Set{set}, func(c *nftables.Conn, t *nftables.Table) error {
		addChains(c, guestChains(t, set))
		return c.SetAddElements(set, hairpin(link))
	})
}

// filterPod makes the pod's table.
func filterPod() error {
	return write(func(c *nftables.Conn) error {
		addChains(c, podChains(c.AddTable(table())))
		return nil
	})
}

// unfilterGuest removes the link from the guest's table. The table stays, as others
// may add paths at the same time.
func unfilterGuest(link string) error {
	return ignoreMissing(write(func(c *nftables.Conn) error {
		return c.SetDeleteElements(hairpins(table()), hairpin(link))
	}))
}

// dropTable removes our table from a pod or from the guest.
func dropTable() error {
	return ignoreMissing(write(func(c *nftables.Conn) error {
		c.DelTable(table())
		return nil
	}))
}

// ignoreMissing passes over what a deletion finds missing. A kernel without nftables, or without nfnetlink, has nothing of ours.
func ignoreMissing(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	return err
}

// ignoreUnlisted is ignoreMissing for a question, to which a kernel without nftables answers EINVAL.
func ignoreUnlisted(err error) error {
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return ignoreMissing(err)
}

type chain struct {
	*nftables.Chain
	rules [][]expr.Any
}

func addChains(c *nftables.Conn, chains []chain) {
	for _, ch := range chains {
		c.AddChain(ch.Chain)
		c.FlushChain(ch.Chain)
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: ch.Table, Chain: ch.Chain, Exprs: r})
		}
	}
}

func guestChains(t *nftables.Table, hairpins *nftables.Set) []chain {
	forward := &nftables.Chain{
		Name: "forward", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	}
	postrouting := &nftables.Chain{
		Name: "postrouting", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: beforeSourceNAT,
	}
	fromPod := compare(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, expr.CmpOpEq, []byte(guestPrefix))
	return []chain{
		{forward, [][]expr.Any{
			slices.Concat(fromPod, connectionHas(expr.CtKeySTATE, expr.CtStateBitNEW, true), connectionHas(expr.CtKeySTATUS, translated, false),
				[]expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}}),
		}},
		{postrouting, [][]expr.Any{
			slices.Concat(fromPod, connectionHas(expr.CtKeySTATUS, translated, true),
				compare(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, expr.CmpOpNeq, []byte(guestPrefix)),
				[]expr.Any{&expr.Masq{}}),
			slices.Concat(connectionHas(expr.CtKeySTATUS, translated, true), []expr.Any{
				&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG32_00},
				&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: unix.NFT_REG32_04},
				&expr.Lookup{SourceRegister: unix.NFT_REG32_00, SetName: hairpins.Name, SetID: hairpins.ID},
				&expr.Masq{},
			}),
		}},
	}
}

func podChains(t *nftables.Table) []chain {
	prerouting := &nftables.Chain{
		Name: "prerouting", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
	}
	output := &nftables.Chain{ // of the type that routes again when the mark has changed
		Name: "output", Table: t, Type: nftables.ChainTypeRoute,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityMangle,
	}
	direction := &expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1} // 0: of the client, 1: of the server
	return []chain{
		{prerouting, [][]expr.Any{
			slices.Concat(compare(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, expr.CmpOpEq, interfaceName(podEnd)),
				compare(direction, expr.CmpOpEq, []byte{0}), []expr.Any{
					&expr.Ct{Key: expr.CtKeyMARK, Register: 1},
					setMark,
					&expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: true},
				}),
		}},
		{output, [][]expr.Any{
			slices.Concat(compare(direction, expr.CmpOpEq, []byte{1}), connectionHas(expr.CtKeyMARK, mark, true), []expr.Any{
				&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
				setMark,
				&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
			}),
		}},
	}
}

// compare matches a value that load puts into register 1. Of an interface's name it
// compares only as many bytes as data has.
func compare(load expr.Any, op expr.CmpOp, data []byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: op, Register: 1, Data: data}}
}

// connectionHas matches a connection with, or without, bits of one of its numbers.
func connectionHas(key expr.CtKey, bits uint32, set bool) []expr.Any {
	op := expr.CmpOpEq
	if set {
		op = expr.CmpOpNeq
	}
	return []expr.Any{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: make([]byte, 4)},
	}
}

// setMark sets the bit mark in register 1.
var setMark = &expr.Bitwise{
	SourceRegister: 1, DestRegister: 1, Len: 4,
	Mask: binaryutil.NativeEndian.PutUint32(^uint32(mark)), Xor: binaryutil.NativeEndian.PutUint32(mark),
}

// interfaceName is a name in the kernel's form of IFNAMSIZ bytes.
func interfaceName(s string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, s)
	return b
}

// checkChains compares the number of rules in each chain.
func checkChains(want []chain) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open packet filter: %w", err)
	}
	for _, ch := range want {
		have, err := c.GetRules(ch.Table, ch.Chain)
		if err != nil {
			return fmt.Errorf("read chain %s of table %s: %w", ch.Name, tableName, err)
		}
		if len(have) != len(ch.rules) {
			return fmt.Errorf("chain %s of table %s has %d rules, want %d", ch.Name, tableName, len(have), len(ch.rules))
		}
	}
	return nil
}

// checkHairpin looks for the link in the guest's table.
func checkHairpin(link string) error {
	have, err := listHairpins()
	if err == nil && !slices.Contains(have, link) {
		err = fmt.Errorf("table %s lacks %s in its set of hairpins", tableName, link)
	}
	return err
}

// listHairpins returns the links in the guest's table, nil when there is no table.
func listHairpins() (links []string, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open packet filter: %w", err)
	}
	set, err := c.GetSetByName(table(), hairpins(table()).Name)
	if err != nil {
		return nil, ignoreUnlisted(fmt.Errorf("find set of table %s: %w", tableName, err))
	}
	have, err := c.GetSetElements(set)
	if err != nil {
		return nil, fmt.Errorf("read set of table %s: %w", tableName, err)
	}
	for _, e := range have {
		name, _, _ := bytes.Cut(e.Key, []byte{0})
		links = append(links, string(name))
	}
	return links, nil
}
