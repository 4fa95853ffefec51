package attachment

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

// A NIC is known by the MAC with which it was plugged. What a pod has made of it, and a file without a MAC, name no other one.
func TestFind(t *testing.T) {
	mac := func(n byte) net.HardwareAddr { return net.HardwareAddr{0x0a, 0, 1, 1, 0, n} }
	link := func(name string, now, plugged net.HardwareAddr) netlink.Link {
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: now, PermHWAddr: plugged}}
	}
	links := []netlink.Link{link("lo", nil, nil), link("forged", mac(2), mac(1)), link("virtual", mac(3), nil)}
	for _, c := range []struct{ mac, want string }{
		{mac(1).String(), "forged"}, {mac(2).String(), ""}, {mac(3).String(), "virtual"}, {mac(4).String(), ""}, {"", ""},
	} {
		got := ""
		if l := find(links, c.mac); l != nil {
			got = l.Attrs().Name
		}
		if got != c.want {
			t.Errorf("find %q: got %q, want %q", c.mac, got, c.want)
		}
	}
	for _, c := range []struct {
		name string
		made made
		want bool
	}{
		{"an ADD that asks the daemon", made{Asked: true}, true},
		{"back", made{MAC: mac(1).String()}, true},
		{"in its pod", made{MAC: mac(2).String()}, false},
		{"of an earlier plugin, or of no daemon", made{}, false},
		{"a VLAN without its trunk", made{MAC: mac(1).String(), VLAN: 5, Trunk: mac(4).String()}, false},
	} {
		if got, err := c.made.mayHaveEnded(links); err != nil || got != c.want {
			t.Errorf("%s: may have ended: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}
