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
	now, err := monotonic()
	if err != nil {
		return err
	}
	var errs []error
	for f := range s.queues.members().All() {
		heard, err := s.heard(f)
		a := &s.asked[f]
		if a.times == 0 || heard >= a.first {
			*a = asked{first: now}
		}
		a.times++
		i, _ := s.queues.index(f)
		errs = append(errs, err, s.frames.send(m.Frame(segment.MAC(f)), i))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("announce members %s of segment %s: %w", m.Members, s.name, err)
	}
	return nil
}

// asked counts the announcements since a fraction has last answered.
type asked struct {
	first int64 // when the first of them was sent, as monotonic returns it
	times int
}

// monotonic returns the monotonic clock in ns, as the programs read it.
func monotonic() (int64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	return now.Nano(), nil
}

// heard returns when a fraction has last answered, as monotonic does; 0: never.
func (s *Segment) heard(f segment.Fraction) (at int64, err error) {
	if err := s.programs.Heard.Lookup(uint32(f), &at); err != nil {
		return 0, fmt.Errorf("ask when fraction %d of segment %s has answered: %w", f, s.name, err)
	}
	return at, nil
}

// Silent returns the fractions that have answered announcements before, but neither of the last two
// or more, of which the first was sent longer ago than a time: their VMs hang, or are stopped. A
// caller that announces late makes nobody silent. Plugins of earlier versions never answer.
func (s *Segment) Silent(after time.Duration) (silent segment.Set, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := monotonic()
	if err != nil {
		return 0, err
	}
	for f := range s.queues.members().All() {
		heard, err := s.heard(f)
		if err != nil {
			return 0, err
		}
		a := s.asked[f]
		if heard > 0 && heard < a.first && a.times > 1 && now-a.first > int64(after) {
			silent = silent.With(f)
		}
	}
	return silent, nil
}
