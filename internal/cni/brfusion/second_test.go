package brfusion_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/netdev/antispoof"
)

// serveHost makes a bridge with the gateway's addresses on the host, with all NICs of the pod as ports,
// which may send from their own addresses only.
func (l *lab) serveHost() {
	l.t.Helper()
	l.Must(l.Host.Do(func(ns.NetNS) error {
		a := netlink.NewLinkAttrs()
		a.Name = "br0"
		br := &netlink.Bridge{LinkAttrs: a}
		if err := errors.Join(netlink.LinkAdd(br), netlink.LinkSetUp(br)); err != nil {
			return err
		}
		for _, address := range []string{"10.201.0.1/16", "fd00:201::1/64"} {
			gateway, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			gateway.Flags = 0x2 // without duplicate address detection
			if err := netlink.AddrAdd(br, gateway); err != nil {
				return err
			}
		}
		guard, err := antispoof.Open()
		if err != nil {
			return err
		}
		defer guard.Close()
		for n := 1; n <= len(l.daemon.all()); n++ {
			tap, err := netlink.LinkByName(fmt.Sprintf("tap%d", n))
			if err != nil {
				return err
			}
			p := antispoof.Port{Interface: tap.Attrs().Name, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(n)}, Addresses: []netip.Addr{
				netip.MustParseAddr(fmt.Sprintf("10.201.0.%d", 49+n)), netip.MustParseAddr(fmt.Sprintf("fd00:201::%d", 49+n)),
			}}
			if err := errors.Join(guard.Set(p), netlink.LinkSetMaster(tap, br)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Two NICs of one pod on one network: a client reaches the pod at each address, of both families, and
// from the outside of the network. Each may be given back first.
func TestTwoNICsOfOneNetwork(t *testing.T) {
	for _, first := range []string{"eth0", "net1"} {
		t.Run("first "+first, func(t *testing.T) {
			l := newLab(t)
			config := l.config(with("ipam", map[string]any{"type": "hostd"}))
			l.Add(config)
			l.Add(config, "CNI_IFNAME=net1")
			l.serveHost()
			server := l.Listen(l.Pod, "[::]:8080")
			go func() {
				for c, err := server.Accept(); err == nil; c, err = server.Accept() {
					_, _ = io.WriteString(c, "hello") // the client notices
					_ = c.Close()
				}
			}()
			l.Must(l.Host.Do(func(ns.NetNS) error { // a client outside the network
				lo, err := netlink.LinkByName("lo")
				if err != nil {
					return err
				}
				outside, err := netlink.ParseAddr("192.0.2.1/32")
				return errors.Join(err, netlink.LinkSetUp(lo), netlink.AddrAdd(lo, outside))
			}))
			for _, c := range []struct{ from, to string }{
				{"10.201.0.1", "10.201.0.50"}, {"10.201.0.1", "10.201.0.51"}, {"fd00:201::1", "fd00:201::50"}, {"fd00:201::1", "fd00:201::51"},
				{"192.0.2.1", "10.201.0.50"}, {"192.0.2.1", "10.201.0.51"},
			} {
				var got []byte
				err := l.Host.Do(func(ns.NetNS) error {
					d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}, Timeout: 20 * time.Second}
					conn, err := d.Dial("tcp", net.JoinHostPort(c.to, "8080"))
					if err != nil {
						return err
					}
					defer conn.Close()
					got, err = io.ReadAll(conn)
					return err
				})
				if err != nil || string(got) != "hello" {
					t.Errorf("from %s to %s: got %q, %v", c.from, c.to, got, err)
				}
			}
			second := map[string]string{"eth0": "net1", "net1": "eth0"}[first]
			l.daemon.onlyOne = true
			l.Succeeds("DEL", config, "CNI_IFNAME="+first)
			l.Must(l.Pod.Do(func(ns.NetNS) error {
				rules, err := netlink.RuleList(netlink.FAMILY_V4)
				if len(rules) != 3 {
					t.Errorf("with one NIC the pod has the rules %v, want those of the kernel", rules)
				}
				return err
			}))
			l.Succeeds("DEL", config, "CNI_IFNAME="+second)
		})
	}
}

// An address cannot be on two NICs of one pod.
func TestTwoNICsOfOneAddress(t *testing.T) {
	l := newLab(t)
	l.plugin("same", answers("10.201.0.9/16"))
	config := l.config(ipam("type", "same"))
	l.Add(config)
	l.daemon.onlyOne = true
	a := l.Run("ADD", config, "CNI_IFNAME=net1")
	if a.Code() != 7 || !strings.Contains(a.Message(), "set address 10.201.0.9: another interface of the pod has the address: eth0; give the networks") {
		t.Errorf("code %d, want 7", a.Code())
	}
	if got := l.Links(l.Pod); len(got) != 1 {
		t.Errorf("the pod has %v, want eth0", got)
	}
	l.Succeeds("DEL", config)
}
