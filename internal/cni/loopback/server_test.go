package loopback

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// loopbacks are the loopback addresses of both families.
var loopbacks = []struct{ family, address string }{{"4", "127.0.0.1"}, {"6", "::1"}}

// Fractions without a listener never reset a connection with one that has it.
func TestManyConnects(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8020")
		s := w.listen(1, "tcp"+l.family, address)
		var all sync.WaitGroup
		for f := range w.joined.All() {
			for range 4 {
				all.Go(func() {
					for range 50 {
						if err := w.ask(f, "tcp"+l.family, address); err != nil {
							t.Errorf("fraction %d, %s: %v", f, address, err)
						}
					}
				})
			}
		}
		all.Wait()
		s.close()
	}
}

// With SYN cookies a listener has no socket for a connection until the handshake ends.
func TestCookies(t *testing.T) {
	w := newWorld(t, 3)
	for f := range w.joined.All() {
		w.set(f, "ipv4/tcp_syncookies", "2")
	}
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8021")
		for server := range w.joined.All() {
			s := w.listen(server, "tcp"+l.family, address)
			for client := range w.joined.All() {
				for range 5 {
					w.answered(client, "tcp"+l.family, address)
				}
			}
			s.close()
		}
	}
}

// A client waits while the backlog is full, as on any host.
func TestBacklogFull(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8022")
		var fd int
		w.in(1, func() (err error) {
			fd, err = listenWithoutBacklog(l.address, 8022)
			return err
		})
		defer unix.Close(fd)
		var waiting int
		for range 3 {
			c, err := w.dialWith(2, net.Dialer{Timeout: 1500 * time.Millisecond}, "tcp"+l.family, address)
			var timeout net.Error
			switch {
			case err == nil:
				defer c.Close()
			case errors.As(err, &timeout) && timeout.Timeout():
				waiting++
			default:
				t.Errorf("%s: %v", address, err)
			}
		}
		if waiting == 0 {
			t.Errorf("%s: no client had to wait", address)
		}
	}
}

func listenWithoutBacklog(address string, port int) (int, error) {
	domain, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if address == "::1" {
		domain, at = unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fd, errors.Join(unix.Bind(fd, at), unix.Listen(fd, 0))
}

// Clients reach a server after each move, and are refused while there is none.
func TestServerMoves(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		for _, network := range []string{"tcp" + l.family, "udp" + l.family} {
			address := net.JoinHostPort(l.address, "8023")
			for i := range 9 {
				server := segment.Fraction(i%3 + 1)
				s := w.listen(server, network, address)
				for client := range w.joined.All() {
					w.answered(client, network, address)
				}
				s.close()
				for client := range w.joined.All() {
					w.refused(client, network, address)
				}
			}
		}
	}
}

// A UDP client that keeps its socket is refused once after its server has gone, and
// then reaches the server in its new fraction.
func TestUDPServerMovesUnderClient(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8024")
		s := w.listen(1, "udp"+l.family, address)
		c, err := w.dial(2, "udp"+l.family, address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, next := range []segment.Fraction{3, 2, 1} {
			if err := echo(c, "here"); err != nil {
				t.Errorf("%s: %v", address, err)
			}
			s.close()
			if err := echo(c, "gone"); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s: got %v, want it refused", address, err)
			}
			s = w.listen(next, "udp"+l.family, address)
		}
		if err := echo(c, "here"); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		s.close()
	}
}

// fixed is a dialer from a fixed port, with SO_REUSEADDR.
func fixed(address string, port int) net.Dialer {
	return net.Dialer{
		Timeout:   patience,
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(address), Port: port},
		Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			return errors.Join(c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			}), err)
		},
	}
}

// A server that closes first leaves a socket in TIME_WAIT. A client with the same port
// still reaches the server after it has moved, at once.
func TestServerMovesFromTimeWait(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8025")
		for i, server := range []segment.Fraction{2, 1, 3, 2} { // the client's own first
			var listener net.Listener
			w.in(server, func() (err error) {
				listener, err = net.Listen("tcp"+l.family, address)
				return err
			})
			before := w.repeatedSYNs(2)
			c, err := w.dialWith(2, fixed(l.address, 20000), "tcp"+l.family, address)
			if err != nil {
				t.Fatalf("move %d to %d: %v", i, server, err)
			}
			if w.repeatedSYNs(2) != before {
				w.isLate(fmt.Sprintf("move %d to %d", i, server))
			}
			accepted, err := accept(listener)
			if err != nil {
				t.Fatal(err)
			}
			accepted.Close()
			if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("move %d to %d: got %d bytes, %v; want the end", i, server, n, err)
			}
			c.Close()
			listener.Close()
			time.Sleep(10 * time.Millisecond) // for the last ACK
		}
	}
}

// A server that ends closes its connections; one that is killed before it has read all
// data resets them.
func TestServerDies(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		for _, how := range []struct {
			linger int
			want   error
		}{{-1, io.EOF}, {0, unix.ECONNRESET}} {
			address := net.JoinHostPort(l.address, "8026")
			var listener net.Listener
			w.in(1, func() (err error) {
				listener, err = net.Listen("tcp"+l.family, address)
				return err
			})
			c, err := w.dial(2, "tcp"+l.family, address)
			if err != nil {
				t.Fatal(err)
			}
			accepted, err := accept(listener)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(accepted.(*net.TCPConn).SetLinger(how.linger), accepted.Close(), listener.Close()); err != nil {
				t.Error(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Error(err)
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, how.want) {
				t.Errorf("%s: got %v, want %v", address, err, how.want)
			}
			c.Close()
		}
	}
}

// Listeners at clients' ports, and servers at ephemeral ports, make no difference.
func TestPorts(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		tcp, udp := "tcp"+l.family, "udp"+l.family
		at := func(port string) string { return net.JoinHostPort(l.address, port) }

		// 35000 is an ephemeral port.
		for _, network := range []string{tcp, udp} {
			s := w.listen(1, network, at("35000"))
			for f := range w.joined.All() {
				w.answered(f, network, at("35000"))
			}
			s.close()
		}

		// Fraction 2 is a client from a port at which fraction 1 listens.
		for _, port := range []int{20001, 35001} {
			listener := w.listen(1, tcp, (&net.TCPAddr{IP: net.ParseIP(l.address), Port: port}).String())
			server := w.listen(3, tcp, at("8027"))
			c, err := w.dialWith(2, fixed(l.address, port), tcp, at("8027"))
			if err == nil {
				err = errors.Join(echo(c, "hello"), c.(*net.TCPConn).SetLinger(0), c.Close())
			}
			if err != nil {
				t.Errorf("from port %d: %v", port, err)
			}
			server.close()
			err = w.atOnce(2, func() error {
				_, err := w.dialWith(2, fixed(l.address, port), tcp, at("8027"))
				return err
			})
			if !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("from port %d: got %v, want it refused", port, err)
			}
			listener.close()
		}

		// A new listener in the client's fraction does not affect a connection with another.
		server := w.listen(3, tcp, at("8028"))
		c, err := w.dial(2, tcp, at("8028"))
		if err != nil {
			t.Fatal(err)
		}
		second := w.listen(2, tcp, at("8028"))
		if err := echo(c, "hello"); err != nil {
			t.Errorf("after the new listener: %v", err)
		}
		c.Close()
		w.answered(2, tcp, at("8028"))
		server.close()
		second.close()
	}
}

// Two servers have the same port: each connection stays with one of them, and the other
// keeps no state.
func TestTwoServers(t *testing.T) {
	w := newWorld(t, 4)
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8030")
		w.listen(1, "tcp"+l.family, address)
		w.listen(3, "tcp"+l.family, address)
		for range 20 {
			for _, client := range []segment.Fraction{1, 2, 4} {
				w.answered(client, "tcp"+l.family, address)
			}
		}
	}
	for f := range w.joined.All() {
		w.eventually("no connection is half open", func() bool { return w.halfOpen(f) == 0 })
	}
}

// halfOpen counts the connections of which a fraction has seen only the SYN.
func (w *world) halfOpen(f segment.Fraction) (n int) {
	w.in(f, func() error {
		for _, table := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			data, err := os.ReadFile(table)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(data)) {
				if fields := strings.Fields(line); len(fields) > 3 && fields[3] == "03" {
					n++
				}
			}
		}
		return nil
	})
	return n
}

// A packet filter that refuses by ICMP has the same effect as the kernel, also for a
// client of its own fraction.
func TestFiltered(t *testing.T) {
	w := newWorld(t, 3)
	for _, f := range []segment.Fraction{1, 3} {
		w.in(f, func() error {
			out, err := exec.Command("nft", "add table inet t; add chain inet t in { type filter hook input priority 0; }; "+
				"add rule inet t in meta l4proto { tcp, udp } th dport 8035 reject with icmpx port-unreachable").CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	for _, l := range loopbacks {
		for _, network := range []string{"tcp" + l.family, "udp" + l.family} {
			address := net.JoinHostPort(l.address, "8035")
			w.refused(2, network, address)
			w.listen(3, network, address)
			w.refused(2, network, address)
			// On any lo TCP repeats the SYN: the refusal comes while connect has the socket.
			if err := w.ask(3, network, address); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s in the same fraction: got %v, want it refused", network, err)
			}
			w.listen(2, network, address)
			w.answered(2, network, address)
		}
	}
}

// Sockets that are bound to lo reach the other fractions too.
func TestBoundToDevice(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		for _, network := range []string{"tcp" + l.family, "udp" + l.family} {
			address := net.JoinHostPort(l.address, "8031")
			d := dialer()
			d.Control = device("lo")
			s := w.listenOn(1, network, address, "lo")
			for client := range w.joined.All() {
				c, err := w.dialWith(client, d, network, address)
				if err == nil {
					err = errors.Join(echo(c, "hello"), c.Close())
				}
				if err != nil {
					t.Errorf("%d, %s: %v", client, network, err)
				}
			}
			s.close()
			err := w.atOnce(2, func() error {
				c, err := w.dialWith(2, d, network, address)
				if err == nil {
					err = errors.Join(echo(c, "hello"), c.Close())
				}
				return err
			})
			if !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s: got %v, want it refused", network, err)
			}
		}
	}
}

// Bulk data arrives complete, in frames that the NIC segments.
func TestBulk(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		for _, server := range []segment.Fraction{1, 2} { // 2 is the client's own
			address := net.JoinHostPort(l.address, "8032")
			s := w.listen(server, "tcp"+l.family, address)
			frames, bytes := w.sent[2].Load(), w.bytes[2].Load()
			c, err := w.dial(2, "tcp"+l.family, address)
			if err != nil {
				t.Fatal(err)
			}
			const size = 32 << 20
			sent, got := sha256.New(), sha256.New()
			var sender sync.WaitGroup
			sender.Go(func() {
				random := rand.NewChaCha8([32]byte{byte(server)})
				if _, err := io.Copy(io.MultiWriter(c, sent), io.LimitReader(random, size)); err != nil {
					t.Error(err)
				}
			})
			if err := c.SetReadDeadline(time.Now().Add(5 * patience)); err != nil {
				t.Error(err)
			}
			n, err := io.CopyN(got, c, size)
			sender.Wait()
			if err != nil || string(sent.Sum(nil)) != string(got.Sum(nil)) {
				t.Errorf("%s in %d: %d bytes came back, %v; equal: %v", address, server, n, err, string(sent.Sum(nil)) == string(got.Sum(nil)))
			}
			c.Close()
			s.close()
			frames, bytes = w.sent[2].Load()-frames, w.bytes[2].Load()-bytes
			if server == 1 && (bytes < size || bytes/frames < 16<<10) {
				t.Errorf("%s: %d frames with %d bytes left the client", address, frames, bytes)
			}
		}
	}
}

// The largest IPv4 datagram, and the largest IPv6 datagram without fragments.
func TestLargeDatagrams(t *testing.T) {
	w := newWorld(t, 3)
	for i, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8033")
		w.listen(1, "udp"+l.family, address)
		for f := range w.joined.All() {
			c, err := w.dial(f, "udp"+l.family, address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.(*net.UDPConn).SetReadBuffer(1 << 20); err != nil {
				t.Fatal(err)
			}
			for _, size := range []int{1, 1472, 65000, []int{65507, 65488}[i]} {
				if err := echo(c, string(make([]byte, size))); err != nil {
					t.Errorf("fraction %d, %s, %d bytes: %v", f, address, size, err)
				}
			}
		}
	}
}

// Datagrams without an answer arrive once each, without an error.
func TestOneWay(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8034")
		var sink net.PacketConn
		w.in(1, func() (err error) {
			sink, err = net.ListenPacket("udp"+l.family, address)
			return err
		})
		defer sink.Close()
		c, err := w.dial(2, "udp"+l.family, address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		buffer := make([]byte, 10)
		for i := range 200 {
			if _, err := c.Write([]byte{byte(i)}); err != nil {
				t.Errorf("%s: datagram %d: %v", address, i, err)
			}
			if err := sink.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if n, _, err := sink.ReadFrom(buffer); err != nil || n != 1 || buffer[0] != byte(i) {
				t.Fatalf("%s: datagram %d: got %v, %v", address, i, buffer[:n], err)
			}
		}
		// Now datagrams are sent only to the sink.
		before := w.settled(3)
		for range 20 {
			if _, err := c.Write([]byte{0}); err != nil {
				t.Error(err)
			}
		}
		if n := w.settled(3) - before; n != 0 {
			t.Errorf("%s: fraction 3 has sent %d frames", address, n)
		}
	}
}

// accept waits as long as a client.
func accept(l net.Listener) (net.Conn, error) {
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return l.Accept()
}
