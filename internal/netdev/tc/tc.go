// Package tc attaches eBPF programs to the ingress and egress of links (qdisc
// clsact), and keeps the host's network stack off links that only programs use.
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

// Qdisc returns the clsact qdisc of a link.
func Qdisc(l netlink.Link) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// Prepare gives a link a clsact qdisc, unless it has one.
func Prepare(l netlink.Link) error {
	if err := netlink.QdiscAdd(Qdisc(l)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("add clsact to %s: %w", l.Attrs().Name, err)
	}
	return nil
}

// Attach attaches a program to a hook of a link (netlink.HANDLE_MIN_INGRESS or
// HANDLE_MIN_EGRESS). The program's return value decides about the frame. It stays
// as long as the link, listed under name, and atomically replaces a program of the
// same priority.
func Attach(l netlink.Link, hook uint32, priority uint16, name string, p *ebpf.Program) error {
	if err := Prepare(l); err != nil {
		return err
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

// ProgramMap returns the map of a program with a name. The caller closes the map.
func ProgramMap(id ebpf.ProgramID, name string) (*ebpf.Map, error) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		info, err := m.Info()
		if err == nil && info.Name == name {
			return m, nil
		}
		if err := errors.Join(err, m.Close()); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the program has no map %s", name)
}

// Remove removes the programs of a priority from a hook of a link. It is not an error if there are
// none.
func Remove(l netlink.Link, hook uint32, priority uint16) error {
	err := netlink.FilterDel(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: l.Attrs().Index, Parent: hook, Priority: priority, Protocol: unix.ETH_P_ALL,
	}})
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("remove program from %s: %w", l.Attrs().Name, err)
}

// Detach removes clsact from a link, with all programs. It is not an error if the link has
// none.
func Detach(l netlink.Link) error {
	err := netlink.QdiscDel(Qdisc(l))
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return fmt.Errorf("remove clsact from %s: %w", l.Attrs().Name, err)
}

// Silence keeps the host from sending frames of its own on a link in the network
// namespace of the calling thread.
func Silence(l netlink.Link) error {
	if err := netlink.LinkSetARPOff(l); err != nil {
		return fmt.Errorf("turn ARP off on %s: %w", l.Attrs().Name, err)
	}
	return DisableIPv6(l.Attrs().Name)
}

// DisableIPv6 keeps the host from using IPv6 on an interface in the network namespace
// of the calling thread.
func DisableIPv6(iface string) error {
	err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", iface, "disable_ipv6"), []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6 lacks the file
		return fmt.Errorf("turn IPv6 off on %s: %w", iface, err)
	}
	return nil
}
