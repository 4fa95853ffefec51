package libnetwork

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// While a NIC is being released, the daemon may have given its address to another one.
func TestAddressOfTwoNICs(t *testing.T) {
	a := netip.MustParsePrefix("10.201.1.1/16")
	d := &driver{nics: map[string]nic{
		"former": {Owner: "former", Addresses: []netip.Prefix{a}, Released: true}, "next": {Owner: "next", Addresses: []netip.Prefix{a}},
	}}
	for range 100 { // the order of a map is random
		if n, ok := d.withAddress(a.Addr()); !ok || n.Owner != "next" {
			t.Fatalf("got %q, %v, want next", n.Owner, ok)
		}
	}
	delete(d.nics, "next")
	if n, ok := d.withAddress(a.Addr()); !ok || n.Owner != "former" {
		t.Errorf("got %q, %v, want former", n.Owner, ok)
	}
}

// A container that may change the MAC of its NIC hides neither that NIC nor another one.
func TestPluggedMAC(t *testing.T) {
	given, own := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	for _, c := range []struct{ plugged, now, want net.HardwareAddr }{{given, own, given}, {nil, own, own}} {
		if got := pluggedMAC(&netlink.LinkAttrs{PermHWAddr: c.plugged, HardwareAddr: c.now}); got.String() != c.want.String() {
			t.Errorf("plugged with %s, now %s: got %s, want %s", c.plugged, c.now, got, c.want)
		}
	}
}
