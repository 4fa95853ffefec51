package servicepath

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
)

func (r route) String() string {
	return fmt.Sprintf("%v via %v from %v table %d", r.to, r.via, r.from, r.table)
}

func texts(routes []route) (s []string) {
	for _, r := range routes {
		s = append(s, r.String())
	}
	return s
}

func TestLayout(t *testing.T) {
	ends := Ends{Guest: End{"unsv1", net.HardwareAddr{2, 0, 0, 0, 0, 1}, 1400}, Pod: End{"svc0", net.HardwareAddr{2, 0, 0, 0, 0, 2}, 1400}}
	p := Path{Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/112")}}
	for _, c := range []struct {
		addresses  []string
		guest, pod []string
		rules      []bool
	}{
		{nil, nil, nil, nil},
		{
			[]string{"10.0.0.5", "10.0.0.6"},
			[]string{"10.0.0.5/32 via invalid IP from invalid IP table 0", "10.0.0.6/32 via invalid IP from invalid IP table 0"},
			[]string{"10.96.0.0/12 via 169.254.1.1 from 10.0.0.5 table 0", "0.0.0.0/0 via 169.254.1.1 from invalid IP table 30062"},
			[]bool{false},
		},
		{
			[]string{"fd00::5", "10.0.0.5"},
			[]string{"10.0.0.5/32 via invalid IP from invalid IP table 0", "fd00::5/128 via invalid IP from invalid IP table 0"},
			[]string{
				"10.96.0.0/12 via 169.254.1.1 from 10.0.0.5 table 0", "0.0.0.0/0 via 169.254.1.1 from invalid IP table 30062",
				"fd00:96::/112 via fe80::1 from fd00::5 table 0", "::/0 via fe80::1 from invalid IP table 30062",
			},
			[]bool{false, true},
		},
	} {
		p.Addresses = nil
		for _, a := range c.addresses {
			p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
		}
		got := p.layout(ends)
		if !slices.Equal(texts(got.guest.routes), c.guest) || !slices.Equal(texts(got.pod.routes), c.pod) || !slices.Equal(got.pod.rules, c.rules) {
			t.Errorf("%v: got guest %v, pod %v, rules %v", c.addresses, got.guest.routes, got.pod.routes, got.pod.rules)
		}
		if len(got.guest.neighbours) != len(c.addresses) || len(got.pod.neighbours) != len(c.rules) {
			t.Errorf("%v: neighbours are %v and %v", c.addresses, got.guest.neighbours, got.pod.neighbours)
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
