package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A message begins with two words of 32 bits in network byte order: the mark, or 0 in the
// warm-up; and twice its number, plus 1 in the answer.
const (
	mark       = 0x484f5053 // "HOPS"
	headLength = 8
	maxLength  = 65507 // of an IPv4 datagram
)

type head struct {
	marked, answer bool
	number         int
}

func (h head) write(b []byte) {
	var first, second uint32
	if h.marked {
		first = mark
	}
	second = uint32(h.number) << 1
	if h.answer {
		second |= 1
	}
	binary.BigEndian.PutUint32(b, first)
	binary.BigEndian.PutUint32(b[4:], second)
}

func readHead(b []byte) head {
	second := binary.BigEndian.Uint32(b[4:])
	return head{marked: binary.BigEndian.Uint32(b) == mark, answer: second&1 == 1, number: int(second >> 1)}
}

// clock reads the kernel's monotonic clock without a system call.
type clock struct {
	base time.Time
	at   int64 // ns, of base
}

// newClock compares the kernel's clock with that of the Go runtime. It takes 100 readings and
// uses the one that took the shortest time.
func newClock() (clock, error) {
	best, width := clock{}, time.Duration(1<<62)
	for range 100 {
		var ts unix.Timespec
		before := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return best, fmt.Errorf("read the clock: %w", err)
		}
		if w := time.Since(before); w < width {
			best, width = clock{before, ts.Nano() - w.Nanoseconds()/2}, w
		}
	}
	return best, nil
}

func (c clock) now() int64 { return c.at + int64(time.Since(c.base)) }

// open returns a UDP socket with a time limit for reads.
func open(limit time.Duration) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open socket: %w", err)
	}
	timeout := unix.NsecToTimeval(limit.Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	if err != nil {
		return -1, errors.Join(fmt.Errorf("prepare socket: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// send and receive make system calls that the Go runtime does not notice. Otherwise it would
// take the processor from the thread each time, with timers that cost an emulated guest more
// time than the message.
func send(fd int, b []byte, to *peer) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(&to.address)), uintptr(to.length))
	if errno != 0 {
		return errno
	}
	return nil
}

// receive reads a datagram into b and sets from.
func receive(fd int, b []byte, from *peer) (int, error) {
	from.length = unix.SizeofSockaddrInet4
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(&from.address)), uintptr(unsafe.Pointer(&from.length)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// peer is the other end of a socket, as system calls have it.
type peer struct {
	address unix.RawSockaddrInet4
	length  uint32
}

func peerAt(a *unix.SockaddrInet4) *peer {
	port := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, uint16(a.Port)))
	return &peer{unix.RawSockaddrInet4{Family: unix.AF_INET, Port: port, Addr: a.Addr}, unix.SizeofSockaddrInet4}
}

func address(text string) (*unix.SockaddrInet4, error) {
	a, err := netip.ParseAddrPort(text)
	if err != nil || !a.Addr().Is4() {
		return nil, fmt.Errorf("address %q: want an IPv4 address and a port", text)
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}, nil
}

// ask sends messages and records when each is sent and when its answer arrives.
func ask(o request, t times) error {
	if o.Size < headLength || o.Size > maxLength {
		return fmt.Errorf("size %d: want %d to %d", o.Size, headLength, maxLength)
	}
	to, err := address(o.Address)
	if err != nil {
		return err
	}
	c, err := newClock()
	if err != nil {
		return err
	}
	fd, err := open(2 * time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Connect(fd, to); err != nil {
		return fmt.Errorf("connect to %s: %w", o.Address, err)
	}
	sent, received := make([]int64, o.Count), make([]int64, o.Count)
	out, in := make([]byte, o.Size), make([]byte, maxLength)
	for i := -o.Warmup; i < o.Count; i++ {
		h := head{marked: i >= 0, number: max(i, -i)}
		h.write(out)
		began := c.now()
		if err := exchange(fd, peerAt(to), out, in, h); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if i >= 0 {
			sent[i], received[i] = began, c.now()
		}
	}
	t["sent"], t["answered"] = sent, received
	return nil
}

// exchange sends a message and waits for its answer.
func exchange(fd int, to *peer, out, in []byte, h head) error {
	var from peer
	if err := send(fd, out, to); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	h.answer = true
	for {
		n, err := receive(fd, in, &from)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive the answer: %w", err)
		}
		if n == len(out) && readHead(in) == h {
			return nil
		}
	}
}

// server answers messages and records when each arrives.
type server struct {
	clock clock
	fd    int

	mu       sync.Mutex
	received times
}

// serve starts a server and returns when it is ready.
func serve(text string) (*server, error) {
	at, err := address(text)
	if err != nil {
		return nil, err
	}
	s := &server{received: times{}}
	if s.clock, err = newClock(); err != nil {
		return nil, err
	}
	if s.fd, err = open(pause); err != nil {
		return nil, err
	}
	if err := unix.Bind(s.fd, at); err != nil {
		return nil, errors.Join(fmt.Errorf("bind to %s: %w", text, err), unix.Close(s.fd))
	}
	go s.answerAll()
	return s, nil
}

// pause without messages means for the server that a series has ended.
const pause = 50 * time.Millisecond

// answerAll answers messages until the socket fails, which clients notice. Between series it
// waits in a system call that lets the runtime sleep.
func (s *server) answerAll() {
	buffer := make([]byte, maxLength)
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, -1)
		for err == nil {
			err = s.answer(buffer)
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (s *server) answer(buffer []byte) error {
	var from peer
	n, err := receive(s.fd, buffer, &from)
	at := s.clock.now()
	if err != nil || n < headLength {
		return err
	}
	h := readHead(buffer)
	if h.marked {
		s.record(h.number, at)
	}
	h.answer = true
	h.write(buffer)
	return send(s.fd, buffer[:n], &from)
}

func (s *server) record(number int, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received.set("served", number, at)
}

func (s *server) collect(into times) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for place, all := range s.received {
		into[place] = all
	}
	s.received = times{}
}

func index(name string) (int, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("find link %s: %w", name, err)
	}
	return link.Index, nil
}
