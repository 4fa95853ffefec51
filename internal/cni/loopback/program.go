package loopback

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tc"
)

//go:generate go tool bpf2go -target bpfel -type segment -type former -type flow -type end loopback bpf/loopback.c -- -O2 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

// lo is the same in every network namespace.
var lo = &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: 1}}

// filterName marks our filters.
const filterName = "unnest_hostlo"

// priority of our filters is an unusual number, so that others' filters do not have it.
const priority = 0x6835

// load loads the programs. They and their maps stay as long as a descriptor or a
// filter holds them.
func load(state loopbackSegment) (*loopbackObjects, error) {
	// Kernels before 5.11 count maps and programs against RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("remove memory lock limit: %w", err)
	}
	var o loopbackObjects
	if err := loadLoopbackObjects(&o, nil); err != nil {
		return nil, fmt.Errorf("load programs: %w", err)
	}
	if err := o.HostloSegment.Put(uint32(0), state); err != nil {
		return nil, errors.Join(fmt.Errorf("write map hostlo_segment: %w", err), o.Close())
	}
	return &o, nil
}

// attach attaches a program at a link's ingress or egress (netlink.HANDLE_MIN_…).
func attach(l netlink.Link, p *ebpf.Program, hook uint32) error {
	return tc.Attach(l, hook, priority, filterName, p)
}

// detach removes our filter, and clsact unless keepClsact is set or others use it. It
// is not an error when there is none.
func detach(l netlink.Link, hook uint32, keepClsact bool) error {
	name := l.Attrs().Name
	f, err := ours(l, hook)
	if err != nil {
		return err
	}
	if f != nil {
		if err := netlink.FilterDel(f); err != nil {
			return fmt.Errorf("detach program from %s: %w", name, err)
		}
	}
	if keepClsact {
		return nil
	}
	there, err := hasClsact(l)
	if err != nil || !there {
		return err
	}
	for _, h := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		others, err := filters(l, h)
		if len(others) > 0 || err != nil {
			return err
		}
	}
	if err := netlink.QdiscDel(tc.Qdisc(l)); err != nil {
		return fmt.Errorf("remove clsact from %s: %w", name, err)
	}
	return nil
}

func hasClsact(l netlink.Link) (bool, error) {
	all, err := netlinksafe.QdiscList(l)
	if err != nil {
		return false, fmt.Errorf("list qdiscs of %s: %w", l.Attrs().Name, err)
	}
	return slices.ContainsFunc(all, func(q netlink.Qdisc) bool { return q.Type() == "clsact" }), nil
}

func filters(l netlink.Link, hook uint32) ([]netlink.Filter, error) {
	all, err := netlinksafe.FilterList(l, hook)
	if err != nil {
		return nil, fmt.Errorf("list filters of %s: %w", l.Attrs().Name, err)
	}
	return all, nil
}

// ours returns our filter at a hook, or nil.
func ours(l netlink.Link, hook uint32) (*netlink.BpfFilter, error) {
	there, err := hasClsact(l)
	if err != nil || !there {
		return nil, err
	}
	all, err := filters(l, hook)
	for _, f := range all {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == filterName {
			return b, nil
		}
	}
	return nil, err
}

// findMap returns the map hostlo_segment of our program at a hook, and its content, or
// ErrNotJoined. The caller closes the map.
func findMap(l netlink.Link, hook uint32) (*ebpf.Map, loopbackSegment, error) {
	var state loopbackSegment
	f, err := ours(l, hook)
	if err != nil {
		return nil, state, err
	}
	if f == nil {
		return nil, state, ErrNotJoined
	}
	m, err := tc.ProgramMap(ebpf.ProgramID(f.Id), "hostlo_segment")
	if err != nil {
		return nil, state, fmt.Errorf("find map of program %d of %s: %w", f.Id, l.Attrs().Name, err)
	}
	if err := m.Lookup(uint32(0), &state); err != nil {
		return nil, state, errors.Join(fmt.Errorf("read map of program %d of %s: %w", f.Id, l.Attrs().Name, err), m.Close())
	}
	return m, state, nil
}

// oldest is the first kernel with everything that the programs use: atomic
// operations with a result (5.12) and bpf_for_each_map_elem (5.13).
const oldest = 5<<16 | 13<<8

// Probe returns an error, which names what is missing and the fix, unless this kernel
// supports Join. It tries in a network namespace of its own, and changes nothing.
func Probe() error {
	if err := probe(); err != nil {
		return fmt.Errorf("share a pod's localhost from this guest: %w%s", err, fix(err))
	}
	return nil
}

func probe() error {
	version, err := features.LinuxVersionCode()
	if err != nil {
		return fmt.Errorf("read the kernel's version: %w", err)
	}
	if version < oldest {
		return fmt.Errorf("its kernel is Linux %d.%d: want 5.13 or newer", version>>16, version>>8&0xff)
	}
	for _, helper := range []asm.BuiltinFunc{asm.FnSkcLookupTcp, asm.FnSkLookupUdp, asm.FnForEachMapElem, asm.FnSkStorageGet} {
		if err := features.HaveProgramHelper(ebpf.SchedCLS, helper); err != nil {
			return fmt.Errorf("use eBPF helper %s: %w", helper, err)
		}
	}
	programs, err := load(loopbackSegment{})
	if err != nil {
		return err
	}
	defer programs.Close()
	alone, err := ns.TempNetNS()
	if err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	defer alone.Close()
	return alone.Do(func(ns.NetNS) error {
		return errors.Join(
			attach(lo, programs.LeaveLo, netlink.HANDLE_MIN_EGRESS),
			attach(lo, programs.EnterNic, netlink.HANDLE_MIN_INGRESS))
	})
}

// fix is what the user can do about an error of probe, "" if that is not known.
func fix(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "; run as root in the guest"
	case errors.Is(err, ebpf.ErrNotSupported):
		return "; use a kernel with CONFIG_BPF_SYSCALL, CONFIG_INET and net.core.bpf_jit_enable=1"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return "; use a kernel with CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF, and install its modules"
	}
	return ""
}
