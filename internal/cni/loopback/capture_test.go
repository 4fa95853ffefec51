package loopback

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// capture captures at all interfaces of a fraction, as tcpdump -i any does.
type capture struct{ fd int }

func (w *world) capture() capture {
	w.t.Helper()
	c := capture{-1}
	w.in(1, func() (err error) {
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: 0x0300}) // ETH_P_ALL, of the network's byte order
	})
	if w.t.Failed() {
		w.t.FailNow()
	}
	w.t.Cleanup(func() { unix.Close(c.fd) })
	return c
}

// seen returns where a packet with a text has been seen so far: "lo In", "hostlo0 Out".
func (c capture) seen(t *testing.T, nic int, text string) (where []string) {
	t.Helper()
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := unix.Recvfrom(c.fd, buffer, 0)
		if errors.Is(err, unix.EAGAIN) {
			return where
		}
		if err != nil {
			t.Fatal(err)
		}
		at, ok := from.(*unix.SockaddrLinklayer)
		if !ok || !strings.Contains(string(buffer[:n]), text) {
			continue
		}
		name := map[int]string{1: "lo", nic: nicName}[at.Ifindex]
		if at.Pkttype == unix.PACKET_OUTGOING {
			where = append(where, name+" Out")
		} else {
			where = append(where, name+" In")
		}
	}
}

// What arrives is seen at lo, and what leaves at the endpoint: each packet at one of the two.
func TestCapture(t *testing.T) {
	w := newWorld(t, 2)
	var nic int
	w.in(1, func() error {
		l, err := netlink.LinkByName(nicName)
		if err == nil {
			nic = l.Attrs().Index
		}
		return err
	})
	w.listen(2, "udp4", "127.0.0.1:8060")
	c := w.capture()
	conn, err := w.dial(1, "udp4", "127.0.0.1:8060")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := echo(conn, "across"); err != nil {
		t.Fatal(err)
	}
	// The question leaves, and the answer arrives.
	if got, want := c.seen(t, nic, "across"), []string{"hostlo0 Out", "hostlo0 In", "lo In"}; !slices.Equal(got, want) {
		t.Errorf("seen at %v, want %v", got, want)
	}
	w.listen(1, "udp4", "127.0.0.1:8061")
	within, err := w.dial(1, "udp4", "127.0.0.1:8061")
	if err != nil {
		t.Fatal(err)
	}
	defer within.Close()
	if err := echo(within, "within"); err != nil {
		t.Fatal(err)
	}
	if got, want := c.seen(t, nic, "within"), []string{"lo Out", "lo In", "lo Out", "lo In"}; !slices.Equal(got, want) {
		t.Errorf("seen at %v, want %v", got, want)
	}
}
