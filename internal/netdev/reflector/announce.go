package reflector

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// sender sends frames to queues of one TAP, from any network namespace.
type sender struct{ fd int }

// newSender opens a socket that only sends.
func newSender(index int) (*sender, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind packet socket: %w", err), unix.Close(fd))
	}
	return &sender{fd: fd}, nil
}

// send sends a frame to a queue, unless the queue is full.
func (s *sender) send(frame []byte, queue int) error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_MARK, queue+1); err != nil {
		return fmt.Errorf("mark frame: %w", err)
	}
	_, err := unix.Write(s.fd, frame)
	if err != nil && !errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("send frame to queue %d: %w", queue, err)
	}
	return nil
}

// Announce sends the membership to every fraction with a queue. A fraction with a
// queue need not be a member: without a VM that does not answer, the others do not
// wait for it. A fraction whose NIC is not up or whose queue is full misses the
// announcement: repeat it with the same generation.
func (s *Segment) Announce(m segment.Membership) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for f := range s.queues.members().All() {
		i, _ := s.queues.index(f)
		errs = append(errs, s.frames.send(m.Frame(segment.MAC(f)), i))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("announce members %s of segment %s: %w", m.Members, s.name, err)
	}
	return nil
}

// Silent returns the fractions that have answered announcements before, but none for longer than
// a time: their VMs hang, or are stopped. Plugins of earlier versions never answer.
func (s *Segment) Silent(after time.Duration) (silent segment.Set, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	for f := range s.queues.members().All() {
		var heard uint64
		if err := s.programs.Heard.Lookup(uint32(f), &heard); err != nil {
			return 0, fmt.Errorf("ask when fraction %d of segment %s has answered: %w", f, s.name, err)
		}
		if heard > 0 && now.Nano()-int64(heard) > int64(after) {
			silent = silent.With(f)
		}
	}
	return silent, nil
}
