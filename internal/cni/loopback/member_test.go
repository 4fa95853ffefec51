package loopback

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

func TestSixteen(t *testing.T) {
	w := newWorld(t, segment.MaxFractions)
	for _, l := range loopbacks {
		for _, network := range []string{"tcp" + l.family, "udp" + l.family} {
			address := net.JoinHostPort(l.address, "8040")
			for _, client := range []segment.Fraction{1, 9, 16} {
				w.refused(client, network, address)
			}
			s := w.listen(16, network, address)
			for client := range w.joined.All() {
				w.answered(client, network, address)
			}
			s.close()
		}
	}
}

// A packet that a local socket accepts never leaves the fraction.
func TestStaysInFraction(t *testing.T) {
	w := newWorld(t, 2)
	for _, l := range loopbacks {
		for _, network := range []string{"tcp" + l.family, "udp" + l.family} {
			address := net.JoinHostPort(l.address, "8041")
			w.listen(2, network, address)
			for range 20 {
				w.answered(2, network, address)
			}
		}
		w.ping(2, l.address)
	}
	time.Sleep(50 * time.Millisecond) // for the last ACKs
	for f := range w.joined.All() {
		if n := w.sent[f].Load(); n != 0 {
			t.Errorf("fraction %d has sent %d frames", f, n)
		}
	}
}

func TestPing(t *testing.T) {
	w := newWorld(t, 3)
	for f := range w.joined.All() {
		for _, address := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
			w.ping(f, address)
		}
	}
}

// ping expects one reply.
func (w *world) ping(f segment.Fraction, address string) {
	w.t.Helper()
	network, any, protocol := "ip4:icmp", "0.0.0.0", 1
	request := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Seq: 1, Data: []byte("ping")}}
	if strings.Contains(address, ":") {
		network, any, protocol = "ip6:ipv6-icmp", "::", 58
		request.Type = ipv6.ICMPTypeEchoRequest
	}
	var c *icmp.PacketConn
	w.in(f, func() (err error) {
		c, err = icmp.ListenPacket(network, any)
		return err
	})
	if c == nil {
		return
	}
	defer c.Close()
	packet, err := request.Marshal(nil)
	if err == nil {
		_, err = c.WriteTo(packet, &net.IPAddr{IP: net.ParseIP(address)})
	}
	if err != nil {
		w.t.Errorf("ping %s: %v", address, err)
		return
	}
	replies, buffer := 0, make([]byte, 100)
	for {
		limit := patience
		if replies > 0 {
			limit = 100 * time.Millisecond // for a second one
		}
		if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
			w.t.Fatal(err)
		}
		n, from, err := c.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			w.t.Errorf("ping %s: %v", address, err)
			break
		}
		m, err := icmp.ParseMessage(protocol, buffer[:n])
		if err == nil && (m.Type == ipv4.ICMPTypeEchoReply || m.Type == ipv6.ICMPTypeEchoReply) && from.String() == address {
			replies++
		}
	}
	if replies != 1 {
		w.t.Errorf("fraction %d, ping %s: %d replies", f, address, replies)
	}
}

// knows waits until a fraction knows the members.
func (w *world) knows(f segment.Fraction, want segment.Set) {
	w.t.Helper()
	w.eventually("fraction "+segment.Of(f).String()+" knows "+want.String(), func() bool {
		m, err := Membership(w.pods[f])
		return err == nil && m.Members == want
	})
}

// Joining and leaving do not affect the others' connections.
func TestJoinAndLeave(t *testing.T) {
	w := emptyWorld(t, 3)
	w.join(segment.Of(1, 2))
	w.listen(1, "tcp", "127.0.0.1:8042")
	c, err := w.dial(2, "tcp", "127.0.0.1:8042")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	all := segment.Of(1, 2, 3)
	w.announce(all)
	if err := Join(w.pods[3], nicName, w.config(3)); err != nil {
		t.Fatal(err)
	}
	w.knows(1, all)
	w.knows(2, all)
	w.answered(3, "tcp", "127.0.0.1:8042")
	for f := range all.All() {
		w.refused(f, "tcp", "127.0.0.1:8099")
	}
	s := w.listen(3, "udp", "127.0.0.1:8043")
	w.answered(2, "udp", "127.0.0.1:8043")
	s.close()

	if err := Leave(w.pods[3], nicName); err != nil {
		t.Fatal(err)
	}
	w.announce(segment.Of(1, 2))
	w.knows(1, segment.Of(1, 2))
	w.knows(2, segment.Of(1, 2))
	for f := range all.All() { // 3 alone
		w.refused(f, "tcp", "127.0.0.1:8099")
		w.refused(f, "udp", "127.0.0.1:8043")
	}
	w.refused(3, "tcp", "127.0.0.1:8042")
	if err := echo(c, "still there"); err != nil {
		t.Error(err)
	}
}

// A frozen fraction delays only connects that no other fraction accepts, and only as
// long as it is a member.
func TestFrozen(t *testing.T) {
	for _, l := range loopbacks {
		w := newWorld(t, 3)
		w.listen(1, "tcp"+l.family, net.JoinHostPort(l.address, "8044"))
		w.frozen[3].Store(true)
		w.answered(2, "tcp"+l.family, net.JoinHostPort(l.address, "8044"))

		err := w.atOnce(2, func() error {
			w.announce(segment.Of(1, 2, 3))
			result := make(chan error, 1)
			go func() {
				_, err := w.dial(2, "tcp"+l.family, net.JoinHostPort(l.address, "8099"))
				result <- err
			}()
			select {
			case err := <-result:
				t.Fatalf("the connect does not wait for fraction 3: %v", err)
			case <-time.After(300 * time.Millisecond):
			}
			w.announce(segment.Of(1, 2))
			return <-result
		})
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("got %v, want it refused", err)
		}
		w.refused(2, "udp"+l.family, net.JoinHostPort(l.address, "8099"))
	}
}

// Nobody waits for the refusals of a silent member, but its connections stay, and it is reached
// again when it answers. ::1 and 127.0.0.1 are refused one after the other, as for localhost.
func TestSilentMember(t *testing.T) {
	for _, others := range []segment.Fraction{2, 3} { // without others, and with
		w := newWorld(t, int(others))
		silent, all := others, w.joined
		address := "127.0.0.1:8063"
		w.listen(silent, "tcp", address)
		held, err := w.dial(1, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		w.frozen[silent].Store(true)
		tell := func(m segment.Membership) {
			w.number++
			m.Generation = w.number
			w.announceAs(m)
			w.eventually("the others know", func() bool {
				known, err := Membership(w.pods[1])
				return err == nil && known.Generation == m.Generation
			})
		}
		err = w.atOnce(1, func() error {
			tell(segment.Membership{Members: all})
			result := make(chan error, 1)
			go func() {
				_, err := w.dial(1, "tcp", "[::1]:8099")
				result <- err
			}()
			select {
			case err := <-result:
				t.Fatalf("the connect does not wait: %v", err)
			case <-time.After(300 * time.Millisecond):
			}
			tell(segment.Membership{Members: all, Silent: segment.Of(silent)})
			return <-result
		})
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a connect that waits gets %v, want it refused", err)
		}
		for _, l := range loopbacks {
			w.refused(1, "tcp"+l.family, net.JoinHostPort(l.address, "8099"))
			w.refused(1, "udp"+l.family, net.JoinHostPort(l.address, "8099"))
		}
		w.frozen[silent].Store(false)
		if err := echo(held, "still there"); err != nil {
			t.Error(err)
		}
		before := w.sent[silent].Load()
		tell(segment.Membership{Members: all})
		w.eventually("it has answered the reflector", func() bool { return w.sent[silent].Load() > before })
		w.answered(1, "tcp", address)
	}
}

// A fraction answers the reflector also when it hears that a member has left or is silent.
func TestAnswersReflector(t *testing.T) {
	w := newWorld(t, 3)
	for _, m := range []segment.Membership{
		{Generation: 1, Members: segment.Of(1, 2, 3)},
		{Generation: 2, Members: segment.Of(1, 2, 3), Silent: segment.Of(3)},
		{Generation: 3, Members: segment.Of(1, 2)},
	} {
		before := w.settled(1)
		w.announceAs(m)
		w.eventually(fmt.Sprintf("fraction 1 answers %+v", m), func() bool { return w.sent[1].Load() == before+1 })
		if last := *w.last[1].Load(); !bytes.Equal(last[12:], m.Frame(segment.Broadcast)[12:]) {
			t.Errorf("it answers %+v by % x", m, last)
		}
	}
}

// A connection with a fraction that has left is reset when either end next sends. UDP
// flows with it are sent to all again.
func TestDeparted(t *testing.T) {
	for _, l := range loopbacks {
		w := newWorld(t, 3)
		tcp, udp := "tcp"+l.family, "udp"+l.family
		w.listen(3, tcp, net.JoinHostPort(l.address, "8045"))
		w.listen(3, udp, net.JoinHostPort(l.address, "8045"))
		client, err := w.dial(1, tcp, net.JoinHostPort(l.address, "8045"))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		datagrams, err := w.dial(1, udp, net.JoinHostPort(l.address, "8045"))
		if err != nil {
			t.Fatal(err)
		}
		defer datagrams.Close()
		var listener net.Listener
		w.in(1, func() (err error) {
			listener, err = net.Listen(tcp, net.JoinHostPort(l.address, "8046"))
			return err
		})
		defer listener.Close()
		other, err := w.dial(3, tcp, net.JoinHostPort(l.address, "8046"))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		server, err := accept(listener)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		for _, c := range []net.Conn{client, datagrams} {
			if err := echo(c, "hello"); err != nil {
				t.Error(err)
			}
		}

		w.frozen[3].Store(true)
		w.announce(segment.Of(1, 2))
		w.knows(1, segment.Of(1, 2))
		for _, c := range []net.Conn{client, server} {
			if err := echo(c, "anybody there?"); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("got %v, want a reset", err)
			}
		}
		w.listen(2, udp, net.JoinHostPort(l.address, "8045"))
		err = echo(datagrams, "hello")
		if errors.Is(err, unix.ECONNREFUSED) { // fraction 2's of before may come late
			err = echo(datagrams, "hello")
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// Only the reflector changes the members, and only with a newer frame.
func TestMembership(t *testing.T) {
	w := newWorld(t, 2)
	both := segment.Of(1, 2)
	frame := func(generation uint32, members segment.Set, change func([]byte)) []byte {
		b := segment.Membership{Generation: generation, Members: members}.Frame(segment.MAC(1))
		if change != nil {
			change(b)
		}
		return b
	}
	for _, c := range []struct {
		what  string
		frame []byte
		want  segment.Membership
	}{
		{"of another fraction's MAC", frame(1, segment.Of(1), func(b []byte) { b[11] = 2 }), segment.Membership{Members: both}},
		{"for another fraction", frame(1, segment.Of(1), func(b []byte) { b[5] = 2 }), segment.Membership{Members: both}},
		{"of another version", frame(1, segment.Of(1), func(b []byte) { b[17]++ }), segment.Membership{Members: both}},
		{"cut off", frame(1, segment.Of(1), nil)[:25], segment.Membership{Members: both}},
		{"with fraction 17", frame(1, 1<<17|1<<1, nil), segment.Membership{Members: both}},
		{"older", frame(0xffffffff, segment.Of(1), nil), segment.Membership{Members: both}},
		{"later", frame(5, segment.Of(1, 2, 16), nil), segment.Membership{Generation: 5, Members: segment.Of(1, 2, 16)}},
		{"older than that", frame(4, both, nil), segment.Membership{Generation: 5, Members: segment.Of(1, 2, 16)}},
		{"the same", frame(5, both, nil), segment.Membership{Generation: 5, Members: both}},
		{"far ahead", frame(0x80000004, segment.Of(1), nil), segment.Membership{Generation: 0x80000004, Members: segment.Of(1)}},
		{"around the end", frame(3, both, nil), segment.Membership{Generation: 3, Members: both}},
	} {
		w.send(1, c.frame)
		w.eventually(c.what, func() bool {
			got, err := Membership(w.pods[1])
			return err == nil && got == c.want
		})
	}
	w.listen(2, "tcp", "127.0.0.1:8047")
	w.answered(1, "tcp", "127.0.0.1:8047")
}

// A packet that does not belong to the segment does not enter lo.
func TestStrangers(t *testing.T) {
	w := newWorld(t, 2)
	s := w.listen(1, "udp4", "0.0.0.0:8048")
	w.answered(2, "udp4", "127.0.0.1:8048")
	datagram := *w.last[2].Load()
	copy(datagram[14+20+6:], []byte{0, 0}) // no checksum
	change := func(at int, b ...byte) []byte {
		frame := slices.Clone(datagram)
		copy(frame[at:], b)
		fixChecksum(frame[14 : 14+20])
		return frame
	}
	// Only the program rejects packets from outside the pod.
	w.set(1, "ipv4/conf/all/rp_filter", "0")
	w.in(1, func() error {
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}})
	})
	for _, c := range []struct {
		what  string
		frame []byte
	}{
		{"its own echo", change(11, 1)},
		{"from another than a member", change(11, 3)},
		{"from the reflector", change(11, 0)},
		{"from another NIC", change(6, 2, 0, 0)},
		{"for another fraction", change(0, 0x02, 0x68, 0x35, 0, 0, 2)},
		{"from outside the pod", change(14+12, 192, 0, 2, 9)},
		{"for the pod's own address", change(14+16, 192, 0, 2, 1)},
		{"a fragment", change(14+6, 0x20)},
		{"cut off", datagram[:30]},
		{"ARP", change(12, 8, 6)},
	} {
		before := s.got.Load()
		w.send(1, c.frame)
		time.Sleep(20 * time.Millisecond)
		if s.got.Load() != before {
			t.Errorf("%s: accepted", c.what)
		}
	}
	w.send(1, change(0))
	w.eventually("the datagram itself is taken", func() bool { return s.got.Load() == 2 })
}

// fixChecksum sets the checksum of an IPv4 header.
func fixChecksum(header []byte) {
	copy(header[10:], []byte{0, 0})
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(header[10:], ^uint16(sum))
}

// While a member comes and goes, the others lose no request over UDP, their connections do not
// stall, and their connects do not wait, also those to a port without a server.
func TestMembersComeAndGoUnnoticed(t *testing.T) {
	w := emptyWorld(t, 4)
	w.join(segment.Of(1, 2, 3))
	for _, l := range loopbacks {
		w.listen(1, "tcp"+l.family, net.JoinHostPort(l.address, "8064"))
		w.listen(1, "udp"+l.family, net.JoinHostPort(l.address, "8064"))
	}
	var all sync.WaitGroup
	stop := make(chan struct{})
	var requests atomic.Int64
	repeat := func(what string, f func() error) {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				begin := time.Now()
				if err := f(); err != nil {
					t.Errorf("%s: %v after %v", what, err, time.Since(begin))
					return
				}
				requests.Add(1)
			}
		})
	}
	before, err := strconv.Atoi(w.repeatedSYNs(2))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loopbacks {
		address, closed := net.JoinHostPort(l.address, "8064"), net.JoinHostPort(l.address, "8099")
		for _, network := range []string{"tcp" + l.family, "udp" + l.family} {
			held, err := w.dial(2, network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			repeat(network+", held", func() error { return echo(held, "held") })
			repeat(network+", new", func() error { return w.ask(2, network, address) })
			if network[0] == 'u' { // a datagram that a member gets as it leaves is not refused
				continue
			}
			repeat(network+", closed", func() error {
				if err := w.ask(2, network, closed); !errors.Is(err, unix.ECONNREFUSED) {
					return fmt.Errorf("got %w, want it refused", err)
				}
				return nil
			})
		}
	}
	for range 5 {
		w.number++
		if err := Join(w.pods[4], nicName, Config{Fraction: 4, Members: segment.Of(1, 2, 3, 4), Generation: w.number}); err != nil {
			t.Fatal(err)
		}
		w.announce(segment.Of(1, 2, 3, 4)) // it is ready
		w.knows(2, segment.Of(1, 2, 3, 4))
		if err := Leave(w.pods[4], nicName); err != nil {
			t.Fatal(err)
		}
		w.announce(segment.Of(1, 2, 3))
		w.knows(2, segment.Of(1, 2, 3))
	}
	close(stop)
	all.Wait()
	t.Logf("%d requests", requests.Load())
	after, err := strconv.Atoi(w.repeatedSYNs(2))
	if err != nil || after-before > 3 { // a busy machine is that late
		t.Errorf("TCP has repeated its SYN %d times, %v", after-before, err)
	}
}
