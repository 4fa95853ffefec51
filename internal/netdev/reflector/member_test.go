package reflector_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/reflector"
)

// works checks broadcasts from every fraction to all others, and unicast to one.
func (l *lab) works(t *testing.T, when string) {
	t.Helper()
	all := l.members()
	if got := l.segment.Members(); got != all {
		t.Fatalf("%s: members %s, want %s", when, got, all)
	}
	if all.Len() < 2 {
		return
	}
	to := segment.Fraction(0)
	for from := range all.All() {
		l.reaches(t, when+": a broadcast", from, frame(segment.MAC(from), segment.Broadcast, "all"), all.Without(from))
		if to != 0 {
			l.reaches(t, when+": a frame for one", from, frame(segment.MAC(from), segment.MAC(to), "one"), segment.Of(to))
		}
		to = from
	}
}

// When fractions leave in any order and join again, the others do not notice.
func TestLeaveAndRejoin(t *testing.T) {
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, n, reflector.Options{})
			for _, leaving := range []segment.Set{segment.Of(1), segment.Of(segment.Fraction(n)), segment.Of(1, 2), l.members()} {
				for f := range leaving.All() {
					l.leave(t, f)
					l.works(t, fmt.Sprintf("%d has left", f))
				}
				for f := range leaving.All() {
					l.join(t, f)
					l.works(t, fmt.Sprintf("%d is back", f))
				}
			}
			in(t, l.ns, func() error { return errors.Join(l.segment.Leave(1), l.segment.Leave(1)) })
			if l.counters(t, 0) != (reflector.Counters{}) {
				t.Errorf("frames from queues without an owner: %+v", l.counters(t, 0))
			}
		})
	}
}

// While others join and leave, no frame is lost, not even by the fraction of which the
// queue changes its number each time.
func TestLeaveLosesNothing(t *testing.T) {
	for _, n := range sizes {
		if n < 3 {
			continue
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, n, reflector.Options{})
			a, b := segment.Fraction(n-1), segment.Fraction(n)
			enough, stop, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			wa, wb := l.vms[a], l.vms[b]
			go func() { done <- pingPong(wa, wb, a, b, enough, stop) }()
			for i := 0; i < 10 || !closed(enough); i++ {
				for f := range l.members().Without(a).Without(b).All() {
					l.leave(t, f)
				}
				for f := range segment.Fraction(n - 2) {
					l.join(t, f+1)
				}
			}
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
			for _, f := range []segment.Fraction{a, b} {
				if c := l.counters(t, f); c.Spoofed+c.Unknown != 0 {
					t.Errorf("fraction %d: %+v, want none dropped", f, c)
				}
			}
		})
	}
}

// pingPong sends one frame to and fro until it is stopped. It closes enough after 100 rounds,
// and when it fails.
func pingPong(a, b wire, fa, fb segment.Fraction, enough chan<- struct{}, stop <-chan struct{}) error {
	var once sync.Once
	defer once.Do(func() { close(enough) })
	for i := 0; !closed(stop); i++ {
		if i == 100 {
			once.Do(func() { close(enough) })
		}
		text := fmt.Sprint("round ", i)
		if err := pass(a, b, frame(segment.MAC(fa), segment.MAC(fb), text)); err != nil {
			return fmt.Errorf("%s, to: %w", text, err)
		}
		if err := pass(b, a, frame(segment.MAC(fb), segment.MAC(fa), text)); err != nil {
			return fmt.Errorf("%s, fro: %w", text, err)
		}
	}
	return nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func pass(from, to wire, f []byte) error {
	if _, err := from.Write(append(make([]byte, vnetHeader), f...)); err != nil {
		return err
	}
	if err := to.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	got := make([]byte, 1<<16)
	n, err := to.Read(got)
	if err == nil && !bytes.Equal(got[vnetHeader:n], f) {
		err = fmt.Errorf("got % x", got[vnetHeader:n])
	}
	return err
}

// A fraction that has left but still has the descriptor receives and sends nothing, with
// any source address, also when another fraction has the number of its queue.
func TestLeftIsOut(t *testing.T) {
	for _, n := range sizes {
		for _, leaving := range []segment.Fraction{1, segment.Fraction(n)} {
			t.Run(fmt.Sprintf("%d of %d", leaving, n), func(t *testing.T) {
				l := newLab(t, n, reflector.Options{})
				out := l.evict(t, leaving)
				defer out.Close()
				if n > 2 {
					l.isOut(t, out, "left")
				}
				l.join(t, leaving)
				l.isOut(t, out, "back with another queue")
				for f := segment.Fraction(n) + 1; f <= segment.MaxFractions; f++ {
					l.join(t, f)
				}
				l.isOut(t, out, "all numbers are taken")
			})
		}
	}
}

// isOut checks that out receives no frame, and that its frames reach no fraction, with
// any source address.
func (l *lab) isOut(t *testing.T, out wire, when string) {
	t.Helper()
	before := l.counters(t, 0).Unknown
	for f := range segment.Fraction(segment.MaxFractions) {
		out.send(t, frame(segment.MAC(f+1), segment.Broadcast, "still here"))
	}
	if got := l.counters(t, 0).Unknown - before; got != segment.MaxFractions {
		t.Errorf("%s: %d frames from queues without an owner, want %d", when, got, segment.MaxFractions)
	}
	for f := range l.members().All() { // any fraction that is still in
		l.reaches(t, when, f, frame(segment.MAC(f), segment.Broadcast, "in"), l.members().Without(f))
		break
	}
	if got := out.receive(t, time.Millisecond); got != nil {
		t.Errorf("%s: it receives % x", when, got)
	}
}

// The end of a VM changes nothing for the others, before Leave and after.
func TestVMDies(t *testing.T) {
	l := newLab(t, 3, reflector.Options{})
	l.vms[1].Close()
	delete(l.vms, 1)
	l.reaches(t, "after a death", 2, frame(segment.MAC(2), segment.Broadcast, "all"), segment.Of(3))
	l.reaches(t, "after a death", 3, frame(segment.MAC(3), segment.MAC(2), "one"), segment.Of(2))
	in(t, l.ns, func() error { return l.segment.Leave(1) })
	l.works(t, "it has left")
}

func TestJoinFails(t *testing.T) {
	l := newLab(t, 2, reflector.Options{})
	for _, c := range []struct {
		f    segment.Fraction
		word string
	}{{0, "1 to 16"}, {17, "1 to 16"}, {2, "leave first"}} {
		in(t, l.ns, func() error {
			f, err := l.segment.Join(c.f)
			if f != nil || err == nil || !strings.Contains(err.Error(), c.word) || !strings.Contains(err.Error(), "hl0") {
				t.Errorf("fraction %d: got %v, %v; want an error with %q", c.f, f, err, c.word)
			}
			return nil
		})
	}
	l.works(t, "after failures")
	in(t, l.ns, func() error {
		link, err := netlink.LinkByName("hl0")
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(link); err != nil {
			return err
		}
		if f, err := l.segment.Join(3); f != nil || err == nil || !strings.Contains(err.Error(), "gone") {
			t.Errorf("TAP deleted: got %v, %v; want an error", f, err)
		}
		return absent("hl0")
	})
}

// absent returns an error if a device of the name exists.
func absent(name string) error {
	_, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	return fmt.Errorf("%s is there: %w", name, err)
}

// The TAP has the settings that QEMU and the guests expect, and no address of the host.
func TestCreate(t *testing.T) {
	l := newLab(t, 0, reflector.Options{})
	in(t, l.ns, func() error {
		link, err := netlink.LinkByName("hl0")
		if err != nil {
			return err
		}
		a := link.Attrs()
		if a.MTU != segment.MTU || a.RawFlags&unix.IFF_UP == 0 || a.RawFlags&unix.IFF_NOARP == 0 {
			t.Errorf("MTU %d, flags %#x; want %d, up, without ARP", a.MTU, a.RawFlags, segment.MTU)
		}
		if addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL); err != nil || len(addresses) > 0 {
			t.Errorf("addresses %v, %v; want none", addresses, err)
		}
		if tap := link.(*netlink.Tuntap); tap.Queues != 0 {
			t.Errorf("%d queues that frames may get lost in", tap.Queues)
		}
		return nil
	})
	if f, err := l.segment.Counters(); err != nil || len(f) > 0 {
		t.Errorf("counters %v, %v; want none", f, err)
	}
	l.join(t, 5)
	l.leave(t, 5)
	in(t, l.ns, func() error { // the segment is empty, but the TAP exists
		_, err := netlink.LinkByName("hl0")
		return errors.Join(err, l.segment.Close(), absent("hl0"))
	})
}

func TestCreateFails(t *testing.T) {
	l := newLab(t, 0, reflector.Options{})
	for _, c := range []struct {
		options reflector.Options
		word    string
	}{
		{reflector.Options{Name: "hl0"}, "a device of that name exists"},
		{reflector.Options{Name: "lo"}, "a device of that name exists"},
		{reflector.Options{Name: "hl1", Mode: "loud"}, "loud"},
		{reflector.Options{Name: ""}, "0 bytes"},
		{reflector.Options{Name: "sixteen--letters"}, "16 bytes"},
	} {
		in(t, l.ns, func() error {
			s, err := reflector.Create(c.options)
			if s != nil || err == nil || !strings.Contains(err.Error(), c.word) || !strings.Contains(err.Error(), c.options.Name) {
				t.Errorf("%+v: got %v, %v; want an error with %q", c.options, s, err, c.word)
			}
			return absent("hl1")
		})
	}
	l.join(t, 1)
	l.join(t, 2)
	l.works(t, "after failures")
}

// Nothing passes any more, and the name is free, although VMs have queues. To a VM its queue
// is idle, not broken: QEMU would spin, or exit.
func TestDelete(t *testing.T) {
	l := newLab(t, 2, reflector.Options{})
	in(t, l.ns, func() error {
		return errors.Join(l.segment.Delete(), absent("hl0"), l.segment.Delete())
	})
	l.vms[2].receive(t, time.Millisecond) // what came before
	if _, err := l.vms[1].Write(make([]byte, 100)); !errors.Is(err, unix.EIO) {
		t.Errorf("a VM writes to it: %v, want an I/O error", err)
	}
	if got := l.vms[2].receive(t, 50*time.Millisecond); got != nil {
		t.Errorf("a VM receives % x", got)
	}
	raw, err := l.vms[1].SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		if err := unix.IoctlSetPointerInt(int(fd), unix.TUNSETVNETHDRSZ, 10); err != nil {
			t.Errorf("a VM resets its NIC: %v", err)
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 0); n != 0 || err != nil {
			t.Errorf("a VM polls: %d, %#x, %v; want nothing", n, poll[0].Revents, err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	in(t, l.ns, func() (err error) {
		l.segment, err = reflector.Create(reflector.Options{Name: "hl0"})
		return err
	})
	left := l.vms
	l.vms = map[segment.Fraction]wire{}
	l.join(t, 1)
	l.join(t, 2)
	l.works(t, "created again")
	if n := l.taps(t); n != 2 {
		t.Errorf("%d TAPs, want that of the segment and the one that VMs keep", n)
	}
	for _, vm := range left {
		vm.Close()
	}
	if n := l.taps(t); n != 1 {
		t.Errorf("%d TAPs after the VMs' end, want that of the segment", n)
	}
}

// taps counts the TAPs of the lab.
func (l *lab) taps(t *testing.T) (n int) {
	t.Helper()
	in(t, l.ns, func() error {
		links, err := netlink.LinkList()
		for _, link := range links {
			if link.Type() == "tuntap" {
				n++
			}
		}
		return err
	})
	return n
}

// QEMU sets the header of 10 bytes when it takes a descriptor, for all queues, and QEMU 10 when a
// guest resets its NIC. The segment restores it at once.
func TestVMMChangesHeader(t *testing.T) {
	l := newLab(t, 3, reflector.Options{})
	raw, err := l.vms[2].SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	set := func(size, offloads int) {
		t.Helper()
		err := raw.Control(func(fd uintptr) {
			err := unix.IoctlSetPointerInt(int(fd), unix.TUNSETVNETHDRSZ, size)
			if offloads >= 0 {
				err = errors.Join(err, unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, offloads))
			}
			if err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	restored := func(when string) {
		t.Helper()
		for end := time.Now().Add(patience); time.Now().Before(end); {
			var size int
			_ = raw.Control(func(fd uintptr) { size, err = unix.IoctlGetInt(int(fd), unix.TUNGETVNETHDRSZ) })
			if err == nil && size == vnetHeader {
				l.works(t, when)
				return
			}
		}
		t.Fatalf("%s: the header is not restored", when)
	}
	for range 20 {
		set(10, 0)
		restored("as QEMU takes a queue")
		set(10, -1)
		restored("as QEMU makes a NIC of it")
	}
	in(t, l.ns, func() error {
		for f := range segment.Fraction(3) {
			if err := l.segment.Leave(f + 1); err != nil {
				return err
			}
		}
		return l.segment.RestoreOffloads()
	})
}
