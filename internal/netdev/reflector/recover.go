package reflector

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/tc"
)

// Recover takes over a segment whose creator has ended while VMs had queues of it.
// holders maps the process ID of each VM to its fraction; a VM that has ended, or has
// no queue, is not in the segment. A process with a queue that is not among the
// holders is an error.
//
// The numbers of the queues are unknown, because the queues of VMs that ended have
// left their numbers to others. Recover detaches all queues and attaches them in a
// known order; meanwhile no frame passes. Counters start at zero; the alias stays, and so does
// when each fraction has last answered.
//
// Recover changes nothing before it has all queues and all rights that it needs, so that
// frames still pass after an error, unless it comes from changing the TAP itself.
// Recover may be tried again.
func Recover(o Options, holders map[int]segment.Fraction) (_ *Segment, err error) {
	s := &Segment{name: o.Name, held: map[segment.Fraction]queue{}, anchor: -1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("recover segment %s: %w", o.Name, err), s.Close())
		}
	}()
	if err := errors.Join(o.complete(), validateHolders(holders)); err != nil {
		return nil, err
	}
	tap, err := findTAP(o.Name)
	if err != nil {
		return nil, err
	}
	if err := s.take(holders); err != nil {
		return nil, err
	}
	if err := s.checkComplete(tap); err != nil {
		return nil, err
	}
	for _, q := range s.held { // any queue will do
		err = s.setUp(tap, q, o)
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
	if err == nil {
		err = s.guard()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// formerHeard returns the map heard of the earlier daemon's program, which replacing the program ends.
// Programs of earlier versions have none: it is nil.
func formerHeard(tap netlink.Link) *ebpf.Map {
	filters, _ := netlinksafe.FilterList(tap, netlink.HANDLE_MIN_INGRESS)
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok {
			if m, err := tc.ProgramMap(ebpf.ProgramID(b.Id), "heard"); err == nil {
				return m
			}
		}
	}
	return nil
}

// keepHeard copies when the fractions have last answered. It has to come before another program replaces that of the TAP: a recovery may end at
// any time, and the next one reads what is there then.
func (s *Segment) keepHeard(tap netlink.Link) error {
	former := formerHeard(tap)
	defer former.Close()
	for f := range s.held {
		var at uint64
		if former == nil || former.Lookup(uint32(f), &at) != nil { // a map of another format is of no use
			return nil
		}
		if err := s.programs.Heard.Put(uint32(f), at); err != nil {
			return fmt.Errorf("keep when fraction %d has answered: %w", f, err)
		}
	}
	return nil
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
		return nil, errors.New("device is not a multi-queue TAP")
	}
	return tap, nil
}

// take duplicates a descriptor of each holder's queue.
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
		return fmt.Errorf("none of the processes %v has a queue", slices.Sorted(maps.Keys(holders)))
	}
	return nil
}

// checkComplete returns an error unless all attached queues of the TAP are held.
func (s *Segment) checkComplete(tap *netlink.Tuntap) error {
	others := tap.Queues
	for f, q := range s.held {
		_, attached, err := q.device()
		if err != nil {
			return fmt.Errorf("inspect queue of fraction %d: %w", f, err)
		}
		if attached {
			others--
		}
	}
	if others > 0 {
		return fmt.Errorf("%d of its queues belong to processes that were not named", others)
	}
	return nil
}

func currentNS() (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &stat); err != nil {
		return 0, fmt.Errorf("find own network namespace: %w", err)
	}
	return stat.Ino, nil
}

// renumber numbers the held queues from 0, in the order of the fractions, and lets
// frames pass again.
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
		return fmt.Errorf("%d of its queues belong to processes that were not named", tap.Queues)
	}
	for _, f := range order {
		if err := s.assign(f, s.held[f]); err != nil {
			return err
		}
	}
	return nil
}
