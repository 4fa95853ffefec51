// Package portfilter lets only root of the guest reach the host daemon's port. Containers
// behind the guest's bridge have the guest's address, and could otherwise begin
// connections, although none of them has the key. The rules are in a table of our own and
// concern that port only, so that they leave a user's packet filter as it is.
//
// What a pod's own NIC may reach belongs to the host.
package portfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

const tableName = "unnest-daemon"

func table() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
}

func chain(hook *nftables.ChainHook, name string) *nftables.Chain {
	return &nftables.Chain{
		Name: name, Table: table(), Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter,
	}
}

// rule is what one chain does with packets to the daemon.
type rule struct {
	chain *nftables.Chain
	exprs []expr.Any
}

// rules reject what the guest forwards to the daemon, and what processes of users other
// than root send to it.
func rules(daemon netip.AddrPort) []rule {
	reject := &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}
	notRoot := []expr.Any{
		&expr.Meta{Key: expr.MetaKeySKUID, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	}
	return []rule{
		{chain(nftables.ChainHookForward, "forward"), append(to(daemon), reject)},
		{chain(nftables.ChainHookOutput, "output"), append(append(to(daemon), notRoot...), reject)},
	}
}

// to matches packets to an address and port, as nft writes it.
func to(daemon netip.AddrPort) []expr.Any {
	family, offset := byte(unix.NFPROTO_IPV4), uint32(16) // of the destination in the header
	if daemon.Addr().Is6() {
		family, offset = unix.NFPROTO_IPV6, 24
	}
	address := daemon.Addr().AsSlice()
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(address))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: address},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, daemon.Port())},
	}
}

// Ensure adds the rules for a daemon to the packet filter of the calling thread's network
// namespace, unless they are there. They stay until the guest reboots.
func Ensure(daemon netip.AddrPort) error {
	daemon = netip.AddrPortFrom(daemon.Addr().Unmap(), daemon.Port())
	if daemon.Addr().IsLoopback() {
		return nil
	}
	if err := ensure(daemon); err != nil {
		return fmt.Errorf("let only root reach the host daemon at %s: %w", daemon, err)
	}
	return nil
}

func ensure(daemon netip.AddrPort) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	mark := userdata.AppendString(nil, userdata.TypeComment, daemon.String())
	missing := 0
	for _, r := range rules(daemon) {
		have, err := c.GetRules(table(), r.chain)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		if slices.ContainsFunc(have, func(h *nftables.Rule) bool { return string(h.UserData) == string(mark) }) {
			continue
		}
		missing++
		c.AddTable(table())
		c.AddRule(&nftables.Rule{Table: table(), Chain: c.AddChain(r.chain), Exprs: r.exprs, UserData: mark})
	}
	if missing == 0 {
		return nil
	}
	return c.Flush()
}
