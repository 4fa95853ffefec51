package bridge

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Frames to unknown addresses do not reach a port, and those to its own do, also before it
// has sent anything. Another port cannot take its address over.
func TestJoin(t *testing.T) {
	inHost(t, func(h *host) {
		h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
		h.check(netlink.LinkSetUp(h.link("br0")))
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 2}
		sender, silent := h.attach("p1", "br0", nil), h.attach("p2", "", nil)
		socket := func(ns netns.NsHandle) (fd int) {
			h.in(ns, func() {
				const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
				var err error
				fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
				h.check(err)
				t.Cleanup(func() { unix.Close(fd) })
				h.check(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: h.link("eth0").Attrs().Index}))
				h.check(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}))
			})
			return fd
		}
		from, to := socket(sender), socket(silent)
		number := byte(0)
		arrives := func(destination net.HardwareAddr) bool {
			number++
			frame := slices.Concat(destination, net.HardwareAddr{2, 0, 0, 0, 0, 1}, []byte{0x88, 0xb5, number}, make([]byte, 50))
			_, err := unix.Write(from, frame)
			h.check(err)
			got := make([]byte, 2048)
			for {
				n, err := unix.Read(to, got)
				if errors.Is(err, unix.EAGAIN) {
					return false
				}
				if err == nil && bytes.Equal(got[:n], frame) {
					return true
				}
			}
		}
		unknown, group := net.HardwareAddr{2, 0, 0, 0, 0, 9}, net.HardwareAddr{255, 255, 255, 255, 255, 255}
		h.check(netlink.LinkSetMaster(h.link("p2"), h.link("br0")))
		if !arrives(unknown) {
			t.Error("a frame to an unknown address does not reach an ordinary port: the test shows nothing")
		}
		for range 2 { // again is the same
			h.check(Join("p2", "br0", mac))
			if arrives(unknown) || !arrives(mac) || !arrives(group) {
				t.Error("want frames to the port's address and to groups, and no others")
			}
		}
		h.in(sender, func() { // claims the address
			frame := slices.Concat(group, mac, []byte{0x88, 0xb5}, make([]byte, 50))
			_, err := unix.Write(from, frame)
			h.check(err)
		})
		if !arrives(mac) {
			t.Error("another port has taken the address over")
		}
		h.check(netlink.LinkSetNoMaster(h.link("p2")))
		entries, err := netlink.NeighList(h.link("p2").Attrs().Index, unix.AF_BRIDGE)
		h.check(err)
		if slices.ContainsFunc(entries, func(e netlink.Neigh) bool { return bytes.Equal(e.HardwareAddr, mac) && e.MasterIndex != 0 }) {
			t.Errorf("the bridge keeps the address of a port that has left: %v", entries)
		}
	})
}

// A MAC is free for a port unless the bridge has it, or knows it at another port.
func TestCheckMAC(t *testing.T) {
	inHost(t, func(h *host) {
		h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
		h.check(netlink.LinkSetUp(h.link("br0")))
		h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br1"}}))
		for _, port := range []string{"p1", "p2"} {
			h.attach(port, "br0", nil)
		}
		h.attach("p3", "", nil)
		mac := net.HardwareAddr{2, 0x42, 0, 0, 0, 2}
		for _, name := range []string{"br0", "p1"} {
			if err := CheckMAC("p2", "br0", h.link(name).Attrs().HardwareAddr); !errors.Is(err, ErrMAC) {
				t.Errorf("the MAC of %s: got %v, want ErrMAC", name, err)
			}
		}
		h.check(CheckMAC("p1", "br0", mac))
		h.check(Join("p1", "br0", mac))
		h.check(CheckMAC("p1", "br0", mac))
		for _, port := range []string{"p2", "p3"} {
			if err := CheckMAC(port, "br0", mac); !errors.Is(err, ErrMAC) {
				t.Errorf("the MAC of p1, for %s: got %v, want ErrMAC", port, err)
			}
		}
		h.check(CheckMAC("p3", "br1", mac))
		h.check(Leave("p1"))
		h.check(CheckMAC("p2", "br0", mac))
	})
}
