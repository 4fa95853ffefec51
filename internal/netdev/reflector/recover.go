package reflector

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/hostapi/segment"
)

// Recover takes over a segment whose creator has ended while VMs had queues of it.
// holders says by process ID which fraction each VM is; one that has ended, or has
// no queue any more, is not in the segment. With the creator's descriptors the
// numbers of the queues are lost, because the queue of a VM that ended meanwhile
// has left its number to another. So all queues are detached, when nothing passes,
// and attached again in an order that is known. Counters begin anew; the
// alias stays.
//
// After an error frames may not pass, and Recover may be tried again. It is an
// error that a process has a queue that is not among the holders.
func Recover(o Options, holders map[int]segment.Fraction) (_ *Segment, err error) {
	o = o.withDefaults()
	s := &Segment{name: o.Name, held: map[segment.Fraction]queue{}, anchor: -1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("recover segment %s: %w", o.Name, err), s.Close())
		}
	}()
	if err := errors.Join(o.validate(), validateHolders(holders)); err != nil {
		return nil, err
	}
	tap, err := findTAP(o.Name)
	if err != nil {
		return nil, err
	}
	if err := s.take(holders); err != nil {
		return nil, err
	}
	for _, q := range s.held { // any will do
		err = s.equip(tap, q, o)
		break
	}
	if err == nil {
		err = s.renumber()
	}
	if err == nil {
		s.anchor, err = s.addQueue()
	}
	if err == nil {
		err = s.anchor.detach()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func validateHolders(holders map[int]segment.Fraction) error {
	seen := map[segment.Fraction]int{}
	for pid, f := range holders {
		if !f.Valid() {
			return fmt.Errorf("process %d is fraction %d: want 1 to %d", pid, f, segment.MaxFractions)
		}
		if other, ok := seen[f]; ok {
			return fmt.Errorf("fraction %d is both process %d and %d", f, other, pid)
		}
		seen[f] = pid
	}
	return nil
}

func findTAP(name string) (*netlink.Tuntap, error) {
	link, err := netlinksafe.LinkByName(name)
	if err != nil {
		return nil, err
	}
	tap, ok := link.(*netlink.Tuntap)
	if !ok || tap.Mode != netlink.TUNTAP_MODE_TAP || tap.Flags&netlink.TUNTAP_MULTI_QUEUE == 0 {
		return nil, errors.New("it is no TAP with several queues")
	}
	return tap, nil
}

// take takes a descriptor of each holder's queue.
func (s *Segment) take(holders map[int]segment.Fraction) error {
	ns, err := currentNS()
	if err != nil {
		return err
	}
	for pid, f := range holders {
		q, err := takeFrom(pid, device{s.name, ns})
		if err != nil {
			return fmt.Errorf("take queue of fraction %d: %w", f, err)
		}
		if q >= 0 {
			s.held[f] = q
		}
	}
	if len(s.held) == 0 {
		return fmt.Errorf("none of the processes %v has a queue of it", slices.Sorted(maps.Keys(holders)))
	}
	return nil
}

func currentNS() (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &stat); err != nil {
		return 0, fmt.Errorf("inspect own network namespace: %w", err)
	}
	return stat.Ino, nil
}

// renumber gives the queues that are held numbers from 0, in the fractions' order,
// and has frames pass again.
func (s *Segment) renumber() error {
	order := slices.Sorted(maps.Keys(s.held))
	for _, f := range order {
		_, attached, err := s.held[f].device()
		if err == nil && attached {
			err = s.held[f].detach()
		}
		if err != nil {
			return fmt.Errorf("detach queue of fraction %d: %w", f, err)
		}
	}
	tap, err := findTAP(s.name)
	if err != nil {
		return err
	}
	for _, f := range order {
		if err := s.held[f].attach(); err != nil {
			return fmt.Errorf("attach queue of fraction %d: %w", f, err)
		}
	}
	if tap.Queues > 0 {
		return fmt.Errorf("%d of its queues are held by none of the processes that were named", tap.Queues)
	}
	for _, f := range order {
		if err := s.admit(f, s.held[f]); err != nil {
			return err
		}
	}
	return nil
}
