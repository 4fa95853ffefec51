package loopback

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// ownAddress gives a fraction an interface with addresses, as the pod's network does.
func (w *world) ownAddress(f segment.Fraction, addresses ...string) {
	w.t.Helper()
	w.in(f, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 1500}, PeerName: "eth1"}); err != nil {
			return err
		}
		return errors.Join(setUp("eth0", addresses...), setUp("eth1"))
	})
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// setUp adds addresses to a link of this network namespace, and sets it up.
func setUp(name string, addresses ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, address := range addresses {
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// from is a dialer from an address, and from any port.
func from(network, address string) net.Dialer {
	d := dialer()
	if network[0] == 't' {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(address)}
	} else {
		d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(address)}
	}
	return d
}

// ownAddresses are the addresses of fraction 2 in TestOwnAddress, and others there.
var ownAddresses = []struct{ family, prefix, loopback, other, any string }{
	{"4", "10.1.2.", "127.0.0.1", "127.0.0.2", "0.0.0.0"},
	{"6", "fd00:1:2::", "::1", "", "::"},
}

// A client reaches servers of all fractions at the address of its own fraction, if they
// listen on any address, and from that address.
func TestOwnAddress(t *testing.T) {
	w := newWorld(t, 3)
	for f := range w.joined.All() {
		w.ownAddress(f, fmt.Sprintf("10.1.2.%d/24", f), fmt.Sprintf("fd00:1:2::%d/64", f))
	}
	for _, a := range ownAddresses {
		own := a.prefix + "2"
		for _, network := range []string{"tcp" + a.family, "udp" + a.family} {
			w.refused(2, network, net.JoinHostPort(own, "8099"))
			for _, server := range []segment.Fraction{1, 2, 3} {
				s := w.listen(server, network, net.JoinHostPort(a.any, "8070"))
				for _, dial := range []struct{ from, to string }{{"", own}, {own, own}, {own, a.loopback}, {a.loopback, own}, {own, a.other}} {
					if dial.to == "" || network[0] == 'u' && (dial.to != own || dial.from == a.loopback) {
						continue // Linux answers such a datagram from another address than it was sent to
					}
					what := fmt.Sprintf("%s, server in %d, from %q to %s", network, server, dial.from, dial.to)
					w.echoes(what, network, dial.from, net.JoinHostPort(dial.to, "8070"))
				}
				s.close()
				w.refused(2, network, net.JoinHostPort(own, "8070"))
			}
			// A client from the pod's address reaches a server on loopback.
			s := w.listen(3, network, net.JoinHostPort(a.loopback, "8073"))
			w.echoes(network+" to loopback", network, own, net.JoinHostPort(a.loopback, "8073"))
			s.close()
			// A server on loopback is not reached at the pod's address.
			s = w.listen(1, network, net.JoinHostPort(a.loopback, "8071"))
			w.refused(2, network, net.JoinHostPort(own, "8071"))
			w.answered(2, network, net.JoinHostPort(a.loopback, "8071"))
			s.close()
			// The address of another fraction is not this one's.
			s = w.listen(1, network, net.JoinHostPort(a.prefix+"1", "8072"))
			w.refused(2, network, net.JoinHostPort(own, "8072"))
			w.answered(1, network, net.JoinHostPort(a.prefix+"1", "8072"))
			s.close()
		}
	}
}

// echoes has fraction 2 exchange messages from an address; "": any.
func (w *world) echoes(what, network, source, to string) {
	w.t.Helper()
	d := dialer()
	if source != "" {
		d = from(network, source)
	}
	c, err := w.dialWith(2, d, network, to)
	for range 2 {
		if err == nil {
			err = echo(c, "hello")
		}
	}
	if err != nil {
		w.t.Errorf("%s: %v", what, err)
		return
	}
	defer c.Close()
	if got := c.RemoteAddr().String(); got != to {
		w.t.Errorf("%s: the peer's address is %s, want %s", what, got, to)
	}
}

// rules loads rules of nft in a fraction.
func (w *world) rules(f segment.Fraction, rules string) {
	w.t.Helper()
	w.in(f, func() error {
		out, err := exec.Command("nft", rules).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// redirects redirects connections to an address, which begin in the fraction (output) or come
// to it (prerouting), to a port, as the packet filter of a service mesh does.
func (w *world) redirects(f segment.Fraction, hook, match string, port int) {
	w.t.Helper()
	w.rules(f, fmt.Sprintf("add table inet mesh; add chain inet mesh %[1]s { type nat hook %[1]s priority -100; }; "+
		"add rule inet mesh %[1]s %[2]s redirect to :%[3]d", hook, match, port))
}

// Connections that a packet filter of the pod redirects to a server of the same fraction,
// as a service mesh does, stay there.
func TestRedirected(t *testing.T) {
	w := newWorld(t, 2)
	w.ownAddress(2, "10.1.2.2/24", "fd00:1:2::2/64")
	w.redirects(2, "output", "ip daddr 10.1.2.99 meta l4proto { tcp, udp }", 8091)
	w.redirects(2, "output", "ip6 daddr fd00:1:2::99 meta l4proto { tcp, udp }", 8091)
	for _, network := range []string{"tcp4", "udp4", "tcp6", "udp6"} {
		host, server := "10.1.2.99", "127.0.0.1:8091"
		if network[3] == '6' {
			host, server = "fd00:1:2::99", "[::1]:8091"
		}
		w.listen(2, network, server)
		w.answered(2, network, net.JoinHostPort(host, "80"))
	}
	if n := w.settled(2); n != 0 {
		t.Errorf("%d frames have left the fraction", n)
	}
}

// A packet filter redirects between loopback addresses: a client's connection to another
// port, whose server (the sidecar of a service mesh) is in any fraction.
func TestRedirectedOnLoopback(t *testing.T) {
	w := newWorld(t, 3)
	for _, l := range loopbacks {
		w.redirects(2, "output", "meta l4proto { tcp, udp } th dport 8100", 8101)
		for _, network := range []string{"tcp" + l.family, "udp" + l.family} {
			address := net.JoinHostPort(l.address, "8100")
			w.refused(2, network, address)
			for _, sidecar := range []segment.Fraction{2, 1, 3} {
				s := w.listen(sidecar, network, net.JoinHostPort(l.address, "8101"))
				for range 3 {
					w.answered(2, network, address)
				}
				if entries := w.forget(2, "hostlo_tcp"); network[0] == 't' && sidecar != 2 && entries == 0 {
					t.Error("there was nothing to forget")
				}
				s.close()
				w.refused(2, network, address)
			}
		}
		w.rules(2, "delete table inet mesh")
	}
}

// A packet filter redirects what comes for a port of a fraction to another one: the sidecar
// serves instead of a server that does not listen on the port itself.
func TestRedirectedAtServer(t *testing.T) {
	w := newWorld(t, 3)
	w.redirects(1, "prerouting", "iifname lo meta l4proto tcp th dport 8102", 8103)
	for _, l := range loopbacks {
		network, address := "tcp"+l.family, net.JoinHostPort(l.address, "8102")
		listener := w.listener(1, network, net.JoinHostPort(l.address, "8103"))
		c := w.call(listener, address, 20030, 2, 3)
		c.exchange(t, "through the redirect")
		c.close()
		listener.Close()
		w.refused(2, network, address)
	}
}
