package doctor

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"unnest.io/unnest/internal/testbed/place"
)

// namespace is the network namespace of the calling thread.
type namespace struct{}

// withNamespace calls try in a network namespace without a name. It ends, with
// everything in it, when try returns.
func withNamespace(try func(Namespace) error) error {
	return place.InNetNS("/proc/thread-self/ns/net", func() error { // on a thread that ends with it
		ns, err := netns.New()
		if err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		return errors.Join(try(namespace{}), ns.Close())
	})
}

// AddLink adds a bridge or a pair of veth.
func (namespace) AddLink(kind string) error {
	links := map[string]netlink.Link{
		"bridge": &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}},
		"veth":   &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"},
	}
	link, known := links[kind]
	if !known {
		return fmt.Errorf("kind of link %q: want bridge or veth", kind)
	}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add %s: %w", kind, err)
	}
	return nil
}

// Masquerade adds a table with a NAT chain and one rule.
func (namespace) Masquerade() error {
	conn, err := nftables.New()
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
