package podnic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addressed adds an interface that is up and has addresses.
func addressed(name string, number byte, addresses ...string) error {
	if err := plug(name, net.HardwareAddr{2, 0, 0, 0, 0, number}); err != nil {
		return err
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	peer, err := netlink.LinkByIndex(l.Attrs().ParentIndex)
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetUp(l), netlink.LinkSetUp(peer)); err != nil {
		return err
	}
	return give(l, addresses...)
}

func give(l netlink.Link, addresses ...string) error {
	for _, s := range addresses {
		a, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
	}
	return nil
}

func route(link, to, via, src string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	_, dst, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Gw: net.ParseIP(via)}
	if src != "" {
		r.Src, r.Flags = net.ParseIP(src), int(netlink.FLAG_ONLINK)
	}
	return netlink.RouteAddEcmp(r)
}

// way is "LINK via GATEWAY" by which the kernel sends from an address to another.
func way(from, to string) string {
	routes, err := netlink.RouteGetWithOptions(net.ParseIP(to), &netlink.RouteGetOptions{SrcAddr: net.ParseIP(from)})
	if err != nil || len(routes) == 0 {
		return fmt.Sprint(err)
	}
	l, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return err.Error()
	}
	if routes[0].Gw == nil {
		return l.Attrs().Name
	}
	return l.Attrs().Name + " via " + routes[0].Gw.String()
}

func wantWays(t *testing.T, pod ns.NetNS, want map[[2]string]string) {
	t.Helper()
	in(t, pod, func() error {
		for ends, w := range want {
			if got := way(ends[0], ends[1]); got != w {
				t.Errorf("from %s to %s: by %s, want %s", ends[0], ends[1], got, w)
			}
		}
		return nil
	})
}

// rules counts the rules of both families.
func rules(t *testing.T, pod ns.NetNS) (n int) {
	t.Helper()
	in(t, pod, func() error {
		for _, f := range families {
			rules, err := sourceRules(f)
			if err != nil {
				return err
			}
			n += len(rules)
		}
		return nil
	})
	return n
}

func gateways(all ...string) (gws []netip.Addr) {
	for _, a := range all {
		gws = append(gws, netip.MustParseAddr(a))
	}
	return gws
}

// A second NIC of the same network, without a route of its own: each answers from its own address, to
// the network, to services, and to the outside. After it has gone, nothing is left.
func TestRouteBySource(t *testing.T) {
	pod := newNS(t)
	in(t, pod, func() error {
		return errors.Join(
			addressed("eth0", 1, "10.201.1.1/16", "fd00:201::1/64"),
			route("eth0", "0.0.0.0/0", "10.201.0.1", ""), route("eth0", "::/0", "fd00:201::ffff", ""),
			addressed("svc0", 2), route("svc0", "10.96.0.0/12", "169.254.1.1", "10.201.1.1"), route("svc0", "fd00:96::/112", "fe80::1", "fd00:201::1"),
			RouteBySource("eth0", gateways("10.201.0.1", "fd00:201::ffff")))
	})
	if n := rules(t, pod); n != 0 {
		t.Errorf("a pod with one NIC has %d rules", n)
	}
	add := func() error {
		return errors.Join(addressed("net1", 3, "10.201.1.2/16", "fd00:201::2/64"), RouteBySource("net1", gateways("10.201.0.1", "fd00:201::ffff")))
	}
	in(t, pod, add)
	in(t, pod, func() error { return RouteBySource("net1", gateways("10.201.0.1", "fd00:201::ffff")) }) // again: no change
	wantWays(t, pod, map[[2]string]string{
		{"10.201.1.1", "10.201.5.5"}:   "eth0",
		{"10.201.1.2", "10.201.5.5"}:   "net1",
		{"fd00:201::1", "fd00:201::5"}: "eth0",
		{"fd00:201::2", "fd00:201::5"}: "net1",
		{"10.201.1.1", "192.0.2.1"}:    "eth0 via 10.201.0.1",
		{"10.201.1.2", "192.0.2.1"}:    "net1 via 10.201.0.1",
		{"fd00:201::1", "2001:db8::1"}: "eth0 via fd00:201::ffff",
		{"fd00:201::2", "2001:db8::1"}: "net1 via fd00:201::ffff",
		{"10.201.1.1", "10.96.0.1"}:    "svc0 via 169.254.1.1",
		{"fd00:201::1", "fd00:96::1"}:  "svc0 via fe80::1",
		{"10.201.1.2", "10.201.1.1"}:   "lo",
	})
	if n := rules(t, pod); n != 4 {
		t.Errorf("the pod has %d rules, want one for each of 4 addresses", n)
	}
	if err := ForgetSource(pod, "net1"); err != nil {
		t.Error(err)
	}
	if n := rules(t, pod); n != 0 {
		t.Errorf("after the second NIC the pod has %d rules", n)
	}
	wantWays(t, pod, map[[2]string]string{{"10.201.1.1", "192.0.2.1"}: "eth0 via 10.201.0.1"})
}

func TestRouteBySourceOfOverlappingNetworks(t *testing.T) {
	overlapping(t, func() error { return addressed("net1", 2) })
}

// overlapping tests two networks whose ranges overlap, each with a default route, which the kernel merges
// for IPv6. add makes the interface of the second one, net1.
func overlapping(t *testing.T, add func() error) {
	t.Helper()
	pod := newNS(t)
	in(t, pod, func() error {
		if err := errors.Join(addressed("eth0", 1, "10.201.1.1/16", "fd00:201::1/64"), route("eth0", "0.0.0.0/0", "10.201.0.1", ""),
			route("eth0", "::/0", "fd00:201::ffff", ""), add()); err != nil {
			return err
		}
		net1, err := netlink.LinkByName("net1")
		if err != nil {
			return err
		}
		return errors.Join(give(net1, "10.201.1.7/24", "fd00:201::7/64"),
			route("net1", "0.0.0.0/0", "10.201.1.254", ""), route("net1", "::/0", "fd00:201::fffe", ""),
			RouteBySource("net1", gateways("10.201.1.254", "fd00:201::fffe")))
	})
	wantWays(t, pod, map[[2]string]string{
		{"10.201.1.1", "10.201.1.9"}:   "eth0",
		{"10.201.1.7", "10.201.1.9"}:   "net1",
		{"10.201.1.7", "10.201.9.9"}:   "net1 via 10.201.1.254",
		{"fd00:201::1", "fd00:201::5"}: "eth0",
		{"fd00:201::7", "fd00:201::5"}: "net1",
		{"10.201.1.1", "192.0.2.1"}:    "eth0 via 10.201.0.1",
		{"10.201.1.7", "192.0.2.1"}:    "net1 via 10.201.1.254",
		{"fd00:201::1", "2001:db8::1"}: "eth0 via fd00:201::ffff",
		{"fd00:201::7", "2001:db8::1"}: "net1 via fd00:201::fffe",
	})
	in(t, pod, func() error { // it is gone before its DEL
		l, err := netlink.LinkByName("net1")
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	if err := ForgetSource(pod, "net1"); err != nil || rules(t, pod) != 0 {
		t.Errorf("got %v, %d rules are left", err, rules(t, pod))
	}
}

// The middle one of three NICs goes: the others keep their rules.
func TestForgetSource(t *testing.T) {
	pod := newNS(t)
	in(t, pod, func() error {
		var err error
		for i, name := range []string{"eth0", "net1", "net2"} {
			err = errors.Join(err, addressed(name, byte(i+1), fmt.Sprintf("10.201.1.%d/16", i+1)), RouteBySource(name, nil))
		}
		return err
	})
	if err := ForgetSource(pod, "net1"); err != nil || rules(t, pod) != 2 {
		t.Errorf("got %v, %d rules, want 2", err, rules(t, pod))
	}
	wantWays(t, pod, map[[2]string]string{{"10.201.1.3", "10.201.5.5"}: "net2", {"10.201.1.1", "10.201.5.5"}: "eth0"})
}

// An address on two interfaces works on one of them only.
func TestCheckAddresses(t *testing.T) {
	pod := newNS(t)
	in(t, pod, func() error {
		if err := addressed("eth0", 1, "10.201.1.1/16", "fd00:201::1/64"); err != nil {
			return err
		}
		for _, same := range []string{"10.201.1.1", "fd00:201::1"} {
			if err := CheckAddresses("net1", gateways("10.201.1.2", same)); !errors.Is(err, ErrAddressTwice) {
				t.Errorf("%s on a second interface: got %v", same, err)
			}
		}
		return errors.Join(CheckAddresses("net1", gateways("10.201.1.2", "fe80::1")), CheckAddresses("eth0", gateways("10.201.1.1")))
	})
}
