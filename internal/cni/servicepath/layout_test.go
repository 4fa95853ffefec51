package servicepath

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func texts(routes []*netlink.Route) (s []string) {
	for _, r := range routes {
		s = append(s, fmt.Sprintf("%v via %v from %v table %d", r.Dst, r.Gw, r.Src, r.Table))
	}
	return s
}

func TestLayout(t *testing.T) {
	ends := Ends{
		Guest: &netlink.LinkAttrs{Name: "unsv1", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}},
		Pod:   &netlink.LinkAttrs{Name: "svc0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2}},
	}
	p := Path{Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/112")}}
	for _, c := range []struct {
		addresses  []string
		guest, pod []string
		rules      []int // families
	}{
		{nil, nil, nil, nil},
		{
			[]string{"10.0.0.5", "10.0.0.6"},
			[]string{"10.0.0.5/32 via <nil> from <nil> table 0", "10.0.0.6/32 via <nil> from <nil> table 0"},
			[]string{"10.96.0.0/12 via 169.254.1.1 from 10.0.0.5 table 0", "0.0.0.0/0 via 169.254.1.1 from <nil> table 30062"},
			[]int{netlink.FAMILY_V4},
		},
		{
			[]string{"fd00::5", "10.0.0.5"},
			[]string{"10.0.0.5/32 via <nil> from <nil> table 0", "fd00::5/128 via <nil> from <nil> table 0"},
			[]string{
				"10.96.0.0/12 via 169.254.1.1 from 10.0.0.5 table 0", "0.0.0.0/0 via 169.254.1.1 from <nil> table 30062",
				"fd00:96::/112 via fe80::1 from fd00::5 table 0", "::/0 via fe80::1 from <nil> table 30062",
			},
			[]int{netlink.FAMILY_V4, netlink.FAMILY_V6},
		},
	} {
		p.Addresses = nil
		for _, a := range c.addresses {
			p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
		}
		guest, pod := p.layout(ends)
		var rules []int
		for _, r := range pod.rules {
			rules = append(rules, r.Family)
		}
		if !slices.Equal(texts(guest.routes), c.guest) || !slices.Equal(texts(pod.routes), c.pod) || !slices.Equal(rules, c.rules) {
			t.Errorf("%v: got guest %v, pod %v, rules %v", c.addresses, guest.routes, pod.routes, pod.rules)
		}
		if len(guest.neighbours) != len(c.addresses) || len(pod.neighbours) != len(c.rules) {
			t.Errorf("%v: neighbours are %v and %v", c.addresses, guest.neighbours, pod.neighbours)
		}
	}
}

func TestNames(t *testing.T) {
	o := Owner{"net", "c1", "eth0"}
	if got := o.guestEnd(); len(got) != 15 || got == (Owner{"net", "c1", "eth1"}).guestEnd() || got != (Owner{"", "c1", "eth0"}).guestEnd() {
		t.Errorf("name is %q", got)
	}
	if got, ok := ownerOf(o.alias()); !ok || got != o {
		t.Errorf("alias is read as %v, %v", got, ok)
	}
	for _, alias := range []string{"", "unnest-service: a/b", "other: a/b/c", "unnest:c1/eth0"} {
		if o, ok := ownerOf(alias); ok {
			t.Errorf("alias %q is read as %v", alias, o)
		}
	}
}
