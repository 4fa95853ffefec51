package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostapi/segment"
)

// elsewhereServer answers every datagram on an address from a socket of its own, as TFTP does.
type elsewhereServer struct{ asked, answers net.PacketConn }

func (w *world) listenElsewhere(f segment.Fraction, network, address string) elsewhereServer {
	w.t.Helper()
	s := w.bindElsewhere(f, network, address)
	for _, c := range []net.PacketConn{s.asked, s.answers} { // clients may go on with the second one
		go func() {
			for s.answer(c) == nil {
			}
		}()
	}
	return s
}

// bindElsewhere is listenElsewhere with a server that answers when answer is called.
func (w *world) bindElsewhere(f segment.Fraction, network, address string) (s elsewhereServer) {
	w.t.Helper()
	host, _, _ := net.SplitHostPort(address)
	w.in(f, func() (err error) {
		if s.asked, err = net.ListenPacket(network, address); err == nil {
			s.answers, err = net.ListenPacket(network, net.JoinHostPort(host, "0"))
		}
		return err
	})
	if w.t.Failed() {
		w.t.FailNow()
	}
	w.t.Cleanup(s.close)
	return s
}

// answer waits for a datagram at one of both sockets.
func (s elsewhereServer) answer(asked net.PacketConn) error {
	buffer := make([]byte, 100)
	n, from, err := asked.ReadFrom(buffer)
	if err == nil {
		_, _ = s.answers.WriteTo(buffer[:n], from) // the client may be gone
	}
	return err
}

func (s elsewhereServer) close() {
	s.asked.Close()
	s.answers.Close()
}

// hears sends a message, and expects the same from anybody.
func (c udpClient) hears(message string) (net.Addr, error) {
	if _, err := c.Write([]byte(message)); err != nil {
		return nil, err
	}
	got, from, err := c.next()
	if err == nil && got != message {
		err = fmt.Errorf("got %q, want %q", got, message)
	}
	return from, err
}

// next waits for a message from anybody.
func (c udpClient) next() (string, net.Addr, error) {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", nil, err
	}
	buffer := make([]byte, 100)
	n, from, err := c.ReadFrom(buffer)
	return string(buffer[:n]), from, err
}

// A server answers from another port than it was called at. UDP clients of all fractions that
// have the same port, at once or in turns, get their own answers, and go on with that port.
func TestEqualUDPPortsAnsweredFromElsewhere(t *testing.T) {
	w := newWorld(t, 4)
	for _, l := range loopbacks {
		for _, server := range []segment.Fraction{1, 2, 4} {
			network, address := "udp"+l.family, net.JoinHostPort(l.address, "8057")
			s := w.listenElsewhere(server, network, address)
			for _, inTurns := range []bool{false, true} {
				var clients []udpClient
				for _, f := range []segment.Fraction{1, 2, 3} {
					c := w.udpClient(f, network, address, 30000, false)
					clients = append(clients, c)
					for i := range 3 {
						from, err := c.hears(fmt.Sprintf("fraction %d, %d", f, i))
						if err != nil {
							t.Fatalf("server in %d, in turns: %v, fraction %d, %s: %v", server, inTurns, f, network, err)
						}
						on := udpClient{c.UDPConn, from.(*net.UDPAddr)}
						if _, err := on.hears(fmt.Sprintf("fraction %d goes on", f)); err != nil {
							t.Fatalf("server in %d, in turns: %v, fraction %d goes on, %s: %v", server, inTurns, f, network, err)
						}
					}
					if inTurns {
						c.Close()
					}
				}
				for _, c := range clients { // the others' answers
					_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
					if n, from, err := c.ReadFrom(make([]byte, 100)); err == nil {
						t.Errorf("server in %d, %s: a client has got %d bytes of another one's from %s", server, network, n, from)
					}
					c.Close()
				}
			}
			s.close()
		}
	}
}

// Clients of fractions 1 to 3 have the same port, some at once and some after each other, and call
// servers in fraction 1 that answer from another port. Each gets its own answers, whoever was the
// first to have the port, and whether answers to former clients there have been refused.
func TestUDPPortChangesHands(t *testing.T) {
	for _, steps := range []string{ // + opens a client, which calls a server, with b the second one; - closes it; ~ closes it before its answer
		"+1 +3 -1 -3 +2 +3 2 3 2",
		"+1 +2 -1 +3 2 3 +1 2 3 1",
		"+2 +3 ~3 +3 2 3 ~2 +2 3 2",
		"+2 -2 +1 +2 1 2 -1 +3 2 3",
		"+2 +1b +3b 2 1 3 2 1 3",
	} {
		t.Run(steps, func(t *testing.T) {
			w := newWorld(t, 4)
			w.listenElsewhere(1, "udp4", "127.0.0.1:8057")
			w.listenElsewhere(1, "udp4", "127.0.0.1:8058")
			late := w.bindElsewhere(1, "udp4", "127.0.0.1:8056")
			clients := map[segment.Fraction]udpClient{}
			for i, step := range strings.Fields(steps) {
				server := "127.0.0.1:8057"
				if first, second := strings.CutSuffix(step, "b"); second {
					step, server = first, "127.0.0.1:8058"
				}
				f := segment.Fraction(step[len(step)-1] - '0')
				if step[0] == '+' {
					clients[f] = w.udpClient(f, "udp4", server, 30004, false)
				}
				c := clients[f]
				switch step[0] {
				case '-':
					c.Close()
				case '~':
					_, err := c.WriteTo([]byte("hello"), late.asked.LocalAddr())
					refusals := w.settled(1, 2, 3)
					c.Close()
					if err = errors.Join(err, late.answer(late.asked)); err != nil {
						t.Fatal(err)
					}
					if w.settled(1, 2, 3) == refusals {
						t.Errorf("nobody has refused the answer for fraction %d", f)
					}
				default:
					if _, err := c.hears(fmt.Sprint("call ", i)); err != nil {
						t.Fatalf("step %d: %v", i, err)
					}
				}
			}
		})
	}
}

// A client waits for its answer from elsewhere while another fraction's client, which has called
// another server before, begins to use the same port. The first one gets the answer.
func TestUDPAnswerAfterPortIsShared(t *testing.T) {
	w := newWorld(t, 4)
	w.listenElsewhere(1, "udp4", "127.0.0.1:8057")
	w.listen(1, "udp4", "127.0.0.1:8058")
	late := w.bindElsewhere(1, "udp4", "127.0.0.1:8056")
	former := w.udpClient(3, "udp4", "127.0.0.1:8058", 30005, false)
	if _, err := former.hears("former"); err != nil {
		t.Fatal(err)
	}
	former.Close()
	waits := w.udpClient(1, "udp4", "127.0.0.1:8056", 30005, false)
	if _, err := waits.Write([]byte("first")); err != nil {
		t.Fatal(err)
	}
	second := w.udpClient(3, "udp4", "127.0.0.1:8057", 30005, false)
	if _, err := second.hears("second"); err != nil {
		t.Fatal(err)
	}
	if err := late.answer(late.asked); err != nil {
		t.Fatal(err)
	}
	if got, _, err := waits.next(); err != nil || got != "first" {
		t.Errorf("got %q: %v, want the answer", got, err)
	}
}

// Each fraction has 200 ports for its clients, and calls a server 200 times, that answers from
// the port or from another one. Each call gets its answer, with one exception: a client in fraction 1
// that has just begun to use the port may take an answer that comes from another port. Other clients
// may get such an answer, too, and wait on for their own: docs/hostlo.md, "two clients that bind the same port".
func TestFewUDPPorts(t *testing.T) {
	w := newWorld(t, 4)
	for _, l := range loopbacks {
		network := "udp" + l.family
		for i, elsewhere := range []bool{false, true} {
			address := net.JoinHostPort(l.address, fmt.Sprint(8058+i))
			if elsewhere {
				w.listenElsewhere(1, network, address)
			} else {
				w.listen(1, network, address)
			}
			var all sync.WaitGroup
			var taken, failed sync.Map // answers that fraction 1 has got of others; errors of calls
			for f := range w.joined.All() {
				all.Go(func() {
					for i := range 200 {
						c := w.udpClient(f, network, address, 20000+rand.IntN(200), false)
						call, got := fmt.Sprintf("fraction %d, call %d", f, i), ""
						_, err := c.Write([]byte(call))
						for err == nil && got != call {
							got, _, err = c.next()
							if err == nil && got != call && !elsewhere {
								err = fmt.Errorf("got %q", got)
							} else if err == nil && got != call && f == 1 {
								taken.Store(got, true)
							}
						}
						c.Close()
						if err != nil {
							failed.Store(call, err)
							return
						}
					}
				})
			}
			all.Wait()
			for call, err := range failed.Range {
				if _, ok := taken.Load(call); !ok {
					t.Errorf("%s, from elsewhere: %v, %s: %v", address, elsewhere, call, err)
				}
			}
		}
	}
}

// A client that has got answers from elsewhere has ended. A server that takes over the port
// at which it was seen is reached, after at most one refusal.
func TestServerAtPortOfFormerUDPClient(t *testing.T) {
	w := newWorld(t, 4)
	for _, l := range loopbacks {
		network, address := "udp"+l.family, net.JoinHostPort(l.address, "8060")
		s := w.listenElsewhere(1, network, address)
		for _, first := range []segment.Fraction{1, 2} { // is seen at its own port
			port := 30005 + int(first)
			var clients []udpClient
			for _, f := range []segment.Fraction{first, 3} {
				c := w.udpClient(f, network, address, port, false)
				if _, err := c.hears("hello"); err != nil {
					t.Fatalf("fraction %d, %s: %v", f, network, err)
				}
				clients = append(clients, c)
			}
			for _, c := range clients {
				c.Close()
			}
			server := net.JoinHostPort(l.address, fmt.Sprint(port))
			w.listen(4, network, server)
			refused := 0
			for i := range 5 {
				if err := w.ask(1, network, server); err != nil {
					t.Logf("call %d: %v", i, err)
					refused++
				}
			}
			if refused > 1 {
				t.Errorf("%s: %d of 5 calls of the new server fail, want at most 1", server, refused)
			}
		}
		s.close()
	}
}

// A UDP server ends, and then starts in another fraction. Clients of all fractions that keep
// their sockets notice nothing: their datagrams are not refused, and each is answered once.
func TestUDPServerMovesUnnoticed(t *testing.T) {
	w := newWorld(t, 4)
	for _, l := range loopbacks {
		network, address := "udp"+l.family, net.JoinHostPort(l.address, "8061")
		s := w.listen(4, network, address)
		var clients []udpClient
		for _, f := range []segment.Fraction{1, 1, 2, 2, 3, 3} { // two of them may have one port
			clients = append(clients, w.udpClient(f, network, address, 30002+10*(len(clients)%2), len(clients)%3 > 0))
		}
		for move := range 8 {
			for i, c := range clients {
				for request := range 1 + move/4*2 {
					if _, err := c.hears(fmt.Sprintf("client %d, move %d, request %d", i, move, request)); err != nil {
						t.Errorf("%s: client %d, move %d, request %d: %v", network, i, move, request, err)
					}
				}
			}
			w.settled(1, 2, 3, 4) // a copy of a datagram on its way would reach the next server, too
			s.close()
			s = w.listen(segment.Fraction(4-move%2), network, address) // 4 has no client
		}
		s.close()
		for i, c := range clients {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if n, from, err := c.ReadFrom(make([]byte, 100)); err == nil {
				t.Errorf("%s: client %d has got %d bytes more from %s", network, i, n, from)
			}
			c.Close()
		}
	}
}

// A member returns a datagram of nobody, and one of a client to another server: neither is
// sent on, and the client keeps its server.
func TestAttackReturnedDatagram(t *testing.T) {
	w := newWorld(t, 3)
	s := w.listen(2, "udp4", "127.0.0.1:8062")
	c := w.udpClient(1, "udp4", "127.0.0.1:8062", 30003, true)
	for i := range 3 {
		if _, err := c.hears(fmt.Sprint("request ", i)); err != nil {
			t.Fatal(err)
		}
	}
	datagram := *w.last[1].Load()
	before, got := w.settled(1, 2, 3), s.got.Load()
	returned := func(from segment.Fraction, port byte) {
		frame := slices.Clone(datagram)
		to, mac := segment.MAC(1), segment.MAC(from)
		copy(frame, to[:])
		copy(frame[6:], mac[:])
		frame[14+8] = 0 // time to live
		frame[14+20+1] += port
		copy(frame[14+20+6:], []byte{0, 0}) // no checksum
		fixChecksum(frame[14 : 14+20])
		w.send(1, frame)
	}
	returned(3, 0) // not from the server's fraction
	returned(2, 1) // of another client
	if sent := w.settled(1, 2, 3) - before; sent != 0 || s.got.Load() != got {
		t.Errorf("the fractions have sent %d frames, and the server has got %d datagrams", sent, s.got.Load()-got)
	}
	returned(2, 0)
	w.eventually("the datagram is sent to all", func() bool { return s.got.Load() == got+1 })
}
