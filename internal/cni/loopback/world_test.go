package loopback

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

const nicName = "hostlo0"

// header is the size of struct virtio_net_hdr_v1, as QEMU sets it.
const header = 12

// world is a segment of fractions, each a network namespace with a TAP as its NIC, and
// a reflector that copies frames between the TAPs.
type world struct {
	t      testing.TB
	pods   map[segment.Fraction]ns.NetNS
	taps   map[segment.Fraction]*os.File
	joined segment.Set
	late   int // times that TCP has repeated a SYN

	plain  atomic.Bool                                      // all frames go to all, also to their sender
	frozen [segment.MaxFractions + 1]atomic.Bool            // by fraction: receives nothing
	sent   [segment.MaxFractions + 1]atomic.Int64           // by fraction: sent frames
	bytes  [segment.MaxFractions + 1]atomic.Int64           // by fraction: sent bytes
	last   [segment.MaxFractions + 1]atomic.Pointer[[]byte] // by fraction: the last short frame sent
	number uint32                                           // generation of the members
}

// newWorld is a world with n fractions that have joined.
func newWorld(t testing.TB, n int) *world {
	t.Helper()
	w := emptyWorld(t, n)
	all := segment.Set(0)
	for f := range segment.Fraction(n) {
		all = all.With(f + 1)
	}
	w.join(all)
	return w
}

// join lets fractions join; they are all members.
func (w *world) join(members segment.Set) {
	w.t.Helper()
	w.joined = members
	for f := range members.All() {
		if err := Join(w.pods[f], nicName, w.config(f)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// emptyWorld is a world with n fractions that have not joined.
func emptyWorld(t testing.TB, n int) *world {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, network namespaces and TAPs: set UNNEST_PRIVILEGED=1")
	}
	w := &world{t: t, pods: map[segment.Fraction]ns.NetNS{}, taps: map[segment.Fraction]*os.File{}}
	for f := range segment.Fraction(n) {
		w.add(f + 1)
	}
	for f := range w.taps {
		go w.reflect(f)
	}
	return w
}

func (w *world) config(f segment.Fraction) Config {
	return Config{Fraction: f, Members: w.joined, Generation: w.number}
}

func (w *world) add(f segment.Fraction) {
	w.t.Helper()
	pod, err := ns.TempNetNS()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = pod.Close() })
	w.pods[f] = pod
	w.in(f, func() error {
		tap, err := openTAP(segment.MAC(f))
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { _ = tap.Close() })
		w.taps[f] = tap
		// The strictest setting of a guest.
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0); err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if w.t.Failed() {
		w.t.FailNow()
	}
}

func openTAP(mac segment.Address) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(nicName)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	err = errors.Join(
		unix.IoctlIfreq(fd, unix.TUNSETIFF, request),
		unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, header),
		unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads))
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	link, err := netlink.LinkByName(nicName)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	// A guest's virtio NIC does not drop what its program sends.
	return os.NewFile(uintptr(fd), "tap"), errors.Join(netlink.LinkSetHardwareAddr(link, mac[:]), netlink.LinkSetTxQLen(link, 20000))
}

// reflect copies the frames of one fraction until its TAP is closed.
func (w *world) reflect(from segment.Fraction) {
	buffer := make([]byte, 1<<17)
	for {
		n, err := w.taps[from].Read(buffer)
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil: // the NIC is down
			time.Sleep(time.Millisecond)
			continue
		}
		frame := buffer[header:n]
		w.bytes[from].Add(int64(len(frame)))
		if short := slices.Clone(frame[:min(len(frame), 200)]); len(short) == len(frame) {
			w.last[from].Store(&short)
		}
		w.sent[from].Add(1)
		w.forward(from, buffer[:n], segment.Address(frame[:6]))
	}
}

func (w *world) forward(from segment.Fraction, b []byte, to segment.Address) {
	if w.frozen[from].Load() {
		return
	}
	for f, tap := range w.taps {
		wanted := f != from && (to == segment.Broadcast || to == segment.MAC(f))
		if (wanted || w.plain.Load()) && !w.frozen[f].Load() {
			_, _ = tap.Write(b) // a NIC that is down refuses frames
		}
	}
}

// announce sends the members to every fraction.
func (w *world) announce(members segment.Set) {
	w.t.Helper()
	w.number++
	w.joined = members
	w.announceAs(segment.Membership{Generation: w.number, Members: members})
}

func (w *world) announceAs(m segment.Membership) {
	w.t.Helper()
	for f := range w.taps {
		if !w.frozen[f].Load() {
			w.send(f, m.Frame(segment.Broadcast))
		}
	}
}

// send sends a frame to a fraction's NIC.
func (w *world) send(to segment.Fraction, frame []byte) {
	w.t.Helper()
	if _, err := w.taps[to].Write(append(make([]byte, header), frame...)); err != nil && !errors.Is(err, unix.EIO) {
		w.t.Errorf("send frame to fraction %d: %v", to, err)
	}
}

// in runs f in a fraction's network namespace.
func (w *world) in(fraction segment.Fraction, f func() error) {
	w.t.Helper()
	if err := w.pods[fraction].Do(func(ns.NetNS) error { return f() }); err != nil {
		w.t.Errorf("fraction %d: %v", fraction, err)
	}
}

// set sets a sysctl below /proc/sys/net in a fraction.
func (w *world) set(f segment.Fraction, name, value string) {
	w.t.Helper()
	w.in(f, func() error { return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0) })
}

// device binds a socket to a device.
func device(name string) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if name != "" {
			err = c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), name) })
		}
		return err
	}
}

// listen runs an echo server in a fraction until the test ends or the listener is
// closed.
func (w *world) listen(f segment.Fraction, network, address string) *server {
	w.t.Helper()
	return w.listenOn(f, network, address, "")
}

func (w *world) listenOn(f segment.Fraction, network, address, dev string) *server {
	w.t.Helper()
	s := &server{done: make(chan struct{})}
	w.in(f, func() (err error) {
		config := net.ListenConfig{Control: device(dev)}
		if network[0] == 't' {
			s.tcp, err = config.Listen(w.t.Context(), network, address)
		} else {
			s.udp, err = config.ListenPacket(w.t.Context(), network, address)
		}
		return err
	})
	if w.t.Failed() {
		w.t.FailNow()
	}
	go s.serve()
	w.t.Cleanup(s.close)
	return s
}

// server is an echo server.
type server struct {
	tcp  net.Listener
	udp  net.PacketConn
	got  atomic.Int64 // datagrams
	done chan struct{}
}

func (s *server) close() {
	if s.tcp != nil {
		s.tcp.Close()
	} else {
		s.udp.Close()
	}
	<-s.done
}

func (s *server) serve() {
	defer close(s.done)
	if s.udp != nil {
		s.serveUDP()
		return
	}
	for {
		c, err := s.tcp.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buffer := make([]byte, 1<<18)
			for {
				n, err := c.Read(buffer)
				if err != nil {
					return
				}
				if _, err := c.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
	}
}

func (s *server) serveUDP() {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := s.udp.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			s.got.Add(1)
			_, _ = s.udp.WriteTo(buffer[:n], from) // the client may be gone
		}
	}
}

// patience is for what must happen, on any machine.
const patience = time.Minute

func dialer() net.Dialer { return net.Dialer{Timeout: patience} }

func (w *world) dial(f segment.Fraction, network, address string) (net.Conn, error) {
	return w.dialWith(f, dialer(), network, address)
}

func (w *world) dialWith(f segment.Fraction, d net.Dialer, network, address string) (c net.Conn, err error) {
	_ = w.pods[f].Do(func(ns.NetNS) error {
		c, err = d.DialContext(context.Background(), network, address)
		return nil
	})
	return c, err
}

// echo sends a message and expects the same back.
func echo(c net.Conn, message string) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(message)); err != nil {
		return err
	}
	answer := make([]byte, len(message))
	for got := 0; got < len(answer); {
		n, err := c.Read(answer[got:])
		if err != nil {
			return err
		}
		got += n
	}
	if string(answer) != message {
		return errors.New("something else came back")
	}
	return nil
}

// ask dials, echoes one message, and closes.
func (w *world) ask(f segment.Fraction, network, address string) error {
	c, err := w.dial(f, network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	return echo(c, "hello")
}

// refused expects a refusal at once: before TCP repeats its SYN.
func (w *world) refused(f segment.Fraction, network, address string) {
	w.t.Helper()
	err := w.atOnce(f, func() error { return w.ask(f, network, address) })
	if !errors.Is(err, unix.ECONNREFUSED) {
		w.t.Errorf("fraction %d, %s %s: got %v, want it refused", f, network, address, err)
	}
}

// answered expects an answer before TCP repeats its SYN.
func (w *world) answered(f segment.Fraction, network, address string) {
	w.t.Helper()
	if err := w.atOnce(f, func() error { return w.ask(f, network, address) }); err != nil {
		w.t.Errorf("fraction %d, %s %s: %v", f, network, address, err)
	}
}

// atOnce calls connect until TCP repeats no SYN of the fraction meanwhile, which it does after
// a second. A busy machine can be that late, but not each time.
func (w *world) atOnce(f segment.Fraction, connect func() error) error {
	w.t.Helper()
	for range 10 {
		before := w.repeatedSYNs(f)
		if err := connect(); w.repeatedSYNs(f) == before {
			return err
		}
	}
	return errors.New("TCP repeats its SYN each time")
}

// isLate says that TCP has repeated a SYN. That may happen three times in a test, as of a busy
// machine.
func (w *world) isLate(what string) {
	w.t.Helper()
	w.t.Logf("%s: TCP repeats its SYN", what)
	if w.late++; w.late > 3 {
		w.t.Errorf("TCP repeats its SYN %d times", w.late)
	}
}

// repeatedSYNs returns how many SYNs the kernel of a fraction has sent again.
func (w *world) repeatedSYNs(f segment.Fraction) (n string) {
	w.t.Helper()
	w.in(f, func() error {
		data, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		names, values, _ := strings.Cut(string(data), "\n") // of TcpExt
		i := slices.Index(strings.Fields(names), "TCPSynRetrans")
		if i < 0 {
			return errors.New("the kernel does not count repeated SYNs")
		}
		n = strings.Fields(values)[i]
		return nil
	})
	return n
}

// settled waits until fractions have sent nothing for a while, and returns how many frames they
// have sent.
func (w *world) settled(fractions ...segment.Fraction) int64 {
	sent := func() (all int64) {
		for _, f := range fractions {
			all += w.sent[f].Load()
		}
		return all
	}
	for before := sent(); ; {
		time.Sleep(100 * time.Millisecond)
		now := sent()
		if now == before {
			return now
		}
		before = now
	}
}

// eventually expects f to become true.
func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if f() {
			return
		}
	}
	w.t.Errorf("still not after %v: %s", patience, what)
}
