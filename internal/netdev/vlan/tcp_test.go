package vlan_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/vlan"
)

// cable carries frames between two TAPs with their virtio_net_hdr, as two virtio
// queues do: large segments stay whole, checksums may be open.
type cable struct {
	large, open atomic.Int64 // frames
}

func plug(t *testing.T, a, b wire) *cable {
	t.Helper()
	c := &cable{}
	var g errgroup.Group
	g.Go(func() error { return c.carry(a, b) })
	g.Go(func() error { return c.carry(b, a) })
	t.Cleanup(func() {
		a.Close()
		b.Close()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *cable) carry(from, to wire) error {
	b := make([]byte, 1<<17)
	for {
		n, err := from.Read(b)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if b[0] != 0 { // VIRTIO_NET_HDR_F_NEEDS_CSUM
			c.open.Add(1)
		}
		if b[1] != 0 { // a type of segmentation
			c.large.Add(1)
		}
		_, err = to.Write(b[:n])
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EIO) { // of a TAP that is not up yet
			return fmt.Errorf("%s does not take a frame of %d bytes, header % x: %w", to.Name(), n, b[:vnetHeader], err)
		}
	}
}

// setAddresses gives a link addresses of both families, for use at once.
func setAddresses(link, v4, v6 string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	for _, text := range []string{v4 + "/24", v6 + "/64"} {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

// A pod and a server that both have the kernel's own TCP, at full speed: the pod
// on a VLAN of a trunk, the server on a neighbour's TAP or on a veth. The guest's
// side of the trunk is a trunk, too, as the kernel may lack 802.1Q.
func TestTCP(t *testing.T) {
	for _, kind := range []string{"TAP", "veth"} {
		t.Run("server on a "+kind, func(t *testing.T) {
			guest, host, server := newNS(t), newNS(t), newNS(t)
			trunkCable := plug(t, openTAP(t, guest, "g0"), openTAP(t, host, "t0"))
			in(t, host, func() error { return addBridge("br0") })
			openTrunk := func(tap, bridge string) error {
				tr, err := vlan.Open(tap, "v")
				if err != nil {
					return err
				}
				return errors.Join(tr.Add(vlan.Port{VLAN: 5, MTU: 1500}), connect("v5", bridge), tr.Close())
			}
			in(t, host, func() error { return openTrunk("t0", "br0") })
			in(t, guest, func() error {
				a := netlink.NewLinkAttrs()
				a.Name = "pod"
				if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a, MulticastSnooping: new(bool)}); err != nil {
					return err
				}
				return errors.Join(setAddresses("pod", "10.9.9.2", "fd09::2"), openTrunk("g0", "pod"))
			})
			if kind == "TAP" {
				plug(t, openTAP(t, host, "n0"), openTAP(t, server, "eth0"))
			} else {
				in(t, server, func() error {
					return netlink.LinkAdd(&netlink.Veth{
						LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "n0", PeerNamespace: netlink.NsFd(host.Fd()),
					})
				})
			}
			in(t, server, func() error { return setAddresses("eth0", "10.9.9.1", "fd09::1") })
			in(t, host, func() error { return connect("n0", "br0") })
			for _, address := range []string{"10.9.9.1", "fd09::1"} {
				var listener net.Listener
				in(t, server, func() (err error) {
					listener, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
					return err
				})
				var pod net.Conn
				in(t, guest, func() (err error) {
					pod, err = (&net.Dialer{Timeout: patience}).Dial("tcp", listener.Addr().String())
					return err
				})
				peer, err := listener.Accept()
				if err != nil {
					t.Fatal(err)
				}
				stream(t, "pod to "+address, pod, peer)
				stream(t, address+" to pod", peer, pod)
				if err := errors.Join(pod.Close(), peer.Close(), listener.Close()); err != nil {
					t.Error(err)
				}
			}
			t.Logf("%d large frames, %d with an open checksum", trunkCable.large.Load(), trunkCable.open.Load())
			if trunkCable.large.Load() == 0 || trunkCable.open.Load() == 0 {
				t.Error("no frame used the offloads")
			}
		})
	}
}

// stream sends 64 MiB and compares what arrives.
func stream(t *testing.T, what string, from, to net.Conn) {
	t.Helper()
	const size = 64 << 20
	begin := time.Now()
	if err := errors.Join(from.SetDeadline(begin.Add(5*patience)), to.SetDeadline(begin.Add(5*patience))); err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	sent, got := sha256.New(), sha256.New()
	g.Go(func() error {
		_, err := io.CopyN(io.MultiWriter(from, sent), rand.NewChaCha8([32]byte{1}), size)
		return err
	})
	g.Go(func() error {
		_, err := io.CopyN(got, to, size)
		return err
	})
	if err := g.Wait(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if [32]byte(sent.Sum(nil)) != [32]byte(got.Sum(nil)) {
		t.Errorf("%s: what arrived is not what was sent", what)
	}
	t.Logf("%s: %.0f Mbit/s", what, size*8/1e6/time.Since(begin).Seconds())
}
