package loopback

import (
	"testing"

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
