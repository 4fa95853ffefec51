package podnic

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// The addresses of the machine's own links are those in sysfs.
func TestPCIAddress(t *testing.T) {
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		device, err := filepath.EvalSymlinks("/sys/class/net/" + l.Name())
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		for _, part := range strings.Split(device, "/") { // the last one is the NIC, the others are bridges
			if pciAddress.MatchString(part) {
				want = part
			}
		}
		if got, err := PCIAddress(l.Name()); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", l.Name(), got, err, want)
		}
	}
	if got, err := PCIAddress("no-such-link"); err == nil || !strings.Contains(err.Error(), "no-such-link") {
		t.Errorf("no such link: got %q, %v", got, err)
	}
}

func TestPCIAddressOfVirtualLinks(t *testing.T) {
	in(t, newNS(t), func() error {
		if err := plug("eth0", mac); err != nil {
			return err
		}
		for _, name := range []string{"lo", "eth0"} {
			if got, err := PCIAddress(name); err != nil || got != "" {
				t.Errorf("%s: got %q, %v; want none", name, got, err)
			}
		}
		return nil
	})
}

// A container that may change the MAC of its NIC hides neither that NIC nor another one.
func TestPluggedMAC(t *testing.T) {
	given, own := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	for _, c := range []struct{ plugged, now, want net.HardwareAddr }{{given, own, given}, {nil, own, own}} {
		if got := PluggedMAC(&netlink.LinkAttrs{PermHWAddr: c.plugged, HardwareAddr: c.now}); got.String() != c.want.String() {
			t.Errorf("plugged with %s, now %s: got %s, want %s", c.plugged, c.now, got, c.want)
		}
	}
}
