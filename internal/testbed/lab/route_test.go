package lab

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
)

// A route of a lab is gone with the lab: if it is closed, and if its owner is killed. A route of another
// lab to the same network is refused, as is one through a machine that is no neighbour.
func TestAddRoute(t *testing.T) {
	privileged(t)
	const outside = "unnest-test-route"
	if err := newNS(outside); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := deleteNS(outside); err != nil {
			t.Error(err)
		}
	})
	inside := func(command string) string {
		out, err := exec.Command("ip", "netns", "exec", outside, "sh", "-c", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %s%v", command, out, err)
		}
		return string(out)
	}
	inside("echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip link set lo up; ip link add eth9 type bridge; ip addr add 192.0.2.1/24 dev eth9; ip link set eth9 up")
	before := inside("ip route show table all")
	network, dom0 := netip.MustParsePrefix("198.51.100.0/28"), netip.MustParseAddr("192.0.2.7")
	for name, end := range ends(t) {
		t.Run(name, func(t *testing.T) {
			l, err := Create("test-lab")
			if err != nil {
				t.Fatal(err)
			}
			other, err := Create("test-other")
			if err != nil {
				t.Fatal(errors.Join(err, l.Close()))
			}
			err = Do(nsPath(outside), func() error {
				err := errors.Join(l.AddRoute(network, dom0), l.AddRoute(network, dom0))
				if again := other.AddRoute(network, dom0); again == nil || !strings.Contains(again.Error(), "another run has it") {
					t.Errorf("the other lab's route: %v", again)
				}
				if err := other.Close(); err != nil {
					t.Error(err)
				}
				far := l.AddRoute(netip.MustParsePrefix("198.51.100.16/28"), netip.MustParseAddr("203.0.113.1"))
				if far == nil || !strings.Contains(far.Error(), "203.0.113.1 is on no network of this machine") {
					t.Errorf("a route through no neighbour: %v", far)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			if routes := inside("ip route"); !strings.Contains(routes, "198.51.100.0/28 via 192.0.2.7") {
				t.Errorf("routes:\n%s", routes)
			}
			if err := Do(nsPath(outside), func() error { return end(l) }); err != nil {
				t.Error(err)
			}
			assertGone(t, l)
			if after := inside("ip route show table all"); after != before {
				t.Errorf("routes are\n%s, want\n%s", after, before)
			}
		})
	}
}
