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

// tableName is that of our tables, in the guest and in each pod.
const tableName = "unnest-services"

// translated is the bit of a connection's status that says that its destination
// was translated (IPS_DST_NAT in linux/netfilter/nf_conntrack_common.h).
const translated = 1 << 5

// beforeSourceNAT lets our source translation go before others', of which only
// the first has an effect.
var beforeSourceNAT = nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource - 5)

func table() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
}

// hairpins is the set of pairs of interfaces that a connection to the pod's own
// service goes in and out by: each path's guest end with itself.
func hairpins(t *nftables.Table) *nftables.Set {
	return &nftables.Set{
		Table: t, Name: "hairpins", Concatenation: true,
		KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIFName),
	}
}

func hairpin(link string) []nftables.SetElement {
	return []nftables.SetElement{{Key: append(interfaceName(link), interfaceName(link)...)}}
}

// filterGuest makes the guest's table, or makes it right, and enters the link.
// All of it is one transaction: there is no moment without rules.
func filterGuest(link string) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open packet filter: %w", err)
	}
	t := c.AddTable(table())
	set := hairpins(t)
	if err := c.AddSet(set, nil); err != nil {
		return fmt.Errorf("add set to table %s: %w", tableName, err)
	}
	if err := c.SetAddElements(set, hairpin(link)); err != nil {
		return fmt.Errorf("add element to table %s: %w", tableName, err)
	}
	for _, ch := range guestChains(t, set) {
		ch.add(c)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write table %s: %w", tableName, err)
	}
	return nil
}

// chain is a chain with its rules.
type chain struct {
	*nftables.Chain
	rules [][]expr.Any
}

func (ch chain) add(c *nftables.Conn) {
	c.AddChain(ch.Chain)
	c.FlushChain(ch.Chain)
	for _, r := range ch.rules {
		c.AddRule(&nftables.Rule{Table: ch.Table, Chain: ch.Chain, Exprs: r})
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
	fromPod := interfaceBegins(expr.MetaKeyIIFNAME, guestPrefix, expr.CmpOpEq)
	return []chain{
		{forward, [][]expr.Any{
			join(fromPod, connectionIs(expr.CtKeySTATE, expr.CtStateBitNEW, true), connectionIs(expr.CtKeySTATUS, translated, false),
				[]expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}}),
		}},
		{postrouting, [][]expr.Any{
			join(fromPod, connectionIs(expr.CtKeySTATUS, translated, true), interfaceBegins(expr.MetaKeyOIFNAME, guestPrefix, expr.CmpOpNeq),
				[]expr.Any{&expr.Masq{}}),
			join(connectionIs(expr.CtKeySTATUS, translated, true), []expr.Any{
				&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG32_00},
				&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: unix.NFT_REG32_04},
				&expr.Lookup{SourceRegister: unix.NFT_REG32_00, SetName: hairpins.Name, SetID: hairpins.ID},
				&expr.Masq{},
			}),
		}},
	}
}

// filterPod makes the pod's table.
func filterPod() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open packet filter: %w", err)
	}
	for _, ch := range podChains(c.AddTable(table())) {
		ch.add(c)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write table %s: %w", tableName, err)
	}
	return nil
}

func podChains(t *nftables.Table) []chain {
	prerouting := &nftables.Chain{
		Name: "prerouting", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
	}
	output := &nftables.Chain{ // of the type that routes anew when the mark has changed
		Name: "output", Table: t, Type: nftables.ChainTypeRoute,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityMangle,
	}
	return []chain{
		{prerouting, [][]expr.Any{
			join(interfaceIs(expr.MetaKeyIIFNAME, podEnd), direction(false), []expr.Any{
				&expr.Ct{Key: expr.CtKeyMARK, Register: 1},
				setBit(mark),
				&expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: true},
			}),
		}},
		{output, [][]expr.Any{
			join(direction(true), connectionIs(expr.CtKeyMARK, mark, true), []expr.Any{
				&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
				setBit(mark),
				&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
			}),
		}},
	}
}

// unfilterGuest takes the link out of the guest's table. The table stays: other
// paths may be made at the same time.
func unfilterGuest(link string) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open packet filter: %w", err)
	}
	if err := c.SetDeleteElements(hairpins(table()), hairpin(link)); err != nil {
		return fmt.Errorf("delete element of table %s: %w", tableName, err)
	}
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete element of table %s: %w", tableName, err)
	}
	return nil
}

// dropTable removes our table from a pod, or from the guest.
func dropTable() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open packet filter: %w", err)
	}
	c.DelTable(table())
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete table %s: %w", tableName, err)
	}
	return nil
}

// checkChains compares the number of rules in each chain with what it should be.
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
	if err != nil {
		return err
	}
	if !slices.Contains(have, link) {
		return fmt.Errorf("table %s does not have %s in its set of hairpins", tableName, link)
	}
	return nil
}

// listHairpins gives the links in the guest's table; none when there is no table.
func listHairpins() (links []string, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open packet filter: %w", err)
	}
	set, err := c.GetSetByName(table(), hairpins(table()).Name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find set of table %s: %w", tableName, err)
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

func join(parts ...[]expr.Any) (all []expr.Any) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// interfaceName is a name as the kernel compares it, in IFNAMSIZ bytes.
func interfaceName(s string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, s)
	return b
}

func interfaceIs(key expr.MetaKey, name string) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceName(name)}}
}

// interfaceBegins compares only as many bytes as the prefix has.
func interfaceBegins(key expr.MetaKey, prefix string, op expr.CmpOp) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: []byte(prefix)}}
}

// connectionIs looks at bits of one of the connection's numbers.
func connectionIs(key expr.CtKey, bits uint32, set bool) []expr.Any {
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

// direction matches a connection's answers, or what is from its beginner.
func direction(answer bool) []expr.Any {
	d := byte(0)
	if answer {
		d = 1
	}
	return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{d}}}
}

// setBit is register 1 OR bit.
func setBit(bit uint32) expr.Any {
	return &expr.Bitwise{
		SourceRegister: 1, DestRegister: 1, Len: 4,
		Mask: binaryutil.NativeEndian.PutUint32(^bit), Xor: binaryutil.NativeEndian.PutUint32(bit),
	}
}
