package loopback

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"

	"unnest/internal/hostapi/segment"
)

// ownAddress gives a fraction an interface with an address, as the pod's network does.
func (w *world) ownAddress(f segment.Fraction, address string) {
	w.t.Helper()
	w.in(f, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 1500}, PeerName: "eth1"}); err != nil {
			return err
		}
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(address + "/24")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(link, a), netlink.LinkSetUp(link), netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}}))
	})
	if w.t.Failed() {
		w.t.FailNow()
	}
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

// A client reaches servers of all fractions at the address of its own fraction, if they
// listen on any address, and from that address.
func TestOwnAddress(t *testing.T) {
	w := newWorld(t, 3)
	for f := range w.joined.All() {
		w.ownAddress(f, fmt.Sprintf("10.1.2.%d", f))
	}
	const own = "10.1.2.2"
	for _, network := range []string{"tcp4", "udp4"} {
		w.refused(2, network, own+":8099")
		for _, server := range []segment.Fraction{1, 2, 3} {
			s := w.listen(server, network, "0.0.0.0:8070")
			for _, dial := range []struct{ from, to string }{{"", own}, {own, own}, {own, "127.0.0.1"}, {"127.0.0.1", own}, {own, "127.0.0.2"}} {
				if network == "udp4" && dial.to != own || network == "udp4" && dial.from == "127.0.0.1" {
					continue // Linux answers such a datagram from another address than it was sent to
				}
				d := dialer()
				if dial.from != "" {
					d = from(network, dial.from)
				}
				c, err := w.dialWith(2, d, network, dial.to+":8070")
				for range 2 {
					if err == nil {
						err = echo(c, "hello")
					}
				}
				if err != nil {
					t.Errorf("%s, server in %d, from %q to %s: %v", network, server, dial.from, dial.to, err)
					continue
				}
				if got := c.RemoteAddr().String(); got != dial.to+":8070" {
					t.Errorf("%s, server in %d: the peer's address is %s, want %s", network, server, got, dial.to)
				}
				c.Close()
			}
			s.close()
			w.refused(2, network, own+":8070")
		}
		// A client from the pod's address reaches a server on loopback.
		s := w.listen(3, network, "127.0.0.1:8073")
		d := from(network, own)
		if c, err := w.dialWith(2, d, network, "127.0.0.1:8073"); err != nil {
			t.Errorf("%s: %v", network, err)
		} else if err := errors.Join(echo(c, "hello"), c.Close()); err != nil {
			t.Errorf("%s: %v", network, err)
		}
		s.close()
		// A server on loopback is not reached at the pod's address.
		s = w.listen(1, network, "127.0.0.1:8071")
		w.refused(2, network, own+":8071")
		w.answered(2, network, "127.0.0.1:8071")
		s.close()
		// The address of another fraction is not this one's.
		s = w.listen(1, network, "10.1.2.1:8072")
		w.refused(2, network, own+":8072")
		w.answered(1, network, "10.1.2.1:8072")
		s.close()
	}
}

// Connections that a packet filter of the pod redirects to a server of the same fraction,
// as a service mesh does, stay there.
func TestRedirected(t *testing.T) {
	w := newWorld(t, 2)
	w.ownAddress(2, "10.1.2.2")
	w.in(2, func() error {
		out, err := exec.Command("nft", "add table ip t; add chain ip t out { type nat hook output priority -100; }; "+
			"add rule ip t out ip daddr 10.1.2.99 meta l4proto { tcp, udp } redirect to :8091").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	for _, network := range []string{"tcp4", "udp4"} {
		w.listen(2, network, "127.0.0.1:8091")
		w.answered(2, network, "10.1.2.99:80")
	}
	if n := w.sent[2].Load(); n != 0 {
		t.Errorf("%d frames have left the fraction", n)
	}
}
