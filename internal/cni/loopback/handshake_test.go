package loopback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// synFrame is a SYN that one fraction sends to another one.
func synFrame(from, to segment.Fraction, loopback string, sport, dport uint16) []byte {
	dst, src := segment.MAC(to), segment.MAC(from)
	frame := append(append([]byte{}, dst[:]...), src[:]...)
	address := netip.MustParseAddr(loopback)
	tcp := make([]byte, 20)
	binary.BigEndian.PutUint16(tcp, sport)
	binary.BigEndian.PutUint16(tcp[2:], dport)
	tcp[7], tcp[12], tcp[13] = 1, 0x50, 0x02
	if address.Is4() {
		frame = append(frame, 8, 0, 0x45, 0, 0, 40, 0, 1, 0, 0, 64, unix.IPPROTO_TCP, 0, 0)
	} else {
		frame = append(frame, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, unix.IPPROTO_TCP, 64)
	}
	return append(append(append(frame, address.AsSlice()...), address.AsSlice()...), tcp...)
}

// A SYN for a fraction whose listener has gone returns to its sender. If the sender has
// repeated it meanwhile, that is the end of it: two fractions do not send it to and fro.
func TestReturnedTooLate(t *testing.T) {
	w := newWorld(t, 2)
	for _, l := range loopbacks {
		before := w.sent[1].Load() + w.sent[2].Load()
		w.send(2, synFrame(1, 2, l.address, 40000, 8120))
		w.eventually("it returns", func() bool { return w.sent[1].Load()+w.sent[2].Load() > before })
		time.Sleep(200 * time.Millisecond) // thousands of frames if it goes to and fro
		if n := w.sent[1].Load() + w.sent[2].Load() - before; n != 1 {
			t.Errorf("%s: the fractions have sent %d frames, want 1", l.address, n)
		}
	}
}

// answersLost has a fraction lose what servers answer to its SYNs, until the function that it
// returns is called.
func (w *world) answersLost(f segment.Fraction, port int) (restore func()) {
	w.t.Helper()
	w.rules(f, fmt.Sprintf("add table inet lose; add chain inet lose in { type filter hook input priority 0; }; "+
		"add rule inet lose in tcp sport %d tcp flags & (syn|ack) == syn|ack drop", port))
	return func() { w.rules(f, "delete table inet lose") }
}

// start dials in the background.
func (w *world) start(f segment.Fraction, d net.Dialer, network, address string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		c, err := w.dialWith(f, d, network, address)
		if err == nil {
			err = errors.Join(echo(c, "hello"), c.Close())
		}
		ended <- err
	}()
	return ended
}

// A client whose SYN is repeated is seen at the same port as before, although its own port has
// become free: the server has a socket for the handshake that began there.
func TestRepeatedSYNKeepsItsPort(t *testing.T) {
	w := newWorld(t, 3)
	for i, l := range loopbacks {
		port := 8121 + i
		network, at := "tcp"+l.family, net.JoinHostPort(l.address, fmt.Sprint(port))
		listener := w.listener(1, network, at)
		c := w.call(listener, at, 20040, 2)
		restore := w.answersLost(3, port)
		ended := w.start(3, fixed(l.address, 20040), network, at)
		w.eventually("the handshake has begun", func() bool { return w.halfOpen(1) == 1 })
		c.close()
		restore()
		accepted, err := accept(listener)
		if err != nil {
			t.Fatal(err)
		}
		go func() { echoAll(accepted); accepted.Close() }()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", at, err)
		}
		if seen := accepted.RemoteAddr().(*net.TCPAddr).Port; seen == 20040 {
			t.Errorf("%s: the client is seen at another port than at first", at)
		}
		w.eventually("no connection is half open", func() bool { return w.halfOpen(1) == 0 })
	}
}

// A handshake ends although what is known of it was evicted, also if another client has the
// client's port.
func TestForgottenHandshake(t *testing.T) {
	w := newWorld(t, 3)
	for i, l := range loopbacks {
		for j, others := range [][]segment.Fraction{{}, {3}} {
			port := 8123 + 2*i + j
			network, at := "tcp"+l.family, net.JoinHostPort(l.address, fmt.Sprint(port))
			listener := w.listener(1, network, at)
			c := w.call(listener, at, 20041, others...)
			restore := w.answersLost(2, port)
			ended := w.start(2, fixed(l.address, 20041), network, at)
			w.eventually("the handshake has begun", func() bool { return w.halfOpen(1) == 1 })
			if w.forget(1, "hostlo_tcp") == 0 {
				t.Error("there was nothing to forget")
			}
			w.forget(2, "hostlo_tcp")
			w.forget(2, "hostlo_refusals")
			restore()
			accepted, err := accept(listener)
			if err != nil {
				t.Fatal(err)
			}
			go func() { echoAll(accepted); accepted.Close() }()
			if err := <-ended; err != nil {
				t.Errorf("%s with others %v: %v", at, others, err)
			}
			c.exchange(t, "after the handshake")
			c.close()
		}
	}
}

// With SYN cookies a connection has no socket before the client's answer arrives. Another client
// does not get its port until then.
func TestCookiesKeepThePort(t *testing.T) {
	w := newWorld(t, 3)
	w.set(1, "ipv4/tcp_syncookies", "2")
	for i, l := range loopbacks {
		port := 8127 + i
		network, at := "tcp"+l.family, net.JoinHostPort(l.address, fmt.Sprint(port))
		w.listen(1, network, at)
		inTime := false
		for try := 0; try < 20 && !inTime; try++ {
			w.rules(2, "add table inet lose; add chain inet lose out { type filter hook output priority 0; }; "+
				fmt.Sprintf("add rule inet lose out tcp dport %d tcp flags & (syn|ack) == ack drop", port))
			start := time.Now()
			first, err := w.dialWith(2, fixed(l.address, 20050+try), network, at)
			if err != nil {
				t.Fatal(err)
			}
			second, err := w.dialWith(3, fixed(l.address, 20050+try), network, at)
			if err != nil {
				t.Fatal(err)
			}
			inTime = time.Since(start) < time.Second/2 // the port is kept for a second
			w.rules(2, "delete table inet lose")
			if err := errors.Join(echo(first, "first"), echo(second, "second")); err != nil && inTime {
				t.Errorf("%s: %v", at, err)
			}
			first.Close()
			second.Close()
		}
		if !inTime {
			t.Log("the machine is too busy: no two connects within half a second, in 20 tries")
		}
	}
}

// visiblePort is what bpf/port.h computes.
func visiblePort(port uint16, fraction segment.Fraction, try uint32) uint16 {
	if try == 0 {
		return port
	}
	var order [2]byte
	binary.BigEndian.PutUint16(order[:], port)
	hash := (uint32(binary.NativeEndian.Uint16(order[:])) ^ uint32(fraction)<<16 ^ try<<24) * 0x9e3779b1
	hash = (hash ^ hash>>15) * 0x85ebca77
	return uint16(1024 + (hash^hash>>13)%(65536-1024))
}

// A client connects although connections that have ended keep all ports at which it could be
// seen, also in the server's own fraction.
func TestAllPortsInTimeWait(t *testing.T) {
	w := newWorld(t, 3)
	for i, l := range loopbacks {
		port := 8130 + i
		network, at := "tcp"+l.family, net.JoinHostPort(l.address, fmt.Sprint(port))
		listener := w.listener(1, network, at)
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
		for _, client := range []segment.Fraction{2, 1} {
			const own = 20060
			for try := range uint32(16) {
				if err := w.hearFrom(3, fixed(l.address, int(visiblePort(own, client, try))), network, at); err != nil {
					t.Fatalf("%s, try %d: %v", at, try, err)
				}
			}
			if err := w.hearFrom(client, fixed(l.address, own), network, at); err != nil {
				t.Errorf("fraction %d, %s: %v", client, at, err)
			}
		}
	}
}

// A connect succeeds, or is refused, although the reflector has dropped its first SYN and all
// refusals of it, as its limit of broadcasts may.
func TestDroppedSYN(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		network := "tcp" + l.family
		w.listen(1, network, net.JoinHostPort(l.address, "8132"))
		for port, want := range map[string]error{"8132": nil, "8133": unix.ECONNREFUSED} {
			before := w.sent[2].Load()
			w.frozen[2].Store(true)
			ended := w.start(2, dialer(), network, net.JoinHostPort(l.address, port))
			w.eventually("a SYN is sent", func() bool { return w.sent[2].Load() > before })
			w.frozen[2].Store(false)
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", net.JoinHostPort(l.address, port), err, want)
			}
		}
	}
}
