package reflector

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/tc"
)

// Segment is a segment's TAP with its queues. It is safe for concurrent use.
type Segment struct {
	name     string
	index    int // of the TAP
	programs *reflectorObjects
	frames   *sender
	links    *netlink.Handle // of the TAP's network namespace
	// droppedBefore are the frames that the TAP had dropped when the Segment was made.
	droppedBefore uint64

	mu     sync.Mutex
	queues queueOrder
	// held are descriptors of all queues. They keep the queues' numbers: when the last
	// descriptor of a queue is closed, the kernel gives its number to another queue.
	held map[segment.Fraction]queue
	// asked is what each fraction has not answered.
	asked [segment.MaxFractions + 1]asked
	// anchor is a detached queue, which keeps the TAP while the segment is empty.
	anchor queue
	// endGuard ends the guard; nil without one.
	endGuard func()
}

// Create makes a segment without fractions. No device of its name may exist. The TAP
// lives until it is deleted, or until the Segment is closed and no VM has a queue.
// On an error no segment is left.
func Create(o Options) (_ *Segment, err error) {
	s := &Segment{name: o.Name, held: map[segment.Fraction]queue{}, anchor: -1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create segment %s: %w", o.Name, err), s.Close())
		}
	}()
	if err := o.complete(); err != nil {
		return nil, err
	}
	s.anchor, err = openQueue(o.Name, unix.IFF_TUN_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return nil, errors.New("a device of that name exists: recover it, or choose another name")
	}
	if err != nil {
		return nil, err
	}
	tap, err := netlinksafe.LinkByName(o.Name)
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetMTU(tap, segment.MTU); err != nil {
		return nil, fmt.Errorf("set MTU %d: %w", segment.MTU, err)
	}
	if err := s.setUp(tap, s.anchor, o); err != nil {
		return nil, err
	}
	if err := s.anchor.detach(); err != nil {
		return nil, fmt.Errorf("detach first queue: %w", err)
	}
	if err := s.guard(); err != nil {
		return nil, err
	}
	return s, nil
}

// guard starts the guard, with a descriptor of its own of the anchor.
func (s *Segment) guard() error {
	fd, err := unix.FcntlInt(uintptr(s.anchor), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate descriptor: %w", err)
	}
	if s.endGuard, err = guard(queue(fd), s.index); err != nil {
		return errors.Join(err, queue(fd).close())
	}
	return nil
}

// queueLength is how many frames each queue of a TAP holds for a VM that is behind. A
// burst of datagrams is longer than 1000, the kernel's default.
const queueLength = 4096

// setUp configures a TAP without fractions by means of any attached queue. The
// programs are in place before the TAP is up.
func (s *Segment) setUp(tap netlink.Link, q queue, o Options) (err error) {
	s.index = tap.Attrs().Index
	if s.programs, err = load(o.Limit); err != nil {
		return err
	}
	if s.frames, err = newSender(s.index); err != nil {
		return err
	}
	if s.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	if s.droppedBefore, err = s.droppedByTAP(); err != nil {
		return err
	}
	if err := netlink.LinkSetTxQLen(tap, queueLength); err != nil {
		return fmt.Errorf("set queues of %d frames: %w", queueLength, err)
	}
	if err := q.steer(s.programs.Steer.FD()); err != nil {
		return err
	}
	if err := q.setOffloads(); err != nil {
		return err
	}
	if err := errors.Join(tc.Silence(tap), s.keepHeard(tap)); err != nil {
		return err
	}
	program := s.programs.Unicast
	if o.Mode == Plain {
		program = s.programs.Plain
	}
	if err := tc.Attach(tap, netlink.HANDLE_MIN_INGRESS, 1, "hostlo_"+string(o.Mode), program); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(tap); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// Join gives a fraction a queue and returns its descriptor for the VM. The caller
// closes the descriptor when the VM has its own. From now on the fraction receives
// frames.
//
// Call RestoreOffloads when QEMU has the netdev, and when the VM has rebooted: QEMU
// sets header size and offloads for its own NIC, but the kernel keeps one setting
// for all queues of the TAP.
func (s *Segment) Join(f segment.Fraction) (_ *os.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if err != nil {
			err = fmt.Errorf("join fraction %d to segment %s: %w", f, s.name, err)
		}
	}()
	if !f.Valid() {
		return nil, fmt.Errorf("want a fraction of 1 to %d", segment.MaxFractions)
	}
	if _, ok := s.held[f]; ok {
		return nil, errors.New("fraction has a queue already: leave first")
	}
	q, err := s.addQueue()
	if err != nil {
		return nil, err
	}
	file, err := q.file(s.name)
	if err != nil {
		return nil, errors.Join(err, q.close())
	}
	if err := errors.Join(s.programs.Heard.Put(uint32(f), uint64(0)), s.assign(f, q), q.setOffloads()); err != nil {
		return nil, errors.Join(err, file.Close(), s.leave(f))
	}
	return file, nil
}

// addQueue opens another queue, but not on a new TAP, which the kernel would make if
// ours is gone.
func (s *Segment) addQueue() (queue, error) {
	q, err := openQueue(s.name, 0)
	if err != nil {
		return -1, err
	}
	tap, err := netlinksafe.LinkByName(s.name)
	if err == nil && tap.Attrs().Index != s.index {
		err = errors.New("TAP is gone: create the segment again")
	}
	if err != nil {
		return -1, errors.Join(err, q.close())
	}
	return q, nil
}

// assign gives the TAP's last queue to a fraction.
func (s *Segment) assign(f segment.Fraction, q queue) error {
	s.held[f], s.asked[f] = q, asked{}
	i := s.queues.attach(f)
	if err := s.setOwner(i, f); err != nil {
		return err
	}
	return s.setQueue(f, i)
}

// noQueue drops the frames for a fraction.
const noQueue = -1

// setQueue sends frames for a fraction to a queue, or to noQueue. The kernel reduces
// the number modulo the number of queues (see move).
func (s *Segment) setQueue(f segment.Fraction, queue int) error {
	if err := s.programs.Marks.Put(uint32(f), uint32(queue+1)); err != nil {
		return fmt.Errorf("send frames for fraction %d to queue %d: %w", f, queue, err)
	}
	return nil
}

// setOwner makes a fraction the sender of the frames from a queue; 0 drops them.
func (s *Segment) setOwner(queue int, f segment.Fraction) error {
	if err := s.programs.Owners.Put(uint32(queue), uint32(f)); err != nil {
		return fmt.Errorf("set owner of queue %d to fraction %d: %w", queue, f, err)
	}
	return nil
}

// RestoreOffloads sets header size and offloads of the TAP, which QEMU may have
// changed; see Join. It does nothing for a segment without fractions.
func (s *Segment) RestoreOffloads() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.held { // any queue sets them for all
		if err := q.setOffloads(); err != nil {
			return fmt.Errorf("restore offloads of segment %s: %w", s.name, err)
		}
		break
	}
	return nil
}

// Members returns the fractions that have a queue.
func (s *Segment) Members() segment.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues.members()
}

// Close closes the Segment. Its TAP stays, and reflects, as long as a VM has a queue:
// see Recover.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for f, q := range s.held {
		errs = append(errs, q.close())
		delete(s.held, f)
	}
	if s.endGuard != nil {
		s.endGuard()
		s.endGuard = nil
	}
	if s.anchor >= 0 {
		errs = append(errs, s.anchor.close())
		s.anchor = -1
	}
	if s.frames != nil {
		errs = append(errs, unix.Close(s.frames.fd))
		s.frames = nil
	}
	if s.links != nil {
		s.links.Close()
		s.links = nil
	}
	if s.programs != nil {
		errs = append(errs, s.programs.Close())
		s.programs = nil
	}
	return errors.Join(errs...)
}
