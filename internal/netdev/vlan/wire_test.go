package vlan_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/vlan"
)

func newNS(t *testing.T) ns.NetNS {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, network namespaces and /dev/net/tun: set UNNEST_PRIVILEGED=1")
	}
	n, err := ns.TempNetNS()
	if err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// in runs f in n. It ends the test when f fails.
func in(t *testing.T, n ns.NetNS, f func() error) {
	t.Helper()
	if err := n.Do(func(ns.NetNS) error { return f() }); err != nil {
		t.Fatal(err)
	}
}

const vnetHeader = 10 // bytes of struct virtio_net_hdr

// wire is the guest's side of a TAP, as QEMU holds it.
type wire struct{ *os.File }

// openTAP makes a TAP in n, down, with the offloads that QEMU asks for.
func openTAP(t *testing.T, n ns.NetNS, name string) wire {
	t.Helper()
	var w wire
	in(t, n, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return err
		}
		w = wire{os.NewFile(uintptr(fd), name)}
		return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|unix.TUN_F_TSO_ECN)
	})
	t.Cleanup(func() { w.Close() }) // a test may have closed it
	return w
}

func (w wire) send(t *testing.T, frame []byte) {
	t.Helper()
	if _, err := w.Write(append(make([]byte, vnetHeader), frame...)); err != nil {
		t.Fatal(err)
	}
}

// receive returns the next frame, or nil when none comes in time.
func (w wire) receive(t *testing.T, wait time.Duration) []byte {
	t.Helper()
	b := make([]byte, 1<<17)
	if err := w.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	n, err := w.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return b[vnetHeader:n]
}

// tag is a VLAN tag of 802.1Q; its number may have priority bits.
func tag(tci uint16) []byte { return binary.BigEndian.AppendUint16([]byte{0x81, 0}, tci) }

// frame is a broadcast of an experimental protocol, with the given tags.
func frame(text string, tags ...[]byte) []byte {
	f := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1}
	f = append(f, slices.Concat(tags...)...)
	f = append(f, 0x88, 0xb5)
	return append(f, text+strings.Repeat(".", 60)...)
}

// addBridge makes a bridge that sends nothing of its own.
func addBridge(name string) error {
	a := netlink.NewLinkAttrs()
	a.Name = name
	b := &netlink.Bridge{LinkAttrs: a, MulticastSnooping: new(bool)}
	if err := netlink.LinkAdd(b); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0); err != nil {
		return err
	}
	return netlink.LinkSetUp(b)
}

// connect adds a link to a bridge, sets it up, and waits until it has a carrier, and a
// port's inner end has one too.
func connect(link, bridge string) error {
	b, err := netlink.LinkByName(bridge)
	if err != nil {
		return err
	}
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetMaster(l, b), netlink.LinkSetUp(l)); err != nil {
		return err
	}
	return errors.Join(awaitCarrier(link), awaitCarrier(link+"i"))
}

// patience is for what must happen, on any machine.
const patience = time.Minute

// awaitCarrier does not wait for TAPs, or for a link that does not exist.
func awaitCarrier(link string) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		l, err := netlink.LinkByName(link)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil || l.Attrs().OperState == netlink.OperUp || l.Type() == "tuntap" {
			return err
		}
	}
	return fmt.Errorf("%s has no carrier", link)
}

func setUp(link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// links are the names of the links of the namespace, sorted.
func links() (string, error) {
	all, err := netlink.LinkList()
	var names []string
	for _, l := range all {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return strings.Join(names, " "), err
}

// host is a namespace with the trunk t0 of the ports v5 and v4094 on bridge br1,
// and v6 on br2. Each bridge also has the TAP of a neighbour.
type host struct {
	ns    ns.NetNS
	trunk *vlan.Trunk
	guest wire            // t0
	peers map[string]wire // by bridge
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{ns: newNS(t), peers: map[string]wire{}}
	h.guest = openTAP(t, h.ns, "t0")
	in(t, h.ns, func() (err error) {
		h.trunk, err = vlan.Open("t0", "v")
		return err
	})
	t.Cleanup(func() { h.trunk.Close() })
	for i, bridge := range []string{"br1", "br2"} {
		peer := fmt.Sprintf("peer%d", i+1)
		h.peers[bridge] = openTAP(t, h.ns, peer)
		in(t, h.ns, func() error { return errors.Join(addBridge(bridge), silent(peer), connect(peer, bridge)) })
	}
	h.add(t, 5, "br1")
	h.add(t, 6, "br2")
	h.add(t, 4094, "br1")
	return h
}

func silent(link string) error {
	return os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/disable_ipv6", []byte("1"), 0)
}

func (h *host) add(t *testing.T, id int, bridge string) {
	t.Helper()
	in(t, h.ns, func() error {
		if err := h.trunk.Add(vlan.Port{VLAN: id, MTU: 1500}); err != nil {
			return err
		}
		return connect(vlan.PortName("v", id), bridge)
	})
}

// arrives fails the test unless w receives the frames, in any order, and no other
// before them.
func arrives(t *testing.T, what string, w wire, want ...[]byte) {
	t.Helper()
	for range want {
		got := w.receive(t, patience)
		if !slices.ContainsFunc(want, func(f []byte) bool { return bytes.Equal(f, got) }) {
			t.Fatalf("%s: got % x, want one of % x", what, got, want)
		}
	}
}

func TestOutward(t *testing.T) {
	h := newHost(t)
	for _, c := range []struct {
		name   string
		tags   [][]byte
		bridge string // where it arrives, "" for nowhere
	}{
		{"a VLAN", [][]byte{tag(5)}, "br1"},
		{"another tenant's", [][]byte{tag(6)}, "br2"},
		{"the highest", [][]byte{tag(4094)}, "br1"},
		{"with priority and drop eligibility", [][]byte{tag(0xf005)}, "br1"},
		{"without a tag", nil, ""},
		{"priority only", [][]byte{tag(0x8000)}, ""},
		{"no port", [][]byte{tag(7)}, ""},
		{"the reserved VLAN", [][]byte{tag(4095)}, ""},
		{"802.1ad", [][]byte{{0x88, 0xa8, 0, 5}}, ""},
		{"two tags", [][]byte{tag(5), tag(6)}, ""},
		{"the same tag twice", [][]byte{tag(5), tag(5)}, ""},
		{"a second tag of 802.1ad", [][]byte{tag(5), {0x88, 0xa8, 0, 6}}, ""},
	} {
		h.guest.send(t, frame(c.name, c.tags...))
		for bridge, vlan := range map[string]uint16{"br1": 5, "br2": 6} { // a later frame ends the wait
			h.guest.send(t, frame("after", tag(vlan)))
			want := [][]byte{frame("after")}
			if c.bridge == bridge {
				want = append(want, frame(c.name))
			}
			arrives(t, c.name+" at "+bridge, h.peers[bridge], want...)
		}
		// br1 has two ports: one sees what the other sends.
		echo := [][]byte{frame("after", tag(4094))}
		if c.bridge == "br1" {
			from := c.tags[0]
			back := tag(4094)
			if bytes.Equal(from, back) {
				back = tag(5)
			}
			echo = append(echo, frame(c.name, back))
		}
		arrives(t, c.name+" at the other port", h.guest, echo...)
	}
}

func TestInward(t *testing.T) {
	h := newHost(t)
	for _, c := range []struct {
		name  string
		tags  [][]byte
		vlans map[string][]uint16 // by the bridge from which it is sent
	}{
		{"a frame", nil, map[string][]uint16{"br1": {5, 4094}, "br2": {6}}},
		{"with a tag", [][]byte{tag(5)}, nil},
		{"priority only", [][]byte{tag(0x8000)}, nil},
		{"802.1ad", [][]byte{{0x88, 0xa8, 0, 5}}, nil},
		{"two tags", [][]byte{tag(5), tag(6)}, nil},
	} {
		for bridge, after := range map[string][]uint16{"br1": {5, 4094}, "br2": {6}} {
			h.peers[bridge].send(t, frame(c.name, c.tags...))
			h.peers[bridge].send(t, frame("after"))
			var want [][]byte
			for _, v := range c.vlans[bridge] {
				want = append(want, frame(c.name, tag(v)))
			}
			for _, v := range after {
				want = append(want, frame("after", tag(v)))
			}
			arrives(t, c.name+" from "+bridge, h.guest, want...)
		}
	}
}

// The host sends nothing of its own to the guest: no solicitation, no report.
func TestSilence(t *testing.T) {
	n := newNS(t)
	guest := openTAP(t, n, "t0")
	in(t, n, func() error {
		tr, err := vlan.Open("t0", "v")
		if err != nil {
			return err
		}
		return errors.Join(tr.Add(vlan.Port{VLAN: 5}), setUp("v5"), tr.Close())
	})
	if f := guest.receive(t, 1500*time.Millisecond); f != nil {
		t.Errorf("the guest got % x", f)
	}
}
