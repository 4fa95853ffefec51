package vlan_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"unnest.io/unnest/internal/netdev/vlan"
)

func setAlias(link, alias string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.LinkSetAlias(l, alias)
}

func addVeth(name, peer string) error {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: peer})
}

// passes fails the test unless a frame of the VLAN comes out at the bridge.
func (h *host) passes(t *testing.T, vlan uint16, bridge string) {
	t.Helper()
	h.guest.send(t, frame("pass", tag(vlan)))
	arrives(t, fmt.Sprintf("VLAN %d", vlan), h.peers[bridge], frame("pass"))
}

func TestPorts(t *testing.T) {
	h := newHost(t)
	in(t, h.ns, func() error {
		if err := h.trunk.Add(vlan.Port{VLAN: 10, MTU: 9000}); err != nil {
			return err
		}
		if err := setAlias("v10", "unnest:c1/eth0 note"); err != nil {
			return err
		}
		l, err := netlink.LinkByName("v10")
		if err != nil {
			return err
		}
		if l.Attrs().Flags&net.FlagUp != 0 || l.Attrs().MasterIndex != 0 {
			t.Errorf("v10 is %+v, want it down and on no bridge", l.Attrs())
		}
		got, err := h.trunk.Ports()
		want := []vlan.Port{
			{VLAN: 5, MTU: 1500, Name: "v5"},
			{VLAN: 6, MTU: 1500, Name: "v6"},
			{VLAN: 10, MTU: 9000, Name: "v10", Alias: "unnest:c1/eth0 note"},
			{VLAN: 4094, MTU: 1500, Name: "v4094"},
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		return err
	})
}

func TestDelete(t *testing.T) {
	h := newHost(t)
	in(t, h.ns, func() error {
		for _, vlan := range []int{5, 5, 7, 0, -1, 4095} { // only the first exists
			if err := h.trunk.Delete(vlan); err != nil {
				return err
			}
		}
		got, err := links()
		if want := "br1 br2 lo peer1 peer2 t0 v4094 v4094i v6 v6i"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		return err
	})
	h.guest.send(t, frame("late", tag(5)))
	h.passes(t, 4094, "br1")
	h.add(t, 5, "br2") // the next owner
	h.passes(t, 5, "br2")
}

// Add that fails changes nothing.
func TestAddFails(t *testing.T) {
	h := newHost(t)
	var before string
	in(t, h.ns, func() (err error) {
		if err := errors.Join(addVeth("v8", "x8"), addVeth("x9", "v9i")); err != nil {
			return err
		}
		before, err = links()
		return err
	})
	for _, c := range []struct {
		name string
		port vlan.Port
		want string
	}{
		{"none", vlan.Port{VLAN: 0}, "want 1 to 4094"},
		{"reserved", vlan.Port{VLAN: 4095}, "want 1 to 4094"},
		{"has a port", vlan.Port{VLAN: 5}, "port v5"},
		{"name is taken", vlan.Port{VLAN: 8}, "port v8"},
		{"inner name is taken", vlan.Port{VLAN: 9}, "port v9"},
		{"MTU too large", vlan.Port{VLAN: 10, MTU: 70000}, "MTU 70000"},
		{"MTU negative", vlan.Port{VLAN: 10, MTU: -1}, "MTU -1"},
	} {
		in(t, h.ns, func() error {
			if err := h.trunk.Add(c.port); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
			after, err := links()
			if after != before {
				t.Errorf("%s: links are %s, want %s", c.name, after, before)
			}
			return err
		})
	}
	h.passes(t, 5, "br1")
}

func TestOpenFails(t *testing.T) {
	n := newNS(t)
	openTAP(t, n, "t0")
	in(t, n, func() error { return errors.Join(addBridge("br1"), connect("t0", "br1")) })
	for _, c := range []struct{ name, tap, prefix, want string }{
		{"no TAP", "t1", "v", "not found"},
		{"on a bridge", "t0", "v", "remove it from the bridge"},
		{"no prefix", "t0", "", "1 to 10 bytes"},
		{"prefix too long", "t0", "abcdefghijk", "1 to 10 bytes"},
		{"prefix with a digit", "t0", "v1", "not a digit"},
	} {
		in(t, n, func() error {
			tr, err := vlan.Open(c.tap, c.prefix)
			if tr != nil || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.tap) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
			return nil
		})
	}
}

// A closed trunk keeps working, and opening it again loses no frame.
func TestOpenAgain(t *testing.T) {
	h := newHost(t)
	in(t, h.ns, func() error { return h.trunk.Close() })
	var g errgroup.Group
	done := make(chan struct{})
	g.Go(func() error {
		defer close(done)
		for range 100 {
			err := h.ns.Do(func(ns.NetNS) error {
				tr, err := vlan.Open("t0", "v")
				if err != nil {
					return err
				}
				return tr.Close()
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	const burst = 50
	rounds := 0
	for open := true; open; rounds++ {
		select {
		case <-done:
			open = false
		default:
		}
		for i := range burst {
			text := fmt.Sprint(rounds, " ", i)
			h.guest.send(t, frame(text, tag(6)))
			h.peers["br2"].send(t, frame(text))
		}
		for i := range burst {
			text := fmt.Sprint(rounds, " ", i)
			arrives(t, "outward", h.peers["br2"], frame(text))
			arrives(t, "inward", h.guest, frame(text, tag(6)))
		}
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d frames while opened 100 times", 2*burst*rounds)
	in(t, h.ns, func() (err error) {
		h.trunk, err = vlan.Open("t0", "v")
		return err
	})
	h.add(t, 7, "br2") // the new map is in use
	h.passes(t, 7, "br2")
}

// Open deletes incomplete ports and those of an earlier TAP, and no other device.
func TestOpenRemovesLeftovers(t *testing.T) {
	h := newHost(t)
	in(t, h.ns, func() error {
		return errors.Join(
			addVeth("v7", "v7i"),   // an Add that was interrupted
			addVeth("v8", "x8"),    // not a port, nor are the next ones
			addVeth("x9", "v9i"),   //
			addVeth("v10x", "v10"), //
			addVeth("w5", "w5i"),   // another trunk's
			addVeth("v05", "v05i"), // not how a port is written
		)
	})
	others := "br1 br2 lo peer1 peer2 t0 v05 v05i v10 v10x v8 v9i w5 w5i x8 x9"
	for _, c := range []struct {
		name    string
		prepare func()
		want    string
	}{
		{"the same TAP", func() {}, others + " v4094 v4094i v5 v5i v6 v6i"},
		{"another TAP of the name", func() {
			h.guest.Close()
			h.guest = openTAP(t, h.ns, "t0")
		}, others},
	} {
		c.prepare()
		in(t, h.ns, func() error {
			tr, err := vlan.Open("t0", "v")
			if err != nil {
				return err
			}
			got, err := links()
			want := strings.Fields(c.want)
			slices.Sort(want)
			if got != strings.Join(want, " ") {
				t.Errorf("%s: links are %s, want %s", c.name, got, want)
			}
			return errors.Join(err, tr.Close())
		})
	}
}

// No frame of the trunk reaches the host's network stack, with any tag.
func TestHostIsOutOfReach(t *testing.T) {
	n := newNS(t)
	guest := openTAP(t, n, "t0")
	var server net.PacketConn
	in(t, n, func() error {
		l, err := netlink.LinkByName("t0")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("10.9.9.1/24")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.AddrAdd(l, address), netlink.LinkSetUp(l)); err != nil {
			return err
		}
		server, err = net.ListenPacket("udp4", "10.9.9.1:9")
		return err
	})
	defer server.Close()
	reached := func(limit time.Duration, tags ...[]byte) bool {
		guest.send(t, datagram(tags...))
		if err := server.SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		_, _, err := server.ReadFrom(make([]byte, 100))
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return err == nil
	}
	if !reached(patience) {
		t.Fatal("the datagram does not even arrive without a trunk")
	}
	in(t, n, func() error {
		tr, err := vlan.Open("t0", "v")
		if err != nil {
			return err
		}
		return errors.Join(tr.Add(vlan.Port{VLAN: 5}), tr.Close())
	})
	for _, tags := range [][][]byte{nil, {tag(0)}, {tag(5)}, {tag(6)}} {
		if reached(200*time.Millisecond, tags...) {
			t.Errorf("with tags % x it has reached the host", tags)
		}
	}
}

// datagram is a broadcast frame with a UDP datagram from 10.9.9.2 to 10.9.9.1:9.
func datagram(tags ...[]byte) []byte {
	f := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1}
	f = append(f, slices.Concat(tags...)...)
	f = append(f, 8, 0)
	ip := []byte{0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 9, 2, 10, 9, 9, 1}
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	check := ^uint16(sum + sum>>16)
	ip[10], ip[11] = byte(check>>8), byte(check)
	return slices.Concat(f, ip, []byte{0, 9, 0, 9, 0, 12, 0, 0}, []byte("text"))
}
