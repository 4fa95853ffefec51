package loopback

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// elsewhere stands for a network namespace outside of the pod, which routes between all
// fractions.
const elsewhere = segment.Reflector

// address returns the address of a fraction in its network.
func address(f segment.Fraction, family string) string {
	if family == "4" {
		return fmt.Sprintf("10.1.%d.2", f)
	}
	return fmt.Sprintf("fd00:%d::2", f)
}

// routedWorld is a world with n fractions that have joined, each with an interface eth0.
func routedWorld(t testing.TB, n int) *world {
	t.Helper()
	w := ordinaryWorld(t, n)
	all := segment.Set(0)
	for f := range w.taps {
		all = all.With(f)
	}
	w.join(all)
	return w
}

// ordinaryWorld is a world with n fractions that have not joined, each with an interface eth0.
func ordinaryWorld(t testing.TB, n int) *world {
	t.Helper()
	w := emptyWorld(t, n)
	out, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	w.pods[elsewhere] = out
	w.set(elsewhere, "ipv4/ip_forward", "1")
	w.set(elsewhere, "ipv6/conf/all/forwarding", "1")
	w.in(elsewhere, func() error { return netlink.LinkSetUp(lo) })
	for f := range w.taps {
		w.route(f)
	}
	if t.Failed() {
		t.FailNow()
	}
	return w
}

// route connects a fraction with the namespace outside.
func (w *world) route(f segment.Fraction) {
	w.t.Helper()
	name := fmt.Sprintf("veth%d", f)
	w.in(elsewhere, func() error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500}, PeerName: "eth0", PeerNamespace: netlink.NsFd(w.pods[f].Fd())}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		return setUp(name, fmt.Sprintf("10.1.%d.1/24", f), fmt.Sprintf("fd00:%d::1/64", f))
	})
	w.in(f, func() error {
		if err := setUp("eth0", address(f, "4")+"/24", address(f, "6")+"/64"); err != nil {
			return err
		}
		return errors.Join(
			netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(fmt.Sprintf("10.1.%d.1", f))}),
			netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(fmt.Sprintf("fd00:%d::1", f))}))
	})
}

// anyOf is the address on which a server serves all addresses of a family.
var anyOf = map[string]string{"4": "0.0.0.0", "6": "::"}

// From outside, a server in any fraction is reached at the address of any fraction.
func TestOutside(t *testing.T) {
	w := routedWorld(t, 3)
	for _, l := range loopbacks {
		for _, network := range []string{"tcp" + l.family, "udp" + l.family} {
			for carrier := range w.joined.All() {
				w.refused(elsewhere, network, net.JoinHostPort(address(carrier, l.family), "8119"))
			}
			for server := range w.joined.All() {
				s := w.listen(server, network, net.JoinHostPort(anyOf[l.family], "8110"))
				for carrier := range w.joined.All() {
					at := net.JoinHostPort(address(carrier, l.family), "8110")
					w.answered(elsewhere, network, at)
					for client := range w.joined.All() {
						w.answered(client, network, at)
					}
				}
				s.close()
				for carrier := range w.joined.All() {
					w.refused(elsewhere, network, net.JoinHostPort(address(carrier, l.family), "8110"))
				}
			}
			// A server on loopback is not reached.
			s := w.listen(2, network, net.JoinHostPort(l.address, "8111"))
			w.refused(elsewhere, network, net.JoinHostPort(address(1, l.family), "8111"))
			w.refused(elsewhere, network, net.JoinHostPort(address(2, l.family), "8111"))
			s.close()
		}
	}
}

// A server sees an outside client at the client's own address if the client uses the address of the server's fraction, and else at an alias.
func TestOutsideSeenAs(t *testing.T) {
	w := routedWorld(t, 2)
	alias := map[string]netip.Prefix{"4": netip.MustParsePrefix("127.128.0.0/9"), "6": netip.MustParsePrefix("fd68:6f73:746c:6f00::/96")}
	for _, l := range loopbacks {
		s := w.listener(2, "tcp"+l.family, net.JoinHostPort(anyOf[l.family], "8114"))
		for carrier := range w.joined.All() {
			c, err := w.dial(elsewhere, "tcp"+l.family, net.JoinHostPort(address(carrier, l.family), "8114"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			accepted, err := s.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer accepted.Close()
			seen := accepted.RemoteAddr().(*net.TCPAddr).AddrPort()
			if same := accepted.RemoteAddr().String() == c.LocalAddr().String(); same != (carrier == 2) || !same && !alias[l.family].Contains(seen.Addr().Unmap()) {
				t.Errorf("at the address of fraction %d, the server in fraction 2 sees %s at %s", carrier, c.LocalAddr(), seen)
			}
		}
	}
}

// What a socket of the fraction accepts does not leave it for the segment.
func TestOutsideStays(t *testing.T) {
	w := routedWorld(t, 2)
	for _, l := range loopbacks {
		for _, network := range []string{"tcp" + l.family, "udp" + l.family} {
			w.listen(1, network, net.JoinHostPort(anyOf[l.family], "8112"))
			for range 3 {
				w.answered(elsewhere, network, net.JoinHostPort(address(1, l.family), "8112"))
			}
		}
	}
	if n := w.settled(1, 2); n != 0 {
		t.Errorf("the fractions have sent %d frames", n)
	}
}

// Data from and to outside arrives whole, in segments that fit the client's link.
func TestOutsideBulk(t *testing.T) {
	w := routedWorld(t, 2)
	w.in(elsewhere, func() error { // the client expects larger segments than eth0 of fraction 1 lets pass
		link, err := netlink.LinkByName("veth1")
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(link, 9000)
	})
	for _, l := range loopbacks {
		w.listen(2, "tcp"+l.family, net.JoinHostPort(anyOf[l.family], "8113"))
		c, err := w.dial(elsewhere, "tcp"+l.family, net.JoinHostPort(address(1, l.family), "8113"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		const size = 8 << 20
		sent, got := sha256.New(), sha256.New()
		var sender sync.WaitGroup
		sender.Go(func() {
			random := rand.NewChaCha8([32]byte{1})
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
			t.Errorf("%s: %d bytes came back, %v", l.address, n, err)
		}
	}
}

// Segments for clients outside fit a route that has a smaller MTU than its link.
func TestOutsideRouteMTU(t *testing.T) {
	w := ordinaryWorld(t, 2)
	w.in(1, func() error {
		return errors.Join(
			netlink.RouteReplace(&netlink.Route{Gw: net.ParseIP("10.1.1.1"), MTU: 1300}),
			netlink.RouteReplace(&netlink.Route{Gw: net.ParseIP("fd00:1::1"), MTU: 1300}))
	})
	w.join(segment.Of(1, 2))
	for _, l := range loopbacks {
		w.listen(2, "tcp"+l.family, net.JoinHostPort(anyOf[l.family], "8118"))
		c, err := w.dial(elsewhere, "tcp"+l.family, net.JoinHostPort(address(1, l.family), "8118"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = raw.Control(func(fd uintptr) {
			if size, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG); err != nil || size > 1260 {
				t.Errorf("IPv%s: segments have up to %d bytes, %v; want at most 1260", l.family, size, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Many clients outside connect at once, also from the same port of different addresses.
func TestOutsideAtOnce(t *testing.T) {
	w := routedWorld(t, 3)
	w.in(elsewhere, func() error { return setUp("lo", "10.1.1.77/32", "10.129.1.77/32", "fd00:1::77/128") })
	w.in(1, func() error { // both have the same lower 23 bits
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		_, to, _ := net.ParseCIDR("10.129.1.77/32")
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Gw: net.ParseIP("10.1.1.1")})
	})
	w.listen(2, "tcp4", "0.0.0.0:8114")
	var all sync.WaitGroup
	for _, source := range []string{"10.1.1.77", "10.129.1.77"} {
		for i := range 100 {
			all.Go(func() {
				d := fixed(source, 21000+i)
				c, err := w.dialWith(elsewhere, d, "tcp4", net.JoinHostPort(address(1, "4"), "8114"))
				if err == nil {
					err = errors.Join(echo(c, fmt.Sprint(source, i)), c.Close())
				}
				if err != nil {
					t.Errorf("from %s: %v", d.LocalAddr, err)
				}
			})
		}
	}
	all.Wait()
}

// Of two servers in different fractions, each connection of a client outside is with one.
func TestOutsideTwoServers(t *testing.T) {
	w := routedWorld(t, 3)
	for _, l := range loopbacks {
		for _, f := range []segment.Fraction{2, 3} {
			w.listen(f, "tcp"+l.family, net.JoinHostPort(anyOf[l.family], "8115"))
		}
		for range 20 {
			w.answered(elsewhere, "tcp"+l.family, net.JoinHostPort(address(1, l.family), "8115"))
		}
	}
	for f := range w.joined.All() {
		w.eventually("no connection is half open", func() bool { return w.halfOpen(f) == 0 })
	}
}

// When the fraction with the server leaves, its connections with clients outside are reset.
func TestOutsideServerLeaves(t *testing.T) {
	w := routedWorld(t, 3)
	for _, l := range loopbacks {
		w.listen(2, "tcp"+l.family, net.JoinHostPort(anyOf[l.family], "8116"))
	}
	var conns []net.Conn
	for _, l := range loopbacks {
		c, err := w.dial(elsewhere, "tcp"+l.family, net.JoinHostPort(address(1, l.family), "8116"))
		if err == nil {
			err = echo(c, "hello")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	w.announce(segment.Of(1, 3))
	for _, c := range conns {
		w.eventually("the connection is reset", func() bool { return errors.Is(echo(c, "hello"), unix.ECONNRESET) })
	}
	for _, l := range loopbacks {
		w.refused(elsewhere, "tcp"+l.family, net.JoinHostPort(address(1, l.family), "8116"))
	}
}

// While all other members are silent, a port that this fraction does not serve is refused at once. When they answer, they are asked again.
func TestOutsideSilentMember(t *testing.T) {
	w := routedWorld(t, 2)
	w.frozen[2].Store(true)
	m := segment.Membership{Generation: 1, Members: w.joined, Silent: segment.Of(2)}
	tell := func() {
		w.announceAs(m)
		w.eventually("fraction 1 knows", func() bool {
			known, err := Membership(w.pods[1])
			return err == nil && known.Generation == m.Generation
		})
	}
	tell()
	for _, l := range loopbacks {
		for _, network := range []string{"udp" + l.family, "tcp" + l.family} {
			w.refused(elsewhere, network, net.JoinHostPort(address(1, l.family), "8120"))
			w.listen(1, network, net.JoinHostPort(anyOf[l.family], "8121"))
			w.answered(elsewhere, network, net.JoinHostPort(address(1, l.family), "8121"))
		}
	}
	w.frozen[2].Store(false)
	m.Generation, m.Silent = 2, 0
	tell()
	for _, l := range loopbacks {
		for _, network := range []string{"udp" + l.family, "tcp" + l.family} {
			w.listen(2, network, net.JoinHostPort(anyOf[l.family], "8122"))
			w.answered(elsewhere, network, net.JoinHostPort(address(1, l.family), "8122"))
		}
	}
}

// A client outside cannot have fractions asked more often than the limit, whatever it sends.
func TestOutsideIsLimited(t *testing.T) {
	w := routedWorld(t, 2)
	const limit = 2000
	datagram := func(port int) {
		d := from("udp4", "10.1.1.1")
		d.LocalAddr.(*net.UDPAddr).Port = port
		one, err := w.dialWith(elsewhere, d, "udp4", net.JoinHostPort(address(1, "4"), "8117"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = one.Write([]byte("x"))
		one.Close()
	}
	raw := -1
	w.in(elsewhere, func() (err error) {
		raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return err
	})
	defer unix.Close(raw)
	sendTCP := func(port int, flags byte) { // without a checksum: no kernel answers it
		tcp := []byte{byte(port >> 8), byte(port), 8117 >> 8, 8117 & 0xff, 0, 0, 0, 1, 0, 0, 0, 1, 5 << 4, flags, 16, 0, 0, 0, 0, 0}
		if err := unix.Sendto(raw, tcp, 0, &unix.SockaddrInet4{Addr: [4]byte{10, 1, 1, 2}}); err != nil {
			t.Fatal(err)
		}
	}
	const syn, ack, first = 2, 16, 22000
	for _, flood := range []struct {
		name string
		asks bool // surely more than once
		send func(n int)
	}{
		{"datagrams, each from a new port", true, func(n int) { datagram(first + n) }},
		{"SYNs, each from a new port", true, func(n int) { sendTCP(first+n, syn) }},
		{"segments after a SYN within the limit", true, func(int) { sendTCP(first, ack) }},
		{"segments after SYNs beyond the limit", false, func(n int) { sendTCP(first+4*limit-1-n%100, ack) }},
	} {
		<-time.After(1100 * time.Millisecond) // the floods before count for a second
		before, start := w.settled(1), time.Now()
		for n := range 4 * limit {
			flood.send(n)
		}
		seconds := int64(time.Since(start)/time.Second) + 2
		n := w.settled(1) - before
		if n > seconds*limit {
			t.Errorf("%s: fraction 1 has sent %d frames in %d s, want at most %d", flood.name, n, seconds, seconds*limit)
		}
		if n == 0 && flood.asks {
			t.Errorf("%s: fraction 1 has sent no frame", flood.name)
		}
	}
}

// Leave undoes what Join has changed at the interfaces that lead outside.
func TestLeaveRestoresOutside(t *testing.T) {
	w := routedWorld(t, 2)
	joined := w.picture(1)
	if err := Leave(w.pods[1], nicName); err != nil {
		t.Fatal(err)
	}
	for _, line := range w.picture(1) {
		if line == "eth0 has clsact" || line == aliases().Dst.String() {
			t.Errorf("after Leave, %s", line)
		}
	}
	for _, want := range []string{"eth0 has clsact", aliases().Dst.String()} {
		found := false
		for _, line := range joined {
			found = found || line == want
		}
		if !found {
			t.Errorf("Join has not made %q: %q", want, joined)
		}
	}
}
