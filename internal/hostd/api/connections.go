package api

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"unnest.io/unnest/internal/hostapi/identity"
)

const (
	// handshakes is how many connections of one address may be in their handshake, and
	// allHandshakes of all addresses. A handshake takes milliseconds.
	handshakes    = 16
	allHandshakes = 256
	// guestConnections is how many a guest may have, unless its tenant says otherwise.
	guestConnections = 32
	// refusedTime is how long the client of a refused certificate has to learn why.
	refusedTime = time.Minute
)

var errConnections = errors.New("too many connections")

// errFromPod keeps a pod from using credentials of its node that have come to it. Its NIC sends
// from its own addresses only.
var errFromPod = errors.New("the connection comes from a pod's address: only the guest itself may use its credentials")

// limitedListener bounds connections, so that no guest can use up the daemon's
// descriptors. Before the handshake a connection counts for its address, which every
// container in a guest has. If there are too many, the oldest is closed, not the new one:
// a container without a key cannot keep its guest out. After the handshake a connection
// counts for the guest, whichever of its certificates it has.
type limitedListener struct {
	net.Listener
	refuse func(net.Addr)

	mu      sync.Mutex
	pending map[string][]*limitedConn // in their handshake, by address, the oldest first
	total   int                       // of pending
	count   map[string]int            // by owner
	open    map[*limitedConn]peerIdentity
}

// peerIdentity is what the certificate of a connection says.
type peerIdentity struct {
	guest       string // empty: none
	certificate *x509.Certificate
	refused     bool // the daemon does not accept it
}

// owner is for whom a connection counts: with a certificate that is refused not for the
// guest, whose connections its holder could use up.
func (p peerIdentity) owner() string {
	if p.guest == "" || p.refused {
		return identity.Fingerprint(p.certificate)
	}
	return p.guest
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	accepted := &limitedConn{Conn: c, listener: l, host: host}
	if oldest := l.add(accepted); oldest != nil {
		_ = oldest.Close()
		l.refuse(oldest.RemoteAddr())
	}
	return accepted, nil
}

// add counts a connection as pending. It returns the one to close for it, nil if there is
// room.
func (l *limitedListener) add(c *limitedConn) (oldest *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest = l.excess(c.host)
	l.pending[c.host] = append(l.pending[c.host], c)
	l.total++
	return oldest
}

// excess returns the connection to close before one more of an address is accepted, nil if
// there is room.
func (l *limitedListener) excess(host string) *limitedConn {
	if len(l.pending[host]) >= handshakes {
		return l.pending[host][0]
	}
	if l.total < allHandshakes {
		return nil
	}
	var most []*limitedConn
	for _, p := range l.pending {
		if len(p) > len(most) {
			most = p
		}
	}
	return most[0]
}

// limitedConn is a connection that counts. The listener's mutex guards its fields.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	host     string
	closed   bool
	owner    string // for whom it counts; empty: in its handshake
	expiry   *time.Timer
}

// admit ends the handshake of a connection: it counts for its owner from now on,
// and ends when the certificate expires, or soon if that is refused.
func (c *limitedConn) admit(p peerIdentity, limit int) error {
	l, owner := c.listener, p.owner()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.closed:
		return net.ErrClosed
	case l.count[owner] >= limit:
		return fmt.Errorf("%w: want at most %d", errConnections, limit)
	}
	c.leave()
	l.count[owner]++
	c.owner, l.open[c] = owner, p
	left := time.Until(p.certificate.NotAfter)
	if p.refused {
		left = min(left, refusedTime)
	}
	c.expiry = time.AfterFunc(left, func() { _ = c.Close() })
	return nil
}

// leave takes the connection out of the count that it is in.
func (c *limitedConn) leave() {
	l := c.listener
	if c.owner != "" {
		delete(l.open, c)
		if l.count[c.owner]--; l.count[c.owner] == 0 {
			delete(l.count, c.owner)
		}
		return
	}
	l.total--
	l.pending[c.host] = slices.DeleteFunc(l.pending[c.host], func(o *limitedConn) bool { return o == c })
	if len(l.pending[c.host]) == 0 {
		delete(l.pending, c.host)
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// end makes the connection count no more.
func (c *limitedConn) end() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.leave()
	if c.expiry != nil {
		c.expiry.Stop()
	}
}

// closeIf closes the connections of which refused is true.
func (l *limitedListener) closeIf(refused func(peerIdentity) bool) {
	for c, p := range l.admitted() {
		if refused(p) {
			_ = c.Close()
		}
	}
}

// admitted returns the connections with a certificate.
func (l *limitedListener) admitted() map[*limitedConn]peerIdentity {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.open)
}
