package hostlo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/segment"
)

//go:generate go tool bpf2go reflector bpf/reflector.c -- -O2 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

// load loads the programs, with maps in which nobody is in the segment yet.
func load(l Limit) (*reflectorObjects, error) {
	// Kernels before 5.11 count maps and programs against RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("remove memory lock limit: %w", err)
	}
	spec, err := loadReflector()
	if err != nil {
		return nil, fmt.Errorf("read reflector: %w", err)
	}
	gap := uint64(time.Second) / uint64(l.Rate)
	err = errors.Join(
		spec.Variables["broadcast_gap"].Set(gap),
		spec.Variables["broadcast_burst"].Set(gap*uint64(l.Burst-1)),
	)
	if err != nil {
		return nil, fmt.Errorf("set limit of broadcasts: %w", err)
	}
	var o reflectorObjects
	if err := spec.LoadAndAssign(&o, nil); err != nil {
		return nil, fmt.Errorf("load reflector: %w", err)
	}
	return &o, nil
}

// reflect puts the mode's program at the TAP's ingress, where it stays as long as
// the TAP. It takes the place of a former one between two frames.
func reflect(tap netlink.Link, program *ebpf.Program, mode Mode) error {
	err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: tap.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("add clsact: %w", err)
	}
	err = netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: tap.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS,
			Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Fd: program.FD(), Name: "hostlo_" + string(mode), DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("attach reflector: %w", err)
	}
	return nil
}

// silence keeps the host from sending anything of its own by the TAP.
func silence(tap netlink.Link) error {
	if err := netlink.LinkSetARPOff(tap); err != nil {
		return fmt.Errorf("turn ARP off: %w", err)
	}
	err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", tap.Attrs().Name, "disable_ipv6"), []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6 has no such file
		return fmt.Errorf("turn IPv6 off: %w", err)
	}
	return nil
}

// lead has frames for a fraction go to a queue, whose number may be one that the
// kernel reduces to the queue's (segment.Move).
func (s *Segment) lead(f segment.Fraction, queue int) error {
	if err := s.programs.Marks.Put(uint32(f), uint32(queue+1)); err != nil {
		return fmt.Errorf("lead frames to fraction %d: %w", f, err)
	}
	return nil
}

// strand has frames for a fraction dropped.
func (s *Segment) strand(f segment.Fraction) error {
	if err := s.programs.Marks.Put(uint32(f), uint32(0)); err != nil {
		return fmt.Errorf("drop frames to fraction %d: %w", f, err)
	}
	return nil
}

// own says whose frames come by a queue; they are dropped if f is 0.
func (s *Segment) own(queue int, f segment.Fraction) error {
	if err := s.programs.Owners.Put(uint32(queue), uint32(f)); err != nil {
		return fmt.Errorf("make queue %d fraction %d's: %w", queue, f, err)
	}
	return nil
}
