package agent

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
)

// tcpServer answers every connection as its kind does.
type tcpServer struct {
	listener *net.TCPListener
	order    Serve
	reply    func(*tcpConn) error
	resumed  chan struct{} // closed when it accepts
	open     open
	running  sync.WaitGroup

	mu    sync.Mutex
	conns []*tcpConn
}

// tcpConn is a connection that records what arrives.
type tcpConn struct {
	*net.TCPConn
	server   *tcpServer
	record   Conn // guarded by server.mu, as received is
	received *sum
}

func (c *tcpConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	_, _ = c.received.Write(p[:n]) // never fails
	return n, err
}

// chunk is the size of reads and writes. An echo server begins with small ones, because it
// may have thousands of connections.
const chunk, small = 256 << 10, 4 << 10

// replies handle a connection, by kind. Their error says how reading ended.
var replies = map[Kind]func(*tcpConn) error{
	Echo:   echo,
	Mute:   echo,
	Name:   func(c *tcpConn) error { return c.say(c.server.order.Name) },
	Tally:  tally,
	Greet:  greet,
	Source: source,
}

func echo(c *tcpConn) error {
	for buffer := make([]byte, small); ; {
		n, err := c.Read(buffer)
		if n > 0 {
			if _, err := c.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		if n == small {
			buffer = make([]byte, chunk)
		}
	}
}

func (c *tcpConn) say(text string) error {
	_, err := io.WriteString(c.TCPConn, text)
	return err
}

// drain reads to the end. The end is not an error.
func (c *tcpConn) drain() error {
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, chunk))
	return err
}

func tally(c *tcpConn) error {
	if err := c.drain(); err != nil {
		return err
	}
	if err := c.say(TallyText(c.received.bytes, c.received.Sum64())); err != nil {
		return err
	}
	return io.EOF
}

// TallyText is the answer of a Tally server.
func TallyText(bytes int64, sum uint64) string { return fmt.Sprintf("%d bytes, sum %016x", bytes, sum) }

func greet(c *tcpConn) error {
	if err := c.say(c.server.order.Name); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	if err := c.drain(); err != nil {
		return err
	}
	return io.EOF
}

func source(c *tcpConn) error {
	var size [8]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint64(size[:])
	_, err := io.CopyBuffer(struct{ io.Writer }{c.TCPConn}, stream(n, int64(n)), make([]byte, chunk))
	return err
}

func startTCP(l *net.TCPListener, o Serve) (*tcpServer, error) {
	reply, ok := replies[o.Kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind of TCP server %q", o.Kind)
	}
	s := &tcpServer{listener: l, order: o, reply: reply, resumed: make(chan struct{})}
	if o.Kind != Mute {
		s.resume()
	} else if err := setBacklog(l, 0); err != nil {
		return nil, fmt.Errorf("set the backlog: %w", err)
	}
	return s, nil
}

// usualBacklog is the backlog of a Mute server after Resume.
const usualBacklog = 128

// resume starts accepting.
func (s *tcpServer) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.resumed:
	default:
		close(s.resumed)
		s.running.Go(s.accept)
	}
}

func (s *tcpServer) accept() {
	for {
		c, err := s.listener.AcceptTCP()
		if err != nil {
			return // the server was stopped
		}
		if !s.open.add(c) {
			return
		}
		conn := &tcpConn{TCPConn: c, server: s, received: newSum()}
		conn.record = Conn{Local: plain(c.LocalAddr().(*net.TCPAddr).AddrPort()), Remote: plain(c.RemoteAddr().(*net.TCPAddr).AddrPort())}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		s.running.Go(func() { s.talk(conn) })
	}
}

func (s *tcpServer) talk(c *tcpConn) {
	defer s.open.drop(c.TCPConn)
	err := s.reply(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.record.End = codeOf(err)
}

func (s *tcpServer) seen() Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	var seen Seen
	for _, c := range s.conns {
		r := c.record
		r.Received, r.Sum = c.received.bytes, c.received.Sum64()
		seen.Conns = append(seen.Conns, r)
	}
	return seen
}

func (s *tcpServer) stop() error {
	err := s.listener.Close()
	s.open.closeAll()
	s.running.Wait()
	return err
}
