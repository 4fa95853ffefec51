package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

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
