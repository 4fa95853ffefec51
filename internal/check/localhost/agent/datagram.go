package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// quiet is how long nothing may arrive after the last answer, for a patience of 1 s.
const quiet = 50 * time.Millisecond

func (j *job) quiet() time.Duration { return time.Duration(float64(quiet) * j.patience.Seconds()) }

// asker is a UDP client of one address.
type asker struct {
	*net.UDPConn
	to     *net.UDPAddr // nil: the socket is connected
	anyone bool
}

func (j *job) asker(o Datagrams) (*asker, error) {
	if o.Connected {
		c, err := j.dial(target{network: o.Network, address: o.Address, local: o.Local, device: o.Device})
		if err != nil {
			return nil, err
		}
		return &asker{UDPConn: c.(*net.UDPConn)}, nil
	}
	c, err := j.listenUDP(Serve{Network: o.Network, Address: cmp.Or(o.Local, ":0"), Device: o.Device})
	if err != nil {
		return nil, err
	}
	to, err := net.ResolveUDPAddr(o.Network, o.Address)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &asker{UDPConn: c, to: to, anyone: o.Anyone}, nil
}

func (a *asker) send(m []byte) error {
	var err error
	if a.to == nil {
		_, err = a.Write(m)
	} else {
		_, err = a.WriteToUDP(m, a.to)
	}
	return err
}

// receive returns the next datagram, which must come from the address of the last request.
func (a *asker) receive(buffer []byte) ([]byte, error) {
	n, from, err := a.ReadFromUDP(buffer)
	if err != nil {
		return nil, err
	}
	if a.to == nil || a.anyone && from.IP.Equal(a.to.IP) || from.IP.Equal(a.to.IP) && from.Port == a.to.Port {
		return buffer[:n], nil
	}
	return nil, mismatch{fmt.Sprintf("the answer came from %s, want %s", from, a.to)}
}

// ask sends a datagram and waits for the answer.
func (a *asker) ask(m []byte, until time.Time) ([]byte, error) {
	_ = a.SetDeadline(until) // if this fails, so does the next call
	if err := a.send(m); err != nil {
		return nil, err
	}
	return a.receive(make([]byte, largestDatagram+1))
}

// surplus returns an attempt if more arrives than was asked for.
func (a *asker) surplus(wait time.Duration) Attempts {
	_ = a.SetReadDeadline(time.Now().Add(wait)) // if this fails, so does the next call
	if _, err := a.receive(make([]byte, largestDatagram+1)); codeOf(err) == Timeout {
		return nil
	} else if err != nil {
		return Attempts{{Code: codeOf(err)}}
	}
	return Attempts{{Code: Surplus}}
}

// lateErrors returns errors that arrive after sending, such as a refusal of the last
// datagram.
func (a *asker) lateErrors(wait time.Duration) (codes SendErrors) {
	for _, late := range a.surplus(wait) {
		codes = append(codes, late.Code)
	}
	return codes
}

func (j *job) datagrams(o Datagrams) (Attempts, error) {
	a, err := j.asker(o)
	if err != nil {
		return nil, err
	}
	defer j.closing(a)()
	var attempts Attempts
	for i, size := range o.Sizes {
		begin := time.Now()
		m := message(uint64(i), size)
		answer, err := a.ask(m, j.deadline())
		if err == nil && !o.Named {
			err = compare(answer, m)
		}
		attempt := Attempt{Code: codeOf(err), Took: time.Since(begin), Local: a.LocalAddr().String(), Peer: o.Address}
		if o.Named {
			attempt.Said = string(answer)
		}
		attempts = append(attempts, attempt)
		if attempt.Code == Timeout {
			return attempts, nil
		}
	}
	return append(attempts, a.surplus(j.quiet())...), nil
}

func (j *job) pour(o Pour) (SendErrors, error) {
	a, err := j.asker(Datagrams{Network: o.Network, Address: o.Address, Connected: true})
	if err != nil {
		return nil, err
	}
	defer j.closing(a)()
	var failed SendErrors
	for i := range o.Count {
		if err := a.send(fmt.Appendf(nil, "%s %d", o.From, i)); err != nil {
			failed = append(failed, codeOf(err))
		}
		time.Sleep(o.Gap)
	}
	return append(failed, a.lateErrors(j.quiet())...), nil
}

func (j *job) segments(o Segments) (SendErrors, error) {
	a, err := j.asker(Datagrams{Network: o.Network, Address: o.Address, Connected: true})
	if err != nil {
		return nil, err
	}
	defer j.closing(a)()
	raw, err := a.SyscallConn()
	if err != nil {
		return nil, err
	}
	err = onFD(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, o.Size) })
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil, fmt.Errorf("the kernel has no UDP_SEGMENT: %w", err)
	} else if err != nil {
		return nil, err
	}
	if err := a.send(message(1, o.Size*o.Count)); err != nil {
		return SendErrors{codeOf(err)}, nil
	}
	return a.lateErrors(j.quiet()), nil
}

// largestDatagram is the largest payload that UDP's length field allows.
const largestDatagram = 65535 - 8

// udpServer answers every datagram as its kind does.
type udpServer struct {
	conn    *net.UDPConn
	order   Serve
	running sync.WaitGroup

	mu       sync.Mutex
	count    Seen
	distinct map[string]bool
}

func (j *job) startUDP(o Serve) (resource, string, error) {
	switch o.Kind {
	case Echo, Name, Sink, Elsewhere:
	default:
		return nil, "", fmt.Errorf("unknown kind of UDP server %q", o.Kind)
	}
	c, err := j.listenUDP(o)
	if err != nil {
		return nil, "", err
	}
	s := &udpServer{conn: c, order: o, distinct: map[string]bool{}}
	s.running.Go(s.answer)
	return s, c.LocalAddr().String(), nil
}

func (s *udpServer) answer() {
	for buffer := make([]byte, largestDatagram+1); ; {
		n, from, err := s.conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an error of an earlier answer
			time.Sleep(time.Millisecond)
			continue
		}
		s.record(buffer[:n])
		switch s.order.Kind {
		case Echo:
			_, _ = s.conn.WriteToUDPAddrPort(buffer[:n], from) // the client notices a missing answer
		case Name:
			_, _ = s.conn.WriteToUDPAddrPort([]byte(s.order.Name), from)
		case Elsewhere:
			s.answerElsewhere(buffer[:n], from)
		}
	}
}

// answerElsewhere answers from another port of the server's address.
func (s *udpServer) answerElsewhere(content []byte, to netip.AddrPort) {
	host := s.conn.LocalAddr().(*net.UDPAddr).IP
	c, err := net.DialUDP(s.order.Network, &net.UDPAddr{IP: host}, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return // the client notices a missing answer
	}
	defer c.Close()
	_, _ = c.Write(content)
}

func (s *udpServer) record(content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.Datagrams++
	s.count.Bytes += int64(len(content))
	if s.order.Kind == Sink {
		s.distinct[string(content)] = true
	}
}

func (s *udpServer) seen() Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.count
	seen.Distinct = len(s.distinct)
	return seen
}

func (s *udpServer) stop() error {
	err := s.conn.Close()
	s.running.Wait()
	return err
}
