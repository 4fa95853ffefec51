// Package reflector is the host's side of Hostlo (Bacou et al., section 4): a
// loopback that the fractions of one pod share, each on a VM of its own.
//
// A segment is one TAP with a queue for each fraction, whose descriptor its VM
// gets as that of a NIC. What a fraction sends is reflected to the queues of others
// by an eBPF program at the TAP's ingress; a second one, which the TAP asks for
// the queue of each frame, tells which. Neither the kernel nor QEMU is patched, and
// no frame reaches the host's network stack. A fraction sends as itself only, to
// fractions of its segment only, and a limited number of broadcasts.
//
// How the guests make a loopback of it, which pod has a segment and who may join
// it do not belong here. What makes, finds or removes a TAP or a queue works on the
// network namespace of the calling thread.
package reflector

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/hostapi/segment"
	"unnest/internal/netdev/tc"
)

// Mode is how a segment reflects.
type Mode string

// The modes.
const (
	// Unicast sends a frame to the fraction that it is addressed to, and a
	// broadcast to all but its sender.
	Unicast Mode = "unicast"
	// Plain sends every frame to every fraction, its sender too, as the paper's
	// TAP does.
	Plain Mode = "plain"
)

// Limit bounds what each fraction may broadcast, in frames: a client's first
// packet to a port is one. What is addressed to one fraction is not limited,
// because the VM itself pays for the reflection.
type Limit struct {
	Rate  uint32 // per second; 0 is DefaultRate
	Burst uint32 // at once; 0 is DefaultBurst
}

// What a Limit is if nothing else is said.
const (
	DefaultRate  = 20_000
	DefaultBurst = 2_000
)

// Options say what a segment shall be.
type Options struct {
	Name  string // of the TAP, at most 15 bytes
	Mode  Mode   // "" is Unicast
	Limit Limit
}

func (o Options) withDefaults() Options {
	if o.Mode == "" {
		o.Mode = Unicast
	}
	if o.Limit.Rate == 0 {
		o.Limit.Rate = DefaultRate
	}
	if o.Limit.Burst == 0 {
		o.Limit.Burst = DefaultBurst
	}
	return o
}

func (o Options) validate() error {
	if n := len(o.Name); n == 0 || n >= unix.IFNAMSIZ {
		return fmt.Errorf("name of %d bytes: want 1 to %d", n, unix.IFNAMSIZ-1)
	}
	return o.Mode.validate()
}

func (m Mode) validate() error {
	if m != Unicast && m != Plain {
		return fmt.Errorf("mode %q: want %s or %s", m, Unicast, Plain)
	}
	return nil
}

// Segment is one segment's TAP with its queues. It may be used by several
// goroutines.
type Segment struct {
	name     string
	index    int // of the TAP
	programs *reflectorObjects
	frames   *sender

	mu     sync.Mutex
	queues segment.Queues
	// held are descriptors of all queues: one whose last descriptor is closed is
	// gone, and the kernel gives its number to another. What a VM does, or how it
	// ends, changes no number.
	held map[segment.Fraction]queue
	// anchor is a detached queue, by which the TAP lives while nobody has joined.
	anchor queue
}

// Create makes a segment that nobody has joined. There must be no device of the
// name. The TAP lives until it is deleted, or the Segment is closed and no VM has
// a queue of it any more. On an error there is none.
func Create(o Options) (_ *Segment, err error) {
	o = o.withDefaults()
	s := &Segment{name: o.Name, held: map[segment.Fraction]queue{}, anchor: -1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create segment %s: %w", o.Name, err), s.Close())
		}
	}()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s.anchor, err = openQueue(o.Name, unix.IFF_TUN_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return nil, errors.New("there is a device of that name: recover it, or choose another")
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
	if err := s.equip(tap, s.anchor, o); err != nil {
		return nil, err
	}
	if err := s.anchor.detach(); err != nil {
		return nil, fmt.Errorf("detach first queue: %w", err)
	}
	return s, nil
}

// equip gives the TAP what it has beside its queues, the program before it comes
// up, by means of any queue that is attached. Nobody is in the segment then.
func (s *Segment) equip(tap netlink.Link, q queue, o Options) (err error) {
	s.index = tap.Attrs().Index
	if s.programs, err = load(o.Limit); err != nil {
		return err
	}
	if s.frames, err = newSender(s.index); err != nil {
		return err
	}
	if err := q.steer(s.programs.Steer.FD()); err != nil {
		return err
	}
	if err := q.adapt(); err != nil {
		return err
	}
	if err := tc.Silence(tap); err != nil {
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
		return fmt.Errorf("bring up: %w", err)
	}
	return nil
}

// Join gives a fraction a queue and returns its descriptor for the VM, which the
// caller closes when the VM has its own. From now on the others' frames arrive
// there.
//
// A VM that takes the descriptor, or starts anew, changes how frames are passed by
// all queues: QEMU sets the header's size and the offloads for its own NIC, but
// the kernel keeps them for the TAP. RestoreOffloads sets them right; it is called when QEMU
// has the netdev.
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
		return nil, errors.New("it is there already: have it leave first")
	}
	q, err := s.addQueue()
	if err != nil {
		return nil, err
	}
	file, err := q.file(s.name)
	if err != nil {
		return nil, errors.Join(err, q.close())
	}
	if err := errors.Join(s.admit(f, q), q.adapt()); err != nil {
		return nil, errors.Join(err, file.Close(), s.leave(f))
	}
	return file, nil
}

// addQueue opens a queue more. The kernel makes a new TAP when ours is gone.
func (s *Segment) addQueue() (queue, error) {
	q, err := openQueue(s.name, 0)
	if err != nil {
		return -1, err
	}
	tap, err := netlinksafe.LinkByName(s.name)
	if err == nil && tap.Attrs().Index != s.index {
		err = errors.New("its TAP is gone: create the segment anew")
	}
	if err != nil {
		return -1, errors.Join(err, q.close())
	}
	return q, nil
}

// admit makes the TAP's last queue a fraction's.
func (s *Segment) admit(f segment.Fraction, q queue) error {
	s.held[f] = q
	i := s.queues.Attach(f)
	if err := s.own(i, f); err != nil {
		return err
	}
	return s.lead(f, i)
}

// RestoreOffloads sets how frames are passed by the TAP's queues, which QEMU may have
// changed; see Join. With nobody in the segment there is nothing to do.
func (s *Segment) RestoreOffloads() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.held { // any will do
		if err := q.adapt(); err != nil {
			return fmt.Errorf("adapt segment %s: %w", s.name, err)
		}
		break
	}
	return nil
}

// Members are the fractions that have a queue.
func (s *Segment) Members() segment.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues.Members()
}

// Close lets the segment go. Its TAP stays, and reflects, as long as a VM has a
// queue of it: see Recover.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for f, q := range s.held {
		errs = append(errs, q.close())
		delete(s.held, f)
	}
	if s.anchor >= 0 {
		errs = append(errs, s.anchor.close())
		s.anchor = -1
	}
	if s.frames != nil {
		errs = append(errs, s.frames.close())
		s.frames = nil
	}
	if s.programs != nil {
		errs = append(errs, s.programs.Close())
		s.programs = nil
	}
	return errors.Join(errs...)
}

// Delete removes the TAP, whoever has queues of it, and closes the segment. That
// the TAP is gone is no error.
func (s *Segment) Delete() error {
	err := netlink.LinkDel(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Index: s.index}})
	if errors.Is(err, unix.ENODEV) {
		err = nil
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("delete segment %s: %w", s.name, err)
	}
	return nil
}
