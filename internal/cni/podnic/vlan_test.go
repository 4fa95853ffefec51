//go:build vlan

// These tests need a kernel with 802.1Q. The end-to-end tests run them in a guest.

package podnic

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

var vlanMAC = net.HardwareAddr{2, 0, 0, 0, 0, 5}

// newGuest is a namespace with the trunk ens1, down, with MTU 1400, and an eth0
// of its own.
func newGuest(t *testing.T) (guest ns.NetNS, trunk netlink.Link) {
	t.Helper()
	guest = newNS(t)
	in(t, guest, func() (err error) {
		if err := errors.Join(plug("ens1", mac), plug("eth0", net.HardwareAddr{2, 0, 0, 0, 0, 2})); err != nil {
			return err
		}
		if trunk, err = netlink.LinkByName("ens1"); err != nil {
			return err
		}
		return netlink.LinkSetMTU(trunk, 1400)
	})
	return guest, trunk
}

func TestAddVLAN(t *testing.T) {
	guest, trunk := newGuest(t)
	for _, c := range []struct {
		name                         string
		mtu, trunkBefore, trunkAfter int
		want                         int
	}{
		{"the parent's MTU", 0, 1400, 1400, 1400},
		{"below the parent's", 1300, 1400, 1400, 1300},
		{"above the parent's", 1500, 1400, 1500, 1500},
	} {
		pod := newNS(t)
		in(t, guest, func() error {
			if err := netlink.LinkSetMTU(trunk, c.trunkBefore); err != nil {
				return err
			}
			undo, err := AddVLAN(trunk, 5, vlanMAC, c.mtu, pod, "eth0")
			if err != nil {
				return err
			}
			wantNames(t, "pod", pod, []string{"eth0"})
			in(t, pod, func() error {
				l, err := netlink.LinkByName("eth0")
				if err != nil {
					return err
				}
				v, ok := l.(*netlink.Vlan)
				if !ok || v.VlanId != 5 || v.MTU != c.want || !hasMAC(l, vlanMAC) || v.Flags&net.FlagUp == 0 {
					t.Errorf("%s: got %+v", c.name, l)
				}
				return nil
			})
			now, err := netlink.LinkByName("ens1")
			if err == nil && (now.Attrs().MTU != c.trunkAfter || now.Attrs().Flags&net.FlagUp == 0) {
				t.Errorf("%s: the parent is %+v", c.name, now.Attrs())
			}
			return errors.Join(err, undo(), undo()) // the second undo accepts that the link is gone
		})
		wantNames(t, "pod", pod, nil)
		wantNames(t, "guest", guest, []string{"ens1", "eth0"})
	}
}

func TestAddVLANFails(t *testing.T) {
	guest, trunk := newGuest(t)
	pod, other := newNS(t), newNS(t)
	in(t, pod, func() error { return plug("eth1", net.HardwareAddr{2, 0, 0, 0, 0, 3}) })
	in(t, guest, func() error {
		_, err := AddVLAN(trunk, 6, net.HardwareAddr{2, 0, 0, 0, 0, 6}, 0, other, "eth0")
		return err
	})
	for _, c := range []struct {
		name, link string
		vlan, mtu  int
		is         error
		want       string
	}{
		{"name is taken", "eth1", 5, 0, ErrNameTaken, "eth1"},
		{"VLAN is taken", "eth0", 6, 0, ErrVLANTaken, "VLAN 6 of ens1"},
		{"no VLAN", "eth0", 4096, 0, nil, "VLAN 4096"},
		{"MTU too large", "eth0", 5, 70000, nil, "raise MTU of ens1 to 70000"},
		{"bad name", "a/b", 5, 0, nil, "rename"}, // after the link is in the pod
	} {
		in(t, guest, func() error {
			_, err := AddVLAN(trunk, c.vlan, vlanMAC, c.mtu, pod, c.link)
			if err == nil || (c.is != nil && !errors.Is(err, c.is)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
			return nil
		})
		wantNames(t, c.name+": pod", pod, []string{"eth1"})
		wantNames(t, c.name+": guest", guest, []string{"ens1", "eth0"})
	}
}

// Two pods have VLANs of one trunk. Each reaches only the other end of its own VLAN.
func TestVLANCarriesFrames(t *testing.T) {
	guest, trunk := newGuest(t)
	far := newNS(t)
	var farTrunk netlink.Link
	in(t, guest, func() error {
		l, err := netlink.LinkByName("peer-0001")
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(l, int(far.Fd()))
	})
	in(t, far, func() (err error) {
		farTrunk, err = netlink.LinkByName("peer-0001")
		return err
	})
	pods := map[int]ns.NetNS{5: newNS(t), 6: newNS(t)}
	for vlan, pod := range pods {
		farPod := newNS(t)
		in(t, guest, func() error {
			_, err := AddVLAN(trunk, vlan, net.HardwareAddr{2, 0, 0, 0, 1, byte(vlan)}, 1500, pod, "eth0")
			return err
		})
		in(t, far, func() error {
			_, err := AddVLAN(farTrunk, vlan, net.HardwareAddr{2, 0, 0, 0, 2, byte(vlan)}, 1500, farPod, "eth0")
			return err
		})
		in(t, pod, func() error { return setAddress("eth0", "10.9.9.1/24") })
		in(t, farPod, func() error { return setAddress("eth0", "10.9.9.2/24") })
		var server net.PacketConn
		in(t, farPod, func() (err error) {
			server, err = net.ListenPacket("udp4", "10.9.9.2:9")
			return err
		})
		defer server.Close()
		go func() { // answers with the number of its VLAN, and as many bytes as it received
			b := make([]byte, 2000)
			for {
				n, from, err := server.ReadFrom(b)
				if err != nil {
					return
				}
				b[0] = byte(vlan)
				_, _ = server.WriteTo(b[:n], from) // without an answer the client fails
			}
		}()
	}
	for vlan, pod := range pods {
		in(t, pod, func() error {
			return echo(t, vlan, 1472) // the largest datagram of MTU 1500
		})
	}
}

func TestDeleteVLAN(t *testing.T) {
	pod := newNS(t)
	in(t, pod, func() error { return plug("eth0", mac) })
	for _, name := range []string{"eth0", "eth1"} { // another kind of link, and none
		if err := DeleteVLAN(pod, name); err != nil {
			t.Error(err)
		}
	}
	wantNames(t, "pod", pod, []string{"eth0"})

	guest, trunk := newGuest(t)
	in(t, guest, func() error {
		_, err := AddVLAN(trunk, 5, vlanMAC, 0, pod, "eth1")
		return err
	})
	if err := errors.Join(DeleteVLAN(pod, "eth1"), DeleteVLAN(pod, "eth1")); err != nil {
		t.Error(err)
	}
	wantNames(t, "pod", pod, []string{"eth0"})

	in(t, guest, func() error { return createVLAN(trunk, 5, vlanMAC, 0, pod) }) // as if AddVLAN had been killed
	wantNames(t, "pod", pod, []string{"eth0", "unnest0"})
	if err := DeleteVLAN(pod, "eth1"); err != nil {
		t.Error(err)
	}
	wantNames(t, "pod", pod, []string{"eth0"})
}

// A VLAN's link ends with its pod's namespace.
func TestVLANGoesWithItsPod(t *testing.T) {
	guest, trunk := newGuest(t)
	for range 3 {
		pod := newNS(t)
		in(t, guest, func() error {
			_, err := AddVLAN(trunk, 5, vlanMAC, 0, pod, "eth0")
			return err
		})
		if err := pod.Close(); err != nil {
			t.Fatal(err)
		}
		in(t, guest, awaitVLANFree(trunk, 5))
	}
}

// echo sends a datagram of the given size from the thread's namespace. The VLAN's own
// server must return it.
func echo(t *testing.T, vlan, size int) error {
	c, err := net.Dial("udp4", "10.9.9.2:9")
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := c.Write(make([]byte, size)); err != nil {
		return err
	}
	b := make([]byte, 2000)
	n, err := c.Read(b)
	if err == nil && (n != size || int(b[0]) != vlan) {
		t.Errorf("VLAN %d: got %d bytes from VLAN %d, want %d", vlan, n, b[0], size)
	}
	return err
}

// awaitVLANFree waits until the VLAN can be made in the thread's namespace: the
// kernel removes a namespace some time after its last user has left.
func awaitVLANFree(trunk netlink.Link, vlan int) func() error {
	return func() (err error) {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			pod, nsErr := ns.TempNetNS()
			if nsErr != nil {
				return nsErr
			}
			undo, addErr := AddVLAN(trunk, vlan, vlanMAC, 0, pod, "eth0")
			if err = addErr; err == nil {
				return errors.Join(undo(), pod.Close())
			}
			err = errors.Join(err, pod.Close())
		}
		return err
	}
}

// A VLAN of the trunk next to a NIC.
func TestRouteBySourceOfVLAN(t *testing.T) {
	overlapping(t, func() error {
		if err := addressed("trunk", 2); err != nil {
			return err
		}
		trunk, err := netlink.LinkByName("trunk")
		if err != nil {
			return err
		}
		a := netlink.NewLinkAttrs()
		a.Name, a.ParentIndex = "net1", trunk.Attrs().Index
		vlan := &netlink.Vlan{LinkAttrs: a, VlanId: 100}
		return errors.Join(netlink.LinkAdd(vlan), netlink.LinkSetUp(vlan))
	})
}

// Who follows the links of the trunk's namespace is told when a VLAN comes and when it ends with its pod, and HasVLAN looks for it
// without making a link. A VLAN whose namespace is held does not end.
func TestFollowVLAN(t *testing.T) {
	guest, trunk := newGuest(t)
	pod, held := newNS(t), newNS(t)
	has := func(vlan int) (has bool) {
		in(t, guest, func() (err error) {
			has, err = HasVLAN(trunk, vlan)
			return err
		})
		return has
	}
	if has(5) || has(6) {
		t.Error("there are VLANs before the first")
	}
	in(t, guest, func() error {
		_, err := AddVLAN(trunk, 5, vlanMAC, 0, pod, "eth0")
		return err
	})
	in(t, guest, func() error {
		_, err := AddVLAN(trunk, 6, net.HardwareAddr{2, 0, 0, 0, 0, 6}, 0, held, "eth0")
		return err
	})
	if !has(5) || !has(6) {
		t.Error("a VLAN in a pod is not found")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	in(t, guest, func() error {
		first := true
		err := Follow(ctx, nil, func() {
			switch now, err := HasVLAN(trunk, 5); {
			case err != nil:
				t.Error(err)
				cancel()
			case first:
				first = false
				if err := pod.Close(); err != nil {
					t.Error(err)
				}
			case !now:
				cancel()
			}
		})
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Error("nobody is told within a minute that the VLAN has ended")
		}
		return err
	})
	if has(5) || !has(6) {
		t.Error("the VLAN of the namespace that was closed is there, or the held one is not")
	}
	wantNames(t, "guest", guest, []string{"ens1", "eth0"})
}
