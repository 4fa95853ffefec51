package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// serve starts a server of the requested kind.
func (j *job) serve(o Serve) (Served, error) {
	if o.Process {
		return j.serveInProcess(o)
	}
	t, address, err := j.start(o)
	if err != nil {
		return Served{}, err
	}
	return Served{Handle: j.keep(t), Address: address}, nil
}

// start returns a running server and the address where it listens.
func (j *job) start(o Serve) (resource, string, error) {
	if !isStream(o.Network) {
		return j.startUDP(o)
	}
	l, err := j.listenTCP(o)
	if err != nil {
		return nil, "", err
	}
	var t resource
	switch o.Kind {
	case HTTP:
		t = serveHTTP(l, pages())
	case Proxy:
		t = serveHTTP(l, proxyTo(o.Upstream))
	case GRPC:
		t = serveGRPC(l)
	default:
		t, err = startTCP(l, o)
	}
	if err != nil {
		_ = l.Close()
		return nil, "", err
	}
	return t, l.Addr().String(), nil
}

// service is a server of a library.
type service struct {
	close func() error
	ended chan error
}

func startService(serve, close func() error) *service {
	s := &service{close, make(chan error, 1)}
	go func() { s.ended <- serve() }()
	return s
}

func (s *service) stop() error {
	err := s.close()
	if ended := <-s.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// recorder is a server that records what it receives.
type recorder interface {
	resource
	seen() Seen
}

func (j *job) report(o Report) (Seen, error) {
	w, err := find[recorder](j.agent, o.Handle)
	if err != nil {
		return Seen{}, err
	}
	return w.seen(), nil
}

func (j *job) resume(o Resume) (Nothing, error) {
	s, err := find[*tcpServer](j.agent, o.Handle)
	if err != nil {
		return Nothing{}, err
	}
	if err := setBacklog(s.listener, usualBacklog); err != nil {
		return Nothing{}, fmt.Errorf("set the backlog: %w", err)
	}
	s.resume()
	return Nothing{}, nil
}

// bound are sockets that only occupy their ports.
type bound = sockets[io.Closer]

func (j *job) bind(o Bind) (Bound, error) {
	var sockets bound
	var answer Bound
	for range o.Times {
		s, address, err := j.bindOne(Serve{Network: o.Network, Address: o.Address})
		if err != nil {
			_ = sockets.stop()
			return Bound{}, fmt.Errorf("socket %d of %d: %w", len(sockets)+1, o.Times, err)
		}
		sockets = append(sockets, s)
		answer.Addresses = append(answer.Addresses, address.String())
	}
	answer.Handle = j.keep(sockets)
	return answer, nil
}

func (j *job) bindOne(o Serve) (io.Closer, net.Addr, error) {
	if isStream(o.Network) {
		l, err := j.listenTCP(o)
		if err != nil {
			return nil, nil, err
		}
		return l, l.Addr(), nil
	}
	c, err := j.listenUDP(o)
	if err != nil {
		return nil, nil, err
	}
	return c, c.LocalAddr(), nil
}

// open are the connections that a server closes when it stops.
type open struct {
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// add stores a connection. If the server has stopped, it closes the connection and returns
// false.
func (o *open) add(c net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		_ = c.Close()
		return false
	}
	if o.conns == nil {
		o.conns = map[net.Conn]bool{}
	}
	o.conns[c] = true
	return true
}

func (o *open) drop(c net.Conn) {
	_ = c.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.conns, c)
}

func (o *open) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for c := range o.conns {
		_ = c.Close()
	}
}
