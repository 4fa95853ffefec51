package loopback

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/tc"
)

// callers are connections from one port of several fractions to one server.
type callers struct {
	conns map[segment.Fraction]net.Conn
	seen  map[string]bool // the clients as the server sees them

	served *sync.WaitGroup // until their connections have ended
}

// call has the fractions connect from a port, in the given order, and serves them.
func (w *world) call(l net.Listener, address string, port int, order ...segment.Fraction) callers {
	w.t.Helper()
	all := callers{map[segment.Fraction]net.Conn{}, map[string]bool{}, &sync.WaitGroup{}}
	for _, f := range order {
		host, _, _ := net.SplitHostPort(address)
		before := w.repeatedSYNs(f)
		c, err := w.dialWith(f, fixed(host, port), "tcp", address)
		if err != nil {
			w.t.Fatalf("fraction %d calls %s from port %d: %v", f, address, port, err)
		}
		if w.repeatedSYNs(f) != before {
			w.isLate(fmt.Sprintf("fraction %d calls %s from port %d", f, address, port))
		}
		w.t.Cleanup(func() { c.Close() })
		if want := net.JoinHostPort(host, fmt.Sprint(port)); c.LocalAddr().String() != want {
			w.t.Errorf("fraction %d connects from %s, want %s", f, c.LocalAddr(), want)
		}
		accepted, err := accept(l)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { accepted.Close() })
		all.conns[f], all.seen[accepted.RemoteAddr().String()] = c, true
		all.served.Go(func() { echoAll(accepted) })
	}
	if len(all.seen) != len(order) {
		w.t.Errorf("%s sees the clients %v, want %d", address, all.seen, len(order))
	}
	return all
}

func echoAll(c net.Conn) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return
		}
		if _, err := c.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// exchange has each client exchange a message of its own.
func (c callers) exchange(t *testing.T, when string) {
	t.Helper()
	for range 2 {
		for f, conn := range c.conns {
			if err := echo(conn, fmt.Sprintf("fraction %d", f)); err != nil {
				t.Errorf("%s: fraction %d: %v", when, f, err)
			}
		}
	}
}

// close ends all connections without a wait (TIME_WAIT), and waits for the resets to arrive.
func (c callers) close() {
	for _, conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	ended := make(chan struct{})
	go func() {
		c.served.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Second): // not what these tests are about
	}
}

func (w *world) listener(f segment.Fraction, network, address string) (l net.Listener) {
	w.t.Helper()
	w.in(f, func() (err error) {
		l, err = net.Listen(network, address)
		return err
	})
	if w.t.Failed() {
		w.t.FailNow()
	}
	w.t.Cleanup(func() { l.Close() })
	return l
}

// Clients of all fractions, also of the server's own, have the same port: each has a
// connection of its own, and the server sees each at another port.
func TestEqualPorts(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		for _, server := range []segment.Fraction{1, 3} {
			address := net.JoinHostPort(l.address, "8029")
			listener := w.listener(server, "tcp"+l.family, address)
			for _, port := range []int{20002, 40000} {
				for _, order := range [][]segment.Fraction{{1, 2, 3}, {3, 1, 2}, {2, 3, 1}} {
					c := w.call(listener, address, port, order...)
					if first := net.JoinHostPort(l.address, fmt.Sprint(port)); !c.seen[first] {
						t.Errorf("the server sees %v, want the first client at %s", c.seen, first)
					}
					c.exchange(t, fmt.Sprintf("%s in %d, order %v", address, server, order))
					c.close()
				}
			}
			listener.Close()
		}
	}
}

// Clients of all fractions connect from one port at the same time.
func TestEqualPortsAtOnce(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8056")
		w.listen(1, "tcp"+l.family, address)
		for round := range 40 {
			var all sync.WaitGroup
			for f := range w.joined.All() {
				all.Go(func() {
					c, err := w.dialWith(f, fixed(l.address, 20010+round), "tcp"+l.family, address)
					if err == nil {
						err = errors.Join(echo(c, fmt.Sprintf("fraction %d", f)), c.(*net.TCPConn).SetLinger(0), c.Close())
					}
					if err != nil {
						t.Errorf("round %d, fraction %d, %s: %v", round, f, address, err)
					}
				})
			}
			all.Wait()
		}
	}
}

// Fractions whose clients have only few ports connect as often as each of them could alone.
func TestFewPorts(t *testing.T) {
	w := newWorld(t, 3)
	for f := range w.joined.All() {
		w.set(f, portRange, "40000 40019")
	}
	for _, l := range loopbacks {
		for _, network := range []string{"tcp" + l.family, "udp" + l.family} {
			address := net.JoinHostPort(l.address, "8050")
			w.listen(1, network, address)
			var all []net.Conn
			for range 15 {
				for f := range w.joined.All() {
					c, err := w.dial(f, network, address)
					if err != nil {
						t.Fatalf("fraction %d, %s, after %d connections: %v", f, network, len(all), err)
					}
					defer c.Close()
					all = append(all, c)
				}
			}
			for range 2 {
				for i, c := range all {
					if err := echo(c, fmt.Sprint("client ", i)); err != nil {
						t.Errorf("%s, client %d at %s: %v", network, i, c.LocalAddr(), err)
					}
				}
			}
		}
	}
}

// A server that closes first keeps its clients' ports in TIME_WAIT. Clients of other
// fractions are not affected.
func TestPortsInTimeWait(t *testing.T) {
	w := newWorld(t, 3)
	for f := range w.joined.All() {
		w.set(f, portRange, "40000 40019")
	}
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8051")
		listener := w.listener(1, "tcp"+l.family, address)
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("bye"))
				_ = c.Close()
			}
		}()
		var all sync.WaitGroup
		for _, f := range []segment.Fraction{2, 3} {
			all.Go(func() {
				for i := range 100 {
					if err := w.hear(f, "tcp"+l.family, address); err != nil {
						t.Errorf("fraction %d, %s, call %d: %v", f, address, i, err)
					}
				}
			})
		}
		all.Wait()
	}
}

// hear connects and reads to the end.
func (w *world) hear(f segment.Fraction, network, address string) error {
	return w.hearFrom(f, dialer(), network, address)
}

func (w *world) hearFrom(f segment.Fraction, d net.Dialer, network, address string) error {
	c, err := w.dialWith(f, d, network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	buffer, got := make([]byte, 10), ""
	for {
		n, err := c.Read(buffer)
		got += string(buffer[:n])
		switch {
		case n == 0 && got == "bye":
			return nil
		case err != nil:
			return fmt.Errorf("%w after %q", err, got)
		}
	}
}

// Two clients from one port call a port without a server: both are refused.
func TestEqualPortsRefused(t *testing.T) {
	w := newWorld(t, 4)
	for _, l := range loopbacks {
		for range 20 {
			var all sync.WaitGroup
			for f := range w.joined.All() {
				all.Go(func() {
					err := w.atOnce(f, func() error {
						_, err := w.dialWith(f, fixed(l.address, 20003), "tcp"+l.family, net.JoinHostPort(l.address, "8099"))
						return err
					})
					if !errors.Is(err, unix.ECONNREFUSED) {
						t.Errorf("fraction %d: got %v, want it refused", f, err)
					}
				})
			}
			all.Wait()
		}
	}
}

// filter has the fraction refuse new connections to a port by ICMP.
func (w *world) filter(f segment.Fraction, port int) {
	w.t.Helper()
	w.in(f, func() error {
		out, err := exec.Command("nft", "add table inet t; add chain inet t in { type filter hook input priority 0; }; "+
			fmt.Sprintf("add rule inet t in tcp flags & (syn|ack) == syn tcp dport %d reject with icmpx port-unreachable", port)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// An ICMP error quotes a packet with the port at which the server's fraction sees the
// client. The client gets it with its own port.
func TestQuotedPort(t *testing.T) {
	w := newWorld(t, 3)
	for i, l := range loopbacks {
		port := 8080 + i
		address := net.JoinHostPort(l.address, fmt.Sprint(port))
		c := w.call(w.listener(1, "tcp"+l.family, address), address, 20004, 2)
		w.filter(1, port)
		for _, f := range []segment.Fraction{3, 1} {
			if _, err := w.dialWith(f, fixed(l.address, 20004), "tcp"+l.family, address); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("fraction %d: got %v, want it refused", f, err)
			}
		}
		c.exchange(t, "after the refusals")
	}
}

// udpClient binds a port, and is connected to the server or not.
type udpClient struct {
	*net.UDPConn
	to *net.UDPAddr // nil: connected
}

func (w *world) udpClient(f segment.Fraction, network, server string, port int, connected bool) udpClient {
	w.t.Helper()
	to, err := net.ResolveUDPAddr(network, server)
	if err != nil {
		w.t.Fatal(err)
	}
	local := &net.UDPAddr{IP: to.IP, Port: port}
	var c udpClient
	w.in(f, func() (err error) {
		if connected {
			c.UDPConn, err = net.DialUDP(network, local, to)
			return err
		}
		c.to = to
		c.UDPConn, err = net.ListenUDP(network, local)
		return err
	})
	if w.t.Failed() {
		w.t.FailNow()
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

func (c udpClient) Write(b []byte) (int, error) {
	if c.to == nil {
		return c.UDPConn.Write(b)
	}
	return c.WriteTo(b, c.to)
}

// UDP clients of all fractions, also of the server's own, have the same port: each gets
// its own answers, and its own refusal when the server has gone.
func TestEqualUDPPorts(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		for _, connected := range []bool{false, true} {
			for _, server := range []segment.Fraction{1, 2} {
				network, address := "udp"+l.family, net.JoinHostPort(l.address, "8053")
				s := w.listen(server, network, address)
				clients := map[segment.Fraction]udpClient{}
				for f := range w.joined.All() {
					clients[f] = w.udpClient(f, network, address, 20005, connected)
				}
				for range 5 {
					for f, c := range clients {
						if _, err := c.Write([]byte{byte(f)}); err != nil {
							t.Error(err)
						}
					}
					for f, c := range clients {
						buffer := make([]byte, 10)
						if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
							t.Fatal(err)
						}
						if n, _, err := c.ReadFromUDP(buffer); err != nil || n != 1 || buffer[0] != byte(f) {
							t.Errorf("server in %d, fraction %d gets %v, %v", server, f, buffer[:n], err)
						}
					}
				}
				s.close()
				for f, c := range clients {
					if connected {
						if err := echo(c, "gone"); !errors.Is(err, unix.ECONNREFUSED) {
							t.Errorf("server in %d has gone, fraction %d: got %v, want it refused", server, f, err)
						}
					}
					c.Close()
				}
			}
		}
	}
}

// forget deletes all entries of a map in a fraction, as if others had evicted them.
func (w *world) forget(f segment.Fraction, name string) (entries int) {
	w.t.Helper()
	w.in(f, func() error {
		filter, err := ours(lo, netlink.HANDLE_MIN_EGRESS)
		if err != nil {
			return err
		}
		m, err := tc.ProgramMap(ebpf.ProgramID(filter.Id), name)
		if err != nil {
			return err
		}
		defer m.Close()
		for {
			key, err := m.NextKeyBytes(nil)
			if key == nil || err != nil {
				return err
			}
			if err := m.Delete(key); err != nil {
				return err
			}
			entries++
		}
	})
	return entries
}

// An idle connection goes on after its entries were evicted, also if another server has
// the same port in the client's fraction.
func TestForgotten(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8054")
		c := w.call(w.listener(1, "tcp"+l.family, address), address, 20006, 2, 1, 3)
		c.exchange(t, "at first")
		for _, f := range []segment.Fraction{2, 3} {
			w.listen(f, "tcp"+l.family, address)
			w.listen(f, "tcp"+l.family, net.JoinHostPort(l.address, "20006"))
		}
		entries := 0
		for f := range w.joined.All() {
			entries += w.forget(f, "hostlo_tcp")
		}
		if entries == 0 {
			t.Error("there was nothing to forget")
		}
		c.exchange(t, "after it was forgotten")
		c.close()
	}
}

// A client's fraction learns where a listener is, and asks only its fraction.
func TestListenerIsLearned(t *testing.T) {
	w := newWorld(t, 4)
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8055")
		s := w.listen(1, "tcp"+l.family, address)
		w.answered(2, "tcp"+l.family, address)
		before := w.settled(3, 4)
		for range 20 {
			w.answered(2, "tcp"+l.family, address)
		}
		if n := w.settled(3, 4) - before; n != 0 {
			t.Errorf("%s: fractions without the listener have sent %d frames", address, n)
		}
		s.close()
		w.refused(2, "tcp"+l.family, address)
		w.listen(4, "tcp"+l.family, address)
		w.answered(2, "tcp"+l.family, address)
	}
}
