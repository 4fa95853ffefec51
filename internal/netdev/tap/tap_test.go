package tap

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/thread"
)

// inNewNS runs f in a fresh network namespace with the bridge br0. It ends with
// the test.
func inNewNS(t *testing.T, f func()) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and /dev/net/tun: set UNNEST_PRIVILEGED=1")
	}
	err := thread.Do(func() error { // t.Fatal ends its goroutine, and the thread with it
		ns, err := netns.New()
		if err != nil {
			return err
		}
		defer ns.Close()
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "br0"
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return err
		}
		f()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// links lists the names of the devices of the namespace, except lo.
func links(t *testing.T) string {
	t.Helper()
	all, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range all {
		if name := l.Attrs().Name; name != "lo" {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func TestOpen(t *testing.T) {
	inNewNS(t, func() {
		for _, d := range []Device{
			{Name: "tap0", Bridge: "br0", MTU: 1400, Alias: "unnest:node1/pod1/eth0"},
			{Name: "fifteen-letters", Bridge: "br0", MTU: 9000},
		} {
			f, err := Open(d)
			if err != nil {
				t.Errorf("%s: %v", d.Name, err)
				continue
			}
			link, err := netlink.LinkByName(d.Name)
			if err != nil {
				t.Fatal(err)
			}
			bridge, err := netlink.LinkByName("br0")
			if err != nil {
				t.Fatal(err)
			}
			a := link.Attrs()
			if a.Flags&net.FlagUp == 0 {
				t.Errorf("%s is down", d.Name)
			}
			if link.Type() != "tuntap" || a.MTU != d.MTU || a.Alias != d.Alias || a.MasterIndex != bridge.Attrs().Index {
				t.Errorf("%s: got %s, MTU %d, alias %q, master %d; want %+v", d.Name, link.Type(), a.MTU, a.Alias, a.MasterIndex, d)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if got := links(t); got != "br0" {
				t.Errorf("%s is closed, but there is %s", d.Name, got)
			}
		}
	})
}

// When a step fails, no TAP is left, and the error names the device.
func TestOpenFails(t *testing.T) {
	tests := []struct {
		name   string
		device Device
		words  []string
	}{
		{"no such bridge", Device{Name: "tap0", Bridge: "br1", MTU: 1500}, []string{"tap0", "bridge br1"}},
		{"name of 16 bytes", Device{Name: "sixteen--letters", Bridge: "br0", MTU: 1500}, []string{"sixteen--letters"}},
		{"MTU too large", Device{Name: "tap0", Bridge: "br0", MTU: 1 << 20}, []string{"tap0", "MTU 1048576"}},
		{"not a bridge", Device{Name: "tap0", Bridge: "lo", MTU: 1500}, []string{"tap0", "lo"}},
		{"alias too long", Device{Name: "tap0", Bridge: "br0", MTU: 1500, Alias: strings.Repeat("a", 256)}, []string{"tap0", "alias"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inNewNS(t, func() {
				f, err := Open(tt.device)
				if f != nil || err == nil {
					t.Fatalf("got %v, %v; want an error", f, err)
				}
				for _, w := range tt.words {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("%q is not in: %v", w, err)
					}
				}
				if got := links(t); got != "br0" {
					t.Errorf("there is %s", got)
				}
			})
		})
	}
}

// Open does not take over a TAP that is in use.
func TestOpenTaken(t *testing.T) {
	inNewNS(t, func() {
		d := Device{Name: "tap0", Bridge: "br0", MTU: 1500}
		first, err := Open(d)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := Open(d); second != nil || err == nil || !strings.Contains(err.Error(), "tap0") {
			t.Errorf("got %v, %v; want an error", second, err)
		}
		if got := links(t); !strings.Contains(got, "tap0") {
			t.Errorf("want tap0 to exist, links are %s", got)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A TAP with several queues lasts until the last is closed, and nobody adds a queue to one that is in use.
func TestOpenMultiQueue(t *testing.T) {
	inNewNS(t, func() {
		d := Device{Name: "tap0", Bridge: "br0", MTU: 1500}
		queues, err := OpenMultiQueue(d, 3)
		if err != nil || len(queues) != 3 {
			t.Fatalf("got %d queues, %v; want 3", len(queues), err)
		}
		link, err := netlink.LinkByName("tap0")
		if err != nil {
			t.Fatal(err)
		}
		if all, err := netlink.QdiscList(link); err != nil || len(all) != 1 {
			t.Errorf("%d qdiscs, %v; want 1", len(all), err)
		}
		for _, count := range []int{1, 2} {
			if more, err := OpenMultiQueue(d, count); more != nil || err == nil || !strings.Contains(err.Error(), "tap0") {
				t.Errorf("%d more queues: got %v, %v; want an error", count, more, err)
			}
		}
		for i, q := range queues {
			if got := links(t); !strings.Contains(got, "tap0") {
				t.Errorf("%d queues are closed, links are %s", i, got)
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
		if got := links(t); got != "br0" {
			t.Errorf("all queues are closed, but there is %s", got)
		}
	})
}

// A descriptor in a child process keeps the TAP, as QEMU's does.
func TestOpenSharedDescriptor(t *testing.T) {
	inNewNS(t, func() {
		f, err := Open(Device{Name: "tap0", Bridge: "br0", MTU: 1500})
		if err != nil {
			t.Fatal(err)
		}
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		child, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "read line"}, &os.ProcAttr{Files: []*os.File{reader, nil, nil, f}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Close(), reader.Close()); err != nil {
			t.Error(err)
		}
		if got := links(t); !strings.Contains(got, "tap0") {
			t.Errorf("the TAP went before its last holder: %s", got)
		}
		writer.Close()
		if _, err := child.Wait(); err != nil {
			t.Error(err)
		}
		if got := links(t); got != "br0" {
			t.Errorf("the last descriptor is closed, but devices are left: %s", got)
		}
	})
}

// A TAP that a process has is taken off the network, but stays in order for that process. Any
// other one is deleted.
func TestRemove(t *testing.T) {
	inNewNS(t, func() {
		for i := range 4 {
			persistent, count := i%2 == 1, 1+i/2
			queues, err := OpenMultiQueue(Device{Name: "tap0", Bridge: "br0", MTU: 1500, Persistent: persistent}, count)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range queues[1:] {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
			f := queues[0]
			for range 2 {
				if left, err := Remove("tap0"); !left || err != nil {
					t.Errorf("persistent %t, %d queues: left %t, error %v; want it left", persistent, count, left, err)
				}
			}
			link, err := netlink.LinkByName("tap0")
			if err != nil {
				t.Fatal(err)
			}
			if a := link.Attrs(); a.Flags&net.FlagUp != 0 || a.MasterIndex != 0 {
				t.Errorf("persistent %t: flags are %v, master is %d; want it down and on no bridge", persistent, a.Flags, a.MasterIndex)
			}
			if _, err := f.Write(make([]byte, 100)); !errors.Is(err, unix.EIO) {
				t.Errorf("persistent %t: its process writes: %v, want an I/O error", persistent, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if left, err := Remove("tap0"); left || err != nil {
				t.Errorf("persistent %t, closed: left %t, error %v", persistent, left, err)
			}
			if got := links(t); got != "br0" {
				t.Errorf("persistent %t: there is %s", persistent, got)
			}
		}
		if _, err := Remove("br0"); err == nil || !strings.Contains(err.Error(), "remove TAP br0") {
			t.Errorf("not a TAP: got %v", err)
		}
	})
}

// A VMM can set up its end of a TAP that somebody has deleted: Revive has given it a new TAP, without a network.
func TestRevive(t *testing.T) {
	inNewNS(t, func() {
		one, err := Open(Device{Name: "one", Bridge: "br0", MTU: 1500})
		if err != nil {
			t.Fatal(err)
		}
		two, err := OpenMultiQueue(Device{Name: "two", Bridge: "br0", MTU: 1500}, 2)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := Revive(os.Getpid()); n != 0 || err != nil {
			t.Errorf("with all TAPs: %d, %v", n, err)
		}
		queues := append(two, one)
		for _, name := range []string{"one", "two"} {
			link, err := netlink.LinkByName(name)
			if err = errors.Join(err, netlink.LinkDel(link)); err != nil {
				t.Fatal(err)
			}
		}
		setUp := func(f *os.File) error { return unix.IoctlSetPointerInt(int(f.Fd()), unix.TUNSETVNETHDRSZ, 12) }
		for _, f := range queues {
			if err := setUp(f); !errors.Is(err, unix.EBADFD) {
				t.Errorf("set up %s without a TAP: %v", f.Name(), err)
			}
		}
		if n, err := Revive(os.Getpid()); n != len(queues) || err != nil {
			t.Errorf("%d revived, %v; want %d", n, err, len(queues))
		}
		for _, f := range queues {
			poll := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, 0)
			if err = errors.Join(err, setUp(f)); n != 0 || err != nil {
				t.Errorf("%s: poll gives %d, %#x, %v; want nothing", f.Name(), n, poll[0].Revents, err)
			}
		}
		for _, name := range strings.Fields(links(t)) {
			link, err := netlink.LinkByName(name)
			if err != nil || name != "br0" && (link.Attrs().MasterIndex != 0 || link.Attrs().Flags&net.FlagUp != 0) {
				t.Errorf("%+v, %v; want it down, on no bridge", link, err)
			}
		}
		for _, f := range queues {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		if got := links(t); got != "br0" {
			t.Errorf("left: %s", got)
		}
	})
	inNewNS(t, func() {
		var fds []int
		for range 2 {
			fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			fds = append(fds, fd)
		}
		synctest.Test(t, func(t *testing.T) { // Revive sleeps until the other goroutine has slept
			made := make(chan error, 1)
			go func() {
				time.Sleep(openTime - 1)
				made <- setInterface(fds[0], "three", 0)
			}()
			n, err := Revive(os.Getpid())
			if err := errors.Join(err, <-made); n != 1 || err != nil {
				t.Errorf("%d revived, %v; want the one that gets no TAP", n, err)
			}
		})
		if got := strings.Fields(links(t)); len(got) != 3 || !slices.Contains(got, "three") {
			t.Errorf("links are %s", got)
		}
	})
	if n, err := Revive(1 << 22); n != 0 || err != nil {
		t.Errorf("no such process: %d, %v", n, err)
	}
}

// A duplicate is the same open file. A descriptor that is closed, or whose process has ended, has none.
func TestDuplicate(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	fd, err := Duplicate(os.Getpid(), int(writer.Fd()))
	if fd < 0 || err != nil {
		t.Fatalf("got %d, %v", fd, err)
	}
	if fd == int(writer.Fd()) {
		t.Errorf("%d is the descriptor itself", fd)
	}
	copied := os.NewFile(uintptr(fd), "copy")
	defer copied.Close()
	got := make([]byte, 3)
	if _, err := copied.WriteString("abc"); err != nil {
		t.Fatal(err)
	}
	if n, err := reader.Read(got); err != nil || string(got[:n]) != "abc" {
		t.Errorf("read %q, %v", got[:n], err)
	}
	for _, c := range []struct{ pid, fd int }{{os.Getpid(), 1 << 20}, {1 << 22, 0}} {
		if fd, err := Duplicate(c.pid, c.fd); fd != -1 || err != nil {
			t.Errorf("descriptor %d of process %d: %d, %v", c.fd, c.pid, fd, err)
		}
	}
}
