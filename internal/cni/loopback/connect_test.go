package loopback

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// ways are the addresses to bind to, and the ones to connect to.
var ways = []struct{ network, bind, address string }{
	{"tcp4", "127.0.0.1:8001", "127.0.0.1:8001"},
	{"tcp4", "0.0.0.0:8002", "127.0.0.1:8002"},
	{"tcp4", "127.0.0.2:8003", "127.0.0.2:8003"},
	{"tcp4", "0.0.0.0:8004", "127.200.3.4:8004"},
	{"tcp6", "[::1]:8005", "[::1]:8005"},
	{"tcp6", "[::]:8006", "[::1]:8006"},
	{"tcp", "[::]:8007", "127.0.0.1:8007"},
	{"udp4", "127.0.0.1:8001", "127.0.0.1:8001"},
	{"udp4", "0.0.0.0:8002", "127.0.0.1:8002"},
	{"udp4", "127.200.3.4:8003", "127.200.3.4:8003"},
	{"udp6", "[::1]:8005", "[::1]:8005"},
	{"udp6", "[::]:8006", "[::1]:8006"},
	{"udp", "[::]:8007", "127.0.0.1:8007"},
}

// Every fraction reaches a server in every fraction, also in its own, with a reflector
// of either mode.
func TestReach(t *testing.T) {
	w := newWorld(t, 3)
	for _, plain := range []bool{false, true} {
		w.plain.Store(plain)
		for _, way := range ways {
			w.reachAll(way.network, way.bind, way.address)
		}
	}
}

func (w *world) reachAll(network, bind, address string) {
	t := w.t
	for server := range w.joined.All() {
		s := w.listen(server, network, bind)
		for client := range w.joined.All() {
			c, err := w.dial(client, network, address)
			if err != nil {
				t.Errorf("%s %s, %d to %d: %v", network, address, client, server, err)
				continue
			}
			for range 3 {
				if err := echo(c, "hello"); err != nil {
					t.Errorf("%s %s, %d to %d: %v", network, address, client, server, err)
				}
			}
			if got := c.RemoteAddr().String(); got != address {
				t.Errorf("%s, %d to %d: the peer's address is %s, want %s", network, client, server, got, address)
			}
			c.Close()
		}
		s.close()
	}
}

func TestRefused(t *testing.T) {
	w := newWorld(t, 3)
	for _, plain := range []bool{false, true} {
		w.plain.Store(plain)
		for _, network := range []string{"tcp4", "udp4", "tcp6", "udp6"} {
			address := "127.0.0.1:8099"
			if network[3] == '6' {
				address = "[::1]:8099"
			}
			for f := range w.joined.All() {
				for range 10 {
					w.refused(f, network, address)
				}
			}
		}
	}
}

// BenchmarkEcho compares round trips over an ordinary lo, within a fraction, and to
// another fraction. The reflector is this test's.
func BenchmarkEcho(b *testing.B) {
	for _, network := range []string{"tcp4", "udp4"} {
		for _, c := range []struct {
			what   string
			joined segment.Set
			server segment.Fraction
		}{{"lo", 0, 1}, {"same", segment.Of(1, 2), 1}, {"other", segment.Of(1, 2), 2}} {
			b.Run(network+"/"+c.what, func(b *testing.B) {
				w := emptyWorld(b, 2)
				w.join(c.joined)
				w.listen(c.server, network, "127.0.0.1:8050")
				conn, err := w.dial(1, network, "127.0.0.1:8050")
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				for b.Loop() {
					if err := echo(conn, "hello"); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// A client that has the port of its server gets a connection with the server, and none with itself.
// Without a server it is refused.
func TestServersPort(t *testing.T) {
	w := newWorld(t, 3)
	for i, l := range loopbacks {
		address := net.JoinHostPort(l.address, "8065")
		s := w.listener(2, "tcp"+l.family, address)
		c, err := w.dialWith(1, fixed(l.address, 8065), "tcp"+l.family, address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			if accepted, err := s.Accept(); err == nil {
				_, _ = fmt.Fprint(accepted, "server")
				t.Cleanup(func() { accepted.Close() })
			}
		}()
		if err := hearsFrom(c, "client", "server"); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		dead := 8066 + i
		_, err = w.dialWith(1, fixed(l.address, dead), "tcp"+l.family, net.JoinHostPort(l.address, fmt.Sprint(dead)))
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("without a server: got %v, want it refused", err)
		}
	}
}

// hearsFrom sends a text and expects another one.
func hearsFrom(c net.Conn, text, want string) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(c, text); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		return fmt.Errorf("got %q, %w, want %q", got, err, want)
	}
	return nil
}

// A SYN with data (TCP Fast Open) to a port without a server is refused at once, and one to a
// server is answered.
func TestFastOpen(t *testing.T) {
	w := newWorld(t, 3)
	w.set(1, "ipv4/tcp_fastopen", "5") // data without a cookie
	ask := func(at unix.Sockaddr, family int) error {
		fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, []byte("hello"), unix.MSG_FASTOPEN, at); err != nil {
			return err
		}
		_, err = unix.Read(fd, make([]byte, 5))
		return err
	}
	for _, l := range loopbacks {
		w.listen(2, "tcp"+l.family, net.JoinHostPort(l.address, "8068"))
		for port, want := range map[int]error{8068: nil, 8069: unix.ECONNREFUSED} {
			var at unix.Sockaddr = &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
			family := unix.AF_INET
			if l.family == "6" {
				at, family = &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}, unix.AF_INET6
			}
			err := w.atOnce(1, func() (err error) {
				w.in(1, func() error { err = ask(at, family); return nil })
				return err
			})
			if !errors.Is(err, want) {
				t.Errorf("IPv%s, port %d: got %v, want %v", l.family, port, err, want)
			}
		}
	}
}

// A datagram with a hop limit of 0 reaches the other fractions, as it does on one localhost.
func TestHopLimit(t *testing.T) {
	w := newWorld(t, 3)
	w.listen(2, "udp6", "[::1]:8070")
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 0) }), err)
	}}
	c, err := w.dialWith(1, d, "udp6", "[::1]:8070")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if err := echo(c, "hello"); err != nil {
			t.Fatal(err)
		}
	}
}
