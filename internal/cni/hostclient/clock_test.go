package hostclient

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
)

// The NICs of a machine are told by their own addresses and by those that they have now; other links are not.
func TestMachineMACs(t *testing.T) {
	own, given := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 0xaa}, net.HardwareAddr{2, 0, 0, 0, 0, 1}
	got := machineMACs([]netlink.Link{
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0", ParentDev: "virtio0", PermHWAddr: own, HardwareAddr: given}},
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth1", ParentDev: "virtio1", HardwareAddr: own}},
		&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2}}},
	})
	if want := []string{own.String(), given.String()}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A guest whose clock is not the host's is told so. Up to a day behind, it works.
func TestClockOfGuest(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	a, err := identity.OpenAuthority(state)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	cnitest.Save(t, dir, a, c)
	server, _ := cnitest.Serve(t, a, hostdpb.UnimplementedHostDaemonServer{})
	clientConfig, err := identity.ClientConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	for behind, wrong := range map[time.Duration]bool{23 * time.Hour: false, 25 * time.Hour: true} {
		clientConfig.Time = func() time.Time { return time.Now().Add(-behind) }
		client, err := dialWith(server, clientConfig.Clone())
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Status(t.Context(), &hostdpb.StatusRequest{})
		client.Close()
		if err == nil || strings.Contains(err.Error(), "the clock of this guest differs from the host's: set it") != wrong || wrong && strings.Contains(err.Error(), "check that") {
			t.Errorf("%v behind: got %v, want the clock named: %t", behind, err, wrong)
		}
	}
}
