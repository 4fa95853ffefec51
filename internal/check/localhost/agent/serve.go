package agent

import (
	"fmt"
	"net"
	"sync"
)

// serve starts a server of the order's kind.
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
func (j *job) start(o Serve) (thing, string, error) {
	if !isStream(o.Network) {
		return j.startUDP(o)
	}
	l, err := j.listenTCP(o)
	if err != nil {
		return nil, "", err
	}
	var t thing
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

// witness is a server that can be asked for what it has seen.
type witness interface {
	thing
	seen() Seen
}

func (j *job) report(o Report) (Seen, error) {
	w, err := find[witness](j.agent, o.Handle)
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

// bound are sockets that hold their ports and do nothing.
type bound []interface{ Close() error }

func (b bound) stop() error {
	var first error
	for _, s := range b {
		if err := s.Close(); first == nil {
			first = err
		}
	}
	return first
}

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

func (j *job) bindOne(o Serve) (interface{ Close() error }, net.Addr, error) {
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

// open are the connections that a server has to close when it stops.
type open struct {
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// add takes a connection, unless the server has stopped: then it closes it.
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
