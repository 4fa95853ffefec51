package libnetwork

import (
	"net/netip"
	"testing"
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
