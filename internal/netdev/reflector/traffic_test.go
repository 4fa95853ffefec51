package reflector_test

import (
	"context"
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

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/reflector"
)

// vm stands for a VM with a fraction in it: what QEMU does, to carry frames with
// their headers between the queue and the NIC of a kernel, here the TAP hostlo0 in
// a namespace of its own.
type vm struct {
	ns    ns.NetNS
	large atomic.Int64 // frames that were not segmented
}

// newVM plugs a fraction's wire into a new namespace.
func newVM(t *testing.T, f segment.Fraction, queue wire, mtu int) *vm {
	t.Helper()
	v := &vm{ns: newNS(t)}
	var nic *os.File
	in(t, v.ns, func() (err error) {
		nic, err = openNIC("hostlo0")
		return errors.Join(err, configureNIC("hostlo0", f, mtu))
	})
	var g errgroup.Group
	g.Go(func() error { return v.carry(nic, queue.File) })
	g.Go(func() error { return v.carry(queue.File, nic) })
	t.Cleanup(func() {
		nic.Close()
		queue.Close()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return v
}

func openNIC(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	err = errors.Join(
		unix.IoctlIfreq(fd, unix.TUNSETIFF, request),
		unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, vnetHeader),
		unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|unix.TUN_F_TSO_ECN),
	)
	return os.NewFile(uintptr(fd), name), err
}

// configureNIC gives the NIC the fraction's MAC and an address, and tells it the
// other fractions', since no ARP passes.
func configureNIC(name string, f segment.Fraction, mtu int) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(address(f) + "/24")
	if err != nil {
		return err
	}
	mac := segment.MAC(f)
	err = errors.Join(
		os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0),
		netlink.LinkSetHardwareAddr(l, mac[:]), netlink.LinkSetMTU(l, mtu),
		netlink.AddrAdd(l, a), netlink.LinkSetUp(l),
	)
	for other := segment.Fraction(1); other <= segment.MaxFractions; other++ {
		mac := segment.MAC(other)
		err = errors.Join(err, netlink.NeighSet(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, IP: net.ParseIP(address(other)), HardwareAddr: mac[:], State: netlink.NUD_PERMANENT,
		}))
	}
	return err
}

func address(f segment.Fraction) string { return fmt.Sprintf("10.1.1.%d", f) }

func (v *vm) carry(from, to *os.File) error {
	b := make([]byte, 1<<17)
	for {
		n, err := from.Read(b)
		if err != nil {
			return ended(err)
		}
		if b[1] != 0 { // a type of segmentation
			v.large.Add(1)
		}
		if _, err := to.Write(b[:n]); err != nil {
			return ended(err)
		}
	}
}

func ended(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// In both modes kernels communicate over the segment: data arrives complete, in frames as
// large as those of a loopback, segmented or not.
func TestTraffic(t *testing.T) {
	for _, mode := range []reflector.Mode{reflector.Unicast, reflector.Plain} {
		for _, mtu := range []int{segment.MTU, 1500} {
			t.Run(fmt.Sprintf("%s/%d", mode, mtu), func(t *testing.T) { testTraffic(t, mode, mtu) })
		}
	}
}

func testTraffic(t *testing.T, mode reflector.Mode, mtu int) {
	l := newLab(t, 3, reflector.Options{Mode: mode})
	vms := map[segment.Fraction]*vm{}
	for f, queue := range l.vms {
		vms[f] = newVM(t, f, queue, mtu)
	}
	var listener net.Listener
	in(t, vms[1].ns, func() (err error) {
		listener, err = net.Listen("tcp4", address(1)+":5000")
		return err
	})
	defer listener.Close()
	data := make([]byte, 20<<20)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(data); i += 100 {
		data[i] = byte(r.Uint32())
	}
	for _, f := range []segment.Fraction{2, 3} {
		got := make(chan [sha256.Size]byte)
		go func() { got <- receiveAll(listener) }()
		in(t, vms[f].ns, func() error { return sendAll(address(1)+":5000", data) })
		if <-got != sha256.Sum256(data) {
			t.Errorf("fraction 1 got something else than what %d has sent", f)
		}
		if mtu < segment.MTU && vms[f].large.Load() == 0 {
			t.Errorf("everything from fraction %d was segmented", f)
		}
		c := l.counters(t, f)
		if c.Bytes < uint64(len(data)) || c.Frames > uint64(len(data))/10_000 || c.Spoofed+c.Unknown+c.Oversize != 0 {
			t.Errorf("fraction %d: %+v after %d bytes", f, c, len(data))
		}
	}
}

func receiveAll(l net.Listener) (sum [sha256.Size]byte) {
	c, err := l.Accept()
	if err != nil {
		return sum
	}
	defer c.Close()
	h := sha256.New()
	if _, err := io.Copy(h, c); err != nil {
		return sum
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func sendAll(to string, data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", to)
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		return err
	}
	_, err = c.Write(data)
	return errors.Join(err, c.Close())
}

// No frame of the guests reaches the host's network stack, even with its address, and the
// host sends no frames of its own.
func TestHostIsOutOfReach(t *testing.T) {
	l := newLab(t, 2, reflector.Options{})
	var server net.PacketConn
	var host net.HardwareAddr
	in(t, l.ns, func() error {
		link, err := netlink.LinkByName("hl0")
		if err != nil {
			return err
		}
		host = link.Attrs().HardwareAddr
		a, err := netlink.ParseAddr("10.9.9.1/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return err
		}
		server, err = net.ListenPacket("udp4", "10.9.9.1:9")
		return err
	})
	defer server.Close()
	for _, to := range []segment.Address{segment.Broadcast, segment.MAC(2), segment.Address(host)} {
		l.vms[1].send(t, datagram(segment.MAC(1), to))
	}
	if err := server.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := server.ReadFrom(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the host has received a datagram: %v", err)
	}
	for range 2 { // the broadcast and fraction 2's
		l.vms[2].receive(t, patience)
	}
	if got := l.vms[2].receive(t, time.Second); got != nil {
		t.Errorf("the host sends % x", got)
	}
	in(t, l.ns, func() error { // without the program it would
		link, err := netlink.LinkByName("hl0")
		if err != nil {
			return err
		}
		return netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}})
	})
	l.vms[1].send(t, datagram(segment.MAC(1), segment.Address(host)))
	if err := server.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := server.ReadFrom(make([]byte, 100)); err != nil {
		t.Errorf("the datagram does not even arrive without the program: %v", err)
	}
}

// datagram returns a frame with a UDP datagram from 10.9.9.2 to 10.9.9.1:9, without a
// checksum.
func datagram(from, to segment.Address) []byte {
	ip := []byte{0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 9, 2, 10, 9, 9, 1}
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	check := ^uint16(sum + sum>>16)
	ip[10], ip[11] = byte(check>>8), byte(check)
	return frame(from, to, string(append(ip, 0, 9, 0, 9, 0, 12, 0, 0)))
}
