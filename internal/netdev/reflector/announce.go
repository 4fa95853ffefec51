package reflector

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"unnest/internal/hostapi/segment"
)

// sender sends frames out by one TAP, each to the queue that its mark names. It is
// in the network namespace in which it was made.
type sender struct{ fd int }

// newSender makes a socket of the interface that receives nothing.
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

// send sends a frame to a queue. That the queue is full is no error.
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

func (s *sender) close() error { return unix.Close(s.fd) }

// Announce tells every fraction with a queue who is in the segment. What is told
// need not be who has a queue: a VM that does not answer is in nobody's way when
// the others count it out. A fraction whose NIC is not up yet, or whose queue is
// full, does not hear it: announce again, with the same generation.
func (s *Segment) Announce(m segment.Membership) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for f := range s.queues.Members().All() {
		i, _ := s.queues.Index(f)
		errs = append(errs, s.frames.send(m.Frame(segment.MAC(f)), i))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("announce members %s of segment %s: %w", m.Members, s.name, err)
	}
	return nil
}
