package loopback

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"

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
	m, err := programMap(ebpf.ProgramID(f.Id), "hostlo_segment")
	if err != nil {
		return nil, state, fmt.Errorf("find map of program %d of %s: %w", f.Id, l.Attrs().Name, err)
	}
	if err := m.Lookup(uint32(0), &state); err != nil {
		return nil, state, errors.Join(fmt.Errorf("read map of program %d of %s: %w", f.Id, l.Attrs().Name, err), m.Close())
	}
	return m, state, nil
}

// programMap returns the map of a program with a name. The caller closes the map.
func programMap(id ebpf.ProgramID, name string) (*ebpf.Map, error) {
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
