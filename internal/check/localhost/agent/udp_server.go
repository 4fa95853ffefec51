package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// largestDatagram is what UDP's length field allows, less its header.
const largestDatagram = 65535 - 8

// udpServer answers every datagram in the way of its kind.
type udpServer struct {
	conn    *net.UDPConn
	order   Serve
	running sync.WaitGroup

	mu       sync.Mutex
	count    Seen
	distinct map[string]bool
}

func (j *job) startUDP(o Serve) (thing, string, error) {
	switch o.Kind {
	case Echo, Name, Sink, Elsewhere:
	default:
		return nil, "", fmt.Errorf("there is no UDP server of kind %q", o.Kind)
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
		if err != nil { // what an earlier answer met with
			time.Sleep(time.Millisecond)
			continue
		}
		s.note(buffer[:n])
		switch s.order.Kind {
		case Echo:
			_, _ = s.conn.WriteToUDPAddrPort(buffer[:n], from) // the client sees what is missing
		case Name:
			_, _ = s.conn.WriteToUDPAddrPort([]byte(s.order.Name), from)
		case Elsewhere:
			s.answerElsewhere(buffer[:n], from)
		}
	}
}

// answerElsewhere uses a socket of the server's host and another port.
func (s *udpServer) answerElsewhere(content []byte, to netip.AddrPort) {
	host := s.conn.LocalAddr().(*net.UDPAddr).IP
	c, err := net.DialUDP(s.order.Network, &net.UDPAddr{IP: host}, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return // the client sees what is missing
	}
	defer c.Close()
	_, _ = c.Write(content)
}

func (s *udpServer) note(content []byte) {
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
