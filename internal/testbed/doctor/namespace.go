package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace is a Namespace of this machine. No thread stays in it.
type namespace struct{ ns netns.NsHandle }

// withNamespace makes a network namespace without a name. It ends, with everything in
// it, when try returns.
func withNamespace(try func(Namespace) error) (err error) {
	ns, err := newNamespace()
	if err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	return try(namespace{ns})
}

// newNamespace makes a network namespace and leaves the calling thread in its own. A
// thread that cannot return stays locked and ends with its goroutine.
func newNamespace() (netns.NsHandle, error) {
	runtime.LockOSThread()
	here, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return netns.None(), err
	}
	defer func() { _ = here.Close() }()
	ns, err := netns.New()
	if back := netns.Set(here); back != nil {
		return netns.None(), cmp.Or(err, back)
	}
	runtime.UnlockOSThread()
	return ns, err
}

// AddLink adds a bridge or a pair of veth.
func (n namespace) AddLink(kind string) error {
	links := map[string]netlink.Link{
		"bridge": &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}},
		"veth":   &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"},
	}
	link, known := links[kind]
	if !known {
		return fmt.Errorf("kind of link %q: want bridge or veth", kind)
	}
	h, err := netlink.NewHandleAt(n.ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	if err := h.LinkAdd(link); err != nil {
		return fmt.Errorf("add %s: %w", kind, err)
	}
	return nil
}

// Masquerade adds a table with a NAT chain and one rule.
func (n namespace) Masquerade() error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.ns)))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "unnest"})
	chain := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Masq{}}})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("add masquerade rule: %w", err)
	}
	return nil
}

// loadProgram loads and unloads a program for tc that lets every packet pass.
func loadProgram() error {
	// Kernels before 5.11 count programs against RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("remove memory lock limit: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.SchedCLS,
		License:      "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	return program.Close()
}
