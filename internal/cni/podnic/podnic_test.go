package podnic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var mac = net.HardwareAddr{2, 0, 0, 0, 0, 1}

func newNS(t *testing.T) ns.NetNS {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	n, err := ns.TempNetNS()
	if err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// in runs f in n.
func in(t *testing.T, n ns.NetNS, f func() error) {
	t.Helper()
	if err := n.Do(func(ns.NetNS) error { return f() }); err != nil {
		t.Error(err)
	}
}

// plug adds a veth: the end named name has the given MAC.
func plug(name string, hw net.HardwareAddr) error {
	a := netlink.NewLinkAttrs()
	a.Name, a.HardwareAddr = name, hw
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: fmt.Sprintf("peer-%x", []byte(hw[4:]))})
}

// names are the links in n except lo and the peers.
func names(t *testing.T, n ns.NetNS) (found []string) {
	t.Helper()
	in(t, n, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if name := l.Attrs().Name; name != "lo" && !strings.HasPrefix(name, "peer-") {
				found = append(found, name)
			}
		}
		return err
	})
	return found
}

func TestAwait(t *testing.T) {
	guest := newNS(t)
	in(t, guest, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := awaitMAC(ctx, mac); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), mac.String()) {
			t.Errorf("no NIC: got %v", err)
		}
		return nil
	})
	plugged := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() {
		plugged <- guest.Do(func(ns.NetNS) error {
			return errors.Join(plug("other", net.HardwareAddr{2, 0, 0, 0, 0, 2}), plug("ens1", mac))
		})
	})
	for _, when := range []string{"it appears later", "it exists"} {
		in(t, guest, func() error {
			l, err := awaitMAC(t.Context(), mac)
			if err == nil && l.Attrs().Name != "ens1" {
				t.Errorf("%s: got %s", when, l.Attrs().Name)
			}
			return err
		})
	}
	if err := <-plugged; err != nil {
		t.Error(err)
	}
}

// The events of many other links must not make awaitMAC miss its own.
func TestAwaitAmongMany(t *testing.T) {
	guest := newNS(t)
	ended := make(chan error, 1)
	go func() {
		ended <- guest.Do(func(ns.NetNS) error {
			for i := range 60 {
				if err := plug("x", net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}); err != nil {
					return err
				}
				l, err := netlink.LinkByName("x")
				if err != nil {
					return err
				}
				if err := netlink.LinkDel(l); err != nil {
					return err
				}
			}
			return plug("ens1", mac)
		})
	}()
	in(t, guest, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		l, err := awaitMAC(ctx, mac)
		if err == nil && l.Attrs().Name != "ens1" {
			t.Errorf("got %s", l.Attrs().Name)
		}
		return err
	})
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMoveInAndOut(t *testing.T) {
	for _, c := range []struct {
		name              string
		guestHas, podHas  string // links in the way
		beforeOut         string // link that is made in the guest before the undo
		wantIn, wantGuest []string
	}{
		{"nothing in the way", "", "", "", []string{"eth0"}, []string{"ens1"}},
		{"guest has the pod's name", "eth0", "", "", []string{"eth0"}, []string{"ens1", "eth0"}},
		{"pod has the guest's name", "", "ens1", "", []string{"ens1", "eth0"}, []string{"ens1"}},
		{"guest's name is taken meanwhile", "", "", "ens1", []string{"eth0"}, []string{"ens1", "unnest0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			guest, pod := newNS(t), newNS(t)
			other := net.HardwareAddr{2, 0, 0, 0, 0, 2}
			add := func(n ns.NetNS, name string) {
				if name != "" {
					in(t, n, func() error { return plug(name, other) })
				}
			}
			add(guest, c.guestHas)
			add(pod, c.podHas)
			in(t, guest, func() error {
				if err := plug("ens1", mac); err != nil {
					return err
				}
				nic, err := awaitMAC(t.Context(), mac)
				if err != nil {
					return err
				}
				if err := netlink.LinkSetUp(nic); err != nil { // as a network daemon would
					return err
				}
				moveOut, err := MoveIn(nic, pod, "eth0", 1400)
				if err != nil {
					return err
				}
				wantNames(t, "pod", pod, c.wantIn)
				in(t, pod, func() error {
					l, err := netlink.LinkByName("eth0")
					if err == nil && (l.Attrs().MTU != 1400 || l.Attrs().Flags&net.FlagUp == 0 || !hasMAC(l, mac)) {
						t.Errorf("eth0 has %+v", l.Attrs())
					}
					return err
				})
				add(guest, c.beforeOut)
				return moveOut()
			})
			wantNames(t, "guest", guest, c.wantGuest)
		})
	}
}

func wantNames(t *testing.T, where string, n ns.NetNS, want []string) {
	t.Helper()
	got := names(t, n)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s has %v, want %v", where, got, want)
	}
}

func TestMoveInThatFails(t *testing.T) {
	guest, pod := newNS(t), newNS(t)
	in(t, pod, func() error { return plug("eth0", net.HardwareAddr{2, 0, 0, 0, 0, 2}) })
	in(t, guest, func() error { return plug("ens1", mac) })
	for _, c := range []struct {
		name string
		mtu  int
		want string
	}{
		{"eth0", 1500, ErrNameTaken.Error()},
		{"eth1", 70000, "set MTU 70000"}, // after the move into the pod
		{"a/b", 1500, "invalid argument"},
	} {
		in(t, guest, func() error {
			nic, err := awaitMAC(t.Context(), mac)
			if err != nil {
				return err
			}
			if _, err := MoveIn(nic, pod, c.name, c.mtu); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
			return nil
		})
		wantNames(t, "guest", guest, []string{"ens1"})
		wantNames(t, "pod", pod, []string{"eth0"})
	}
}

// The undo accepts that the NIC has been unplugged.
func TestMoveOutOfUnpluggedNIC(t *testing.T) {
	guest, pod := newNS(t), newNS(t)
	in(t, guest, func() error {
		if err := plug("ens1", mac); err != nil {
			return err
		}
		nic, err := awaitMAC(t.Context(), mac)
		if err != nil {
			return err
		}
		moveOut, err := MoveIn(nic, pod, "eth0", 0)
		if err != nil {
			return err
		}
		peer, err := netlink.LinkByName("peer-0001")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkDel(peer), moveOut())
	})
	wantNames(t, "guest", guest, nil)
	wantNames(t, "pod", pod, nil)
}

func TestAnnounceWithoutCarrier(t *testing.T) {
	pod := newNS(t)
	in(t, pod, func() error {
		if err := plug("eth0", mac); err != nil {
			return err
		}
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(l) // its peer stays down
	})
	begin := time.Now()
	if err := Announce(t.Context(), pod, "eth0", []netip.Addr{netip.MustParseAddr("10.0.0.1")}); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took < carrierWait || took > 60*carrierWait {
		t.Errorf("took %v, want %v", took, carrierWait)
	}
	if err := Announce(t.Context(), pod, "eth9", []netip.Addr{netip.MustParseAddr("10.0.0.1")}); err == nil || !strings.Contains(err.Error(), "eth9") {
		t.Errorf("no such link: got %v", err)
	}
}

func TestGratuitousARP(t *testing.T) {
	want := []byte{
		0, 1, 8, 0, 6, 4, 0, 1,
		2, 0, 0, 0, 0, 1, 10, 201, 0, 7,
		0, 0, 0, 0, 0, 0, 10, 201, 0, 7,
	}
	if got := gratuitousARP(mac, netip.MustParseAddr("10.201.0.7")); !bytes.Equal(got, want) {
		t.Errorf("got % x, want % x", got, want)
	}
}

// Without 802.1Q the error names the module, and nothing is left.
func TestAddVLANOnThisKernel(t *testing.T) {
	guest, pod := newNS(t), newNS(t)
	in(t, guest, func() error {
		if err := plug("ens1", mac); err != nil {
			return err
		}
		trunk, err := netlink.LinkByName("ens1")
		if err != nil {
			return err
		}
		undo, err := AddVLAN(trunk, 1, net.HardwareAddr{2, 0, 0, 0, 0, 5}, 0, pod, "eth0")
		switch {
		case err == nil:
			return undo()
		case errors.Is(err, unix.EOPNOTSUPP) && strings.Contains(err.Error(), "module 8021q"):
			return nil
		default:
			return err
		}
	})
	wantNames(t, "pod", pod, nil)
	wantNames(t, "guest", guest, []string{"ens1"})
}

// A command tells the kernel to rescan unless another one is doing so.
func TestRescan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rescan")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := func(done bool, text string) {
		t.Helper()
		got, err := rescan(path)
		told, readErr := os.ReadFile(path)
		if err := errors.Join(err, readErr); err != nil || got != done || string(told) != text {
			t.Errorf("done %t, the kernel is told %q, %v; want %t, %q", got, told, err, done, text)
		}
	}
	other, err := os.Open(path)
	if err == nil {
		err = unix.Flock(int(other.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	want(false, "")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	want(true, "1")
	if _, err := rescan(path + "/none"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("got %v", err)
	}
}
