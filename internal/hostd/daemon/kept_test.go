package daemon

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/segments"
)

// heldQueue duplicates QEMU's descriptor of a TAP. QEMU 7.2 closes its own when it is told
// to delete the netdev, QEMU 10 when the device is gone. The duplicate lives on with both, and
// does what a guest could do by means of a QEMU that does not obey.
func (m *machine) heldQueue(tap string) int {
	m.lab.t.Helper()
	fd := m.queue(tap)
	if fd < 0 {
		m.lab.t.Fatalf("%s has no descriptor of %s", m.record.Name, tap)
	}
	m.lab.t.Cleanup(func() { _ = unix.Close(fd) }) // or the test has
	return fd
}

// written is a frame as a VMM writes it to a TAP.
func written(fd int, frame []byte) []byte {
	size, err := unix.IoctlGetInt(fd, unix.TUNGETVNETHDRSZ)
	if err != nil {
		size = 12
	}
	return append(make([]byte, size), frame...)
}

func ethernet(to, from segment.Address, text string) []byte {
	return slices.Concat(to[:], from[:], []byte{8, 0}, []byte(text), make([]byte, 46))
}

// arrives reports whether a frame with the text arrives at a descriptor, now.
func (l *lab) arrives(fd int, text string) bool {
	l.t.Helper()
	buffer := make([]byte, 1<<17)
	for {
		n, err := unix.Read(fd, buffer)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EBADFD):
			return false
		case err != nil:
			l.t.Fatal(err)
		case bytes.Contains(buffer[:n], []byte(text)):
			return true
		}
	}
}

// passes reports whether the guest gets what a bridge floods, and whether the host gets what the
// guest sends, on any interface. The kernel delivers both while they are being sent.
func (l *lab) passes(fd int, bridge string) (toGuest, fromGuest bool) {
	l.t.Helper()
	l.do(func() error {
		link, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		all := int(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00)
		host, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
		if err != nil {
			return err
		}
		defer unix.Close(host)
		_, _ = unix.Write(fd, written(fd, ethernet(segment.Broadcast, segment.MAC(1), "from the guest"))) // may fail
		fromGuest = l.arrives(host, "from the guest")
		err = unix.Sendto(host, ethernet(segment.Broadcast, segment.MAC(2), "to the guest"), 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index})
		toGuest = l.arrives(fd, "to the guest")
		return err
	})
	return toGuest, fromGuest
}

// reaches reports whether a broadcast that a VMM writes to one queue of a segment arrives at another.
func (l *lab) reaches(from, to int, source segment.Fraction) bool {
	l.t.Helper()
	_, _ = unix.Write(from, written(from, ethernet(segment.Broadcast, segment.MAC(source), "to all"))) // may fail
	return l.arrives(to, "to all")
}

// wantIdle fails unless a descriptor is one that a VMM can wait at and set up again. At a
// broken one, QEMU spins, and exits when the guest resets the NIC.
func (l *lab) wantIdle(fd int) {
	l.t.Helper()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(poll, 0)
	}
	if n != 0 || err != nil {
		l.t.Errorf("poll gives %d, %#x, %v; want nothing", n, poll[0].Revents, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, 12); err != nil {
		l.t.Errorf("set up again: %v", err)
	}
}

func (l *lab) wantCutOff(fd int, when string) {
	l.t.Helper()
	if to, from := l.passes(fd, "br0"); to || from {
		l.t.Errorf("%s: frames pass to the guest %t, from it %t", when, to, from)
	}
	l.wantIdle(fd)
}

func (l *lab) setUp(name string) {
	l.t.Helper()
	l.do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

// Nothing passes to or from a NIC that the guest keeps, even if QEMU keeps the TAP, also after
// a restart of the daemon. The TAP is gone when the guest has given the NIC up.
func TestGuestThatKeepsItsNIC(t *testing.T) {
	l := newLab(t)
	l.setUp("br0")
	m := l.boot(1, 2)
	l.serve(100 * time.Millisecond)
	nic := m.mustAttach("c1")
	fd := m.heldQueue("u1n1-1")
	l.eventually("frames pass", func() bool { // QEMU also reads them
		to, from := l.passes(fd, "br0")
		return to && from
	})
	if err := m.detach("c1"); status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "quarantined") {
		t.Errorf("got %v, want DeadlineExceeded and the word", err)
	}
	m.wantNICs("1 c1 quarantined " + nic.GetMac())
	l.wantTAPs("u1n1-1 unnest:ended")
	l.wantCutOff(fd, "quarantined")

	l.check(m.detach("c1"))      // it is not the container's any more
	second := m.mustAttach("c1") // which may have another
	if second.GetSlot() != 2 {
		t.Errorf("second NIC is %v", second)
	}
	if _, err := m.attach("c2"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("attach with a quarantined slot: got %v", err)
	}

	l.end(l.daemon, syscall.SIGKILL)
	l.serve(100 * time.Millisecond)
	l.eventually("the next daemon gives up, too", func() bool {
		return slices.Equal(m.nics(), []string{"1  quarantined " + nic.GetMac(), "2 c1 attached " + second.GetMac()})
	})
	l.wantCutOff(fd, "after a restart")

	m.reset() // the guest gives it up at last
	l.eventually("the slot is free", func() bool { return m.free() == 1 })
	m.wantNICs("2  warm " + second.GetMac())
	l.wantTAPs("u1n2-1 unnest:")
}

// QEMU's own descriptor, without the test's: the TAP is gone at the latest when the device is.
func TestTAPEndsWithItsDevice(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 1)
	l.serve(100 * time.Millisecond)
	m.mustAttach("c1")
	if err := m.detach("c1"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	if taps := l.taps(); len(taps) > 0 && !slices.Equal(taps, []string{"u1n1-1 unnest:ended"}) {
		t.Errorf("TAPs are %q", taps)
	}
	m.reset()
	l.eventually("the slot is free", func() bool { return m.free() == 1 })
	m.wantNothing()
}

// A segment goes on without a fraction whose guest keeps its NIC: nothing passes to or from its
// queue, even if QEMU keeps it, with any source address.
func TestSegmentGuestThatKeepsItsNIC(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(1, 2), l.boot(2, 1)
	l.serve(100 * time.Millisecond)
	a.mustJoin("web", "c1")
	b.mustJoin("web", "c1")
	tap := segments.TAP("default", "web")
	left, stays := a.heldQueue(tap), b.heldQueue(tap)
	l.eventually("frames pass", func() bool { return l.reaches(left, stays, 1) && l.reaches(stays, left, 2) })
	if err := a.leave("c1"); status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "quarantined") {
		t.Errorf("got %v, want DeadlineExceeded and the word", err)
	}
	l.wantNames("default/web", "u2n1-1.2.c1@eth0")
	wantOut := func(when string) {
		t.Helper()
		l.arrives(left, "") // what came before
		for f := range segment.Fraction(segment.MaxFractions) {
			if l.reaches(left, stays, f+1) {
				t.Errorf("%s: fraction 2 gets a frame that it sends as %d", when, f+1)
			}
		}
		if l.reaches(stays, left, 2) {
			t.Errorf("%s: it gets a frame of fraction 2", when)
		}
		l.wantIdle(left)
	}
	wantOut("quarantined")
	// The MAC of the NIC that is left is not given to it again.
	if e := a.mustJoin("web", "c2"); e.GetFraction() != 3 || e.GetSlot() != 2 {
		t.Errorf("next endpoint is %v", e)
	}
	l.wantMembership("default/web", segment.Of(2, 3), a, b)
	wantOut("the guest has another endpoint")

	l.end(l.daemon, syscall.SIGKILL)
	l.serve(100 * time.Millisecond)
	a.wantMembers("web", 2, 3)
	wantOut("after a restart")
}

// A segment ends although a guest keeps its NIC, and its pod can have another.
func TestSegmentThatAGuestKeeps(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(1, 1), l.boot(2, 1)
	l.serve(100 * time.Millisecond)
	a.mustJoin("db", "c1")
	tap := segments.TAP("default", "db")
	left := a.heldQueue(tap)
	if err := a.leave("c1"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	if taps := l.taps(); len(taps) != 1 || !strings.HasPrefix(taps[0], "unnest-") || !strings.HasSuffix(taps[0], " ") {
		t.Errorf("TAPs are %q, want one without the segment's name and alias", taps)
	}
	l.arrives(left, "") // what came before
	l.wantIdle(left)
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(100 * time.Millisecond)
	b.mustJoin("db", "c1")
	l.wantMembership("default/db", segment.Of(1), b)
	if other := b.heldQueue(tap); l.reaches(left, other, 1) || l.reaches(other, left, 1) {
		t.Error("frames pass between the pod's segments")
	} else {
		l.check(unix.Close(other))
	}
	l.end(a.qemu, syscall.SIGKILL)
	l.check(unix.Close(left))
	l.eventually("the TAP is gone", func() bool { return len(l.taps()) == 1 })
}

// A guest goes on after another program has deleted its TAPs, also if the guest then resets the NICs, as
// before it gives one up: the VMM can wait at its descriptors and set them up.
func TestTAPsDeletedByAnother(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 2)
	l.serve(100 * time.Millisecond)
	m.mustAttach("c1")
	m.mustJoin("web", "c2")
	var held []int
	for _, name := range []string{"u1n1-1", segments.TAP("default", "web")} {
		held = append(held, m.heldQueue(name))
		l.do(func() error {
			link, err := netlink.LinkByName(name)
			return errors.Join(err, netlink.LinkDel(link))
		})
	}
	if err := m.detach("c1"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	for _, fd := range held {
		l.wantIdle(fd)
		l.check(unix.Close(fd))
	}
	m.reset() // the guest gives up the NIC of c1; the daemon asks it for the other one
	l.eventually("a slot is free", func() bool { return m.free() == 1 })
	l.eventually("the guest keeps the other NIC", func() bool { return slices.Equal(m.nics(), []string{"2 c2 quarantined 02:68:35:00:00:01"}) })
	m.reset()
	l.eventually("both slots are free", func() bool { return m.free() == 2 })
	m.wantNothing()
}
