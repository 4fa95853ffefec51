// Package tc puts eBPF programs at a link's ingress and egress (tc's qdisc clsact),
// and keeps the host's own network stack off links that only programs are to use.
//
// What the programs do does not belong here.
package tc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Qdisc is that of a link.
func Qdisc(l netlink.Link) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// Attach puts a program at one of a link's hooks (netlink.HANDLE_MIN_INGRESS or
// HANDLE_MIN_EGRESS), where it decides by its return value and stays as long as the
// link. name marks it among others. It takes the place of a former one of its
// priority between two frames.
func Attach(l netlink.Link, hook uint32, priority uint16, name string, p *ebpf.Program) error {
	if err := netlink.QdiscAdd(Qdisc(l)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("add clsact to %s: %w", l.Attrs().Name, err)
	}
	err := netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: l.Attrs().Index, Parent: hook, Handle: 1, Priority: priority, Protocol: unix.ETH_P_ALL,
		},
		Fd: p.FD(), Name: name, DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("attach program to %s: %w", l.Attrs().Name, err)
	}
	return nil
}

// Silence keeps the host from sending anything of its own by a link of the calling
// thread's network namespace.
func Silence(l netlink.Link) error {
	if err := netlink.LinkSetARPOff(l); err != nil {
		return fmt.Errorf("turn ARP off on %s: %w", l.Attrs().Name, err)
	}
	return DisableIPv6(l)
}

// DisableIPv6 keeps a link of the calling thread's network namespace without an
// address of its own.
func DisableIPv6(l netlink.Link) error {
	err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", l.Attrs().Name, "disable_ipv6"), []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6 has no such file
		return fmt.Errorf("turn IPv6 off on %s: %w", l.Attrs().Name, err)
	}
	return nil
}
