package reflector_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/reflector"
	"unnest.io/unnest/internal/netdev/tap"
)

// role names the part that the test binary plays when it is started again.
const role = "UNNEST_HOSTLO_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "daemon":
		end(beDaemon())
	case "vm":
		end(beVM())
	}
	os.Exit(m.Run())
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beDaemon creates a segment of as many fractions as the argument says, and passes
// their descriptors to descriptor 3. It lives as long as its input.
func beDaemon() error {
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	s, err := reflector.Create(reflector.Options{Name: "hl0"})
	if err != nil {
		return err
	}
	var fds []int
	for f := range segment.Fraction(n) {
		queue, err := s.Join(f + 1)
		if err != nil {
			return err
		}
		defer queue.Close()
		fds = append(fds, int(queue.Fd()))
	}
	if err := unix.Sendmsg(3, []byte("queues"), unix.UnixRights(fds...), nil, 0); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// beVM copies frames between descriptors 3, a queue, and 4, until the latter's
// other end is closed.
func beVM() error {
	for _, fd := range []int{3, 4} {
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
	}
	queue, test := os.NewFile(3, "queue"), os.NewFile(4, "test")
	go copyFrames(test, queue)
	copyFrames(queue, test)
	return nil
}

func copyFrames(to, from *os.File) {
	b := make([]byte, 1<<17)
	for {
		n, err := from.Read(b)
		if n == 0 || err != nil {
			os.Exit(0)
		}
		if _, err := to.Write(b[:n]); errors.Is(err, unix.EPIPE) {
			os.Exit(0)
		}
	}
}

// process starts the test binary in a role, in the namespace of the calling thread.
func process(t *testing.T, as string, files []*os.File, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), role+"="+as)
	c.Stderr = os.Stderr
	c.ExtraFiles = files
	input, err := c.StdinPipe() // its end ends the daemon with the test
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		kill(c)
	})
	return c
}

func kill(c *exec.Cmd) {
	_ = c.Process.Kill() // it may have ended
	_ = c.Wait()         // it was killed
}

// pair is a socket pair that keeps packets apart. The first end is the test's.
func pair(t *testing.T) (own wire, other *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, other = wire{os.NewFile(uintptr(fds[0]), "own")}, os.NewFile(uintptr(fds[1]), "other")
	t.Cleanup(func() {
		own.Close()
		other.Close()
	})
	return own, other
}

// receiveQueues returns the descriptors that a daemon passes.
func receiveQueues(t *testing.T, from wire, n int) []*os.File {
	t.Helper()
	raw, err := from.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	b, control := make([]byte, 100), make([]byte, unix.CmsgSpace(4*n))
	var got int
	var failure error
	err = raw.Read(func(fd uintptr) bool {
		_, got, _, _, failure = unix.Recvmsg(int(fd), b, control, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(failure, unix.EAGAIN)
	})
	if err := errors.Join(err, failure); err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:got])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != n {
		t.Fatalf("%d descriptors, %v; want %d", len(fds), err, n)
	}
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "queue"))
	}
	return files
}

// orphan is a segment whose daemon was killed, with the processes of its VMs.
type orphan struct {
	*lab
	processes map[segment.Fraction]*exec.Cmd
}

func newOrphan(t *testing.T, n int) *orphan {
	t.Helper()
	o := &orphan{&lab{ns: newNS(t), vms: map[segment.Fraction]wire{}}, map[segment.Fraction]*exec.Cmd{}}
	own, other := pair(t)
	var daemon *exec.Cmd
	in(t, o.ns, func() error {
		daemon = process(t, "daemon", []*os.File{other}, strconv.Itoa(n))
		return other.Close()
	})
	for i, queue := range receiveQueues(t, own, n) {
		f := segment.Fraction(i + 1)
		own, other := pair(t)
		o.processes[f] = process(t, "vm", []*os.File{queue, other})
		o.vms[f] = own
		other.Close()
		queue.Close()
	}
	kill(daemon)
	return o
}

func (o *orphan) holders() map[int]segment.Fraction {
	pids := map[int]segment.Fraction{}
	for f, c := range o.processes {
		pids[c.Process.Pid] = f
	}
	return pids
}

// kill ends a VM. It stays among the holders, as for a daemon that has not noticed.
func (o *orphan) kill(f segment.Fraction) {
	kill(o.processes[f])
	delete(o.vms, f)
}

func (o *orphan) recover(t *testing.T) {
	t.Helper()
	in(t, o.ns, func() (err error) {
		o.segment, err = reflector.Recover(reflector.Options{Name: "hl0"}, o.holders())
		return err
	})
	t.Cleanup(func() { o.segment.Close() })
}

// The daemon is killed and VMs end, so that the numbers of the queues are unknown. A new
// daemon recovers the segment.
func TestRecover(t *testing.T) {
	for _, n := range sizes {
		for _, dead := range []segment.Set{0, segment.Of(1), segment.Of(1, segment.Fraction(n/2), segment.Fraction(n-1))} {
			if n-dead.Len() < 1 {
				continue
			}
			t.Run(fmt.Sprintf("%d without %s", n, dead), func(t *testing.T) {
				o := newOrphan(t, n)
				for f := range dead.All() {
					o.kill(f)
				}
				o.recover(t)
				o.works(t, "recovered")
				o.hears(t, segment.Membership{Generation: 1, Members: o.members()})
				for f := range dead.All() {
					o.join(t, f)
					o.works(t, fmt.Sprintf("%d is back", f))
				}
				last := segment.Fraction(n)
				o.leave(t, last)
				o.works(t, fmt.Sprintf("%d has left", last))
				if c := o.counters(t, 0); c != (reflector.Counters{}) {
					t.Errorf("frames from queues without an owner: %+v", c)
				}
			})
		}
	}
}

// The segment works after its daemon was killed, and after another recovery was killed.
func TestRecoverAgain(t *testing.T) {
	o := newOrphan(t, 3)
	before := func(when string) {
		o.reaches(t, when, 1, frame(segment.MAC(1), segment.Broadcast, when), segment.Of(2, 3))
		o.reaches(t, when, 3, frame(segment.MAC(3), segment.MAC(2), when), segment.Of(2))
	}
	before("orphaned")
	o.recover(t)
	o.works(t, "recovered")
	if err := o.segment.Close(); err != nil {
		t.Fatal(err)
	}
	before("let go")
	o.recover(t)
	o.works(t, "recovered again")
}

// A recovery that was killed has left queues detached.
func TestRecoverDetached(t *testing.T) {
	o := newOrphan(t, 3)
	pidfd, err := unix.PidfdOpen(o.processes[2].Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	request, err := unix.NewIfreq("")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_DETACH_QUEUE)
	if err := errors.Join(unix.IoctlIfreq(fd, unix.TUNSETQUEUE, request), unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	o.recover(t)
	o.works(t, "recovered")
}

// A VM that has left but kept its descriptor is not recovered as a detached one.
func TestRecoverPrefersAttached(t *testing.T) {
	l := newLab(t, 2, reflector.Options{})
	queues := []*os.File{l.evict(t, 1).File, nil}
	l.join(t, 1)
	queues[1] = l.vms[1].File
	vms := map[segment.Fraction]*exec.Cmd{}
	for f := range l.members().All() {
		own, other := pair(t)
		files := []*os.File{l.vms[f].File, other}
		if f == 1 { // the old one has the lower number
			files = []*os.File{queues[1], other, queues[0]}
		}
		vms[f] = process(t, "vm", files)
		l.vms[f].Close()
		l.vms[f] = own
		other.Close()
	}
	queues[0].Close()
	if err := l.segment.Close(); err != nil {
		t.Fatal(err)
	}
	o := &orphan{l, vms}
	o.recover(t)
	o.works(t, "recovered")
}

func TestRecoverFails(t *testing.T) {
	o := newOrphan(t, 3)
	pid := func(f segment.Fraction) int { return o.processes[f].Process.Pid }
	for _, c := range []struct {
		name    string
		options reflector.Options
		holders map[int]segment.Fraction
		word    string
	}{
		{"a holder is not named", reflector.Options{Name: "hl0"}, map[int]segment.Fraction{pid(1): 1, pid(3): 3}, "1 of its queues"},
		{"no holders", reflector.Options{Name: "hl0"}, nil, "none of the processes"},
		{"others", reflector.Options{Name: "hl0"}, map[int]segment.Fraction{os.Getpid(): 1, 1 << 30: 2}, "none of the processes"},
		{"no such TAP", reflector.Options{Name: "hl1"}, o.holders(), "hl1"},
		{"no TAP", reflector.Options{Name: "lo"}, o.holders(), "not a multi-queue TAP"},
		{"fraction 17", reflector.Options{Name: "hl0"}, map[int]segment.Fraction{pid(1): 17}, "17"},
		{"one twice", reflector.Options{Name: "hl0"}, map[int]segment.Fraction{pid(1): 2, pid(2): 2}, "both"},
		{"no mode", reflector.Options{Name: "hl0", Mode: "loud"}, o.holders(), "loud"},
	} {
		in(t, o.ns, func() error {
			s, err := reflector.Recover(c.options, c.holders)
			if s != nil || err == nil || !strings.Contains(err.Error(), c.word) {
				t.Errorf("%s: got %v, %v; want an error with %q", c.name, s, err, c.word)
			}
			return nil
		})
		o.reaches(t, c.name, 1, frame(segment.MAC(1), segment.MAC(2), c.name), segment.Of(2))
	}
	o.recover(t) // nothing is lost
	o.works(t, "after failures")
}

// A TAP of the same name in another namespace is another segment.
func TestRecoverOtherNamespace(t *testing.T) {
	o, other := newOrphan(t, 2), newOrphan(t, 2)
	in(t, o.ns, func() error {
		s, err := reflector.Recover(reflector.Options{Name: "hl0"}, other.holders())
		if s != nil || err == nil || !strings.Contains(err.Error(), "none of the processes") {
			t.Errorf("got %v, %v; want an error", s, err)
		}
		return nil
	})
	other.reaches(t, "another namespace", 1, frame(segment.MAC(1), segment.MAC(2), "text"), segment.Of(2))
	o.recover(t)
	o.works(t, "recovered")
}

// Without a daemon the TAP disappears with the last VM.
func TestOrphanGoes(t *testing.T) {
	o := newOrphan(t, 2)
	for _, f := range []segment.Fraction{1, 2} {
		in(t, o.ns, func() error {
			_, err := netlink.LinkByName("hl0")
			return err
		})
		o.kill(f)
	}
	in(t, o.ns, func() error {
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if absent("hl0") == nil {
				break
			}
		}
		return absent("hl0")
	})
}

// failsToRecover has a recovery fail after it has replaced the program: the TAP has as many queues as it can have.
func (o *orphan) failsToRecover(t *testing.T) {
	t.Helper()
	in(t, o.ns, func() error {
		for {
			fd, err := tap.OpenQueue("hl0", unix.IFF_MULTI_QUEUE)
			if errors.Is(err, unix.E2BIG) {
				break
			}
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			request, err := unix.NewIfreq("")
			if err != nil {
				return err
			}
			request.SetUint16(unix.IFF_DETACH_QUEUE)
			if err := unix.IoctlIfreq(fd, unix.TUNSETQUEUE, request); err != nil {
				return err
			}
		}
		s, err := reflector.Recover(reflector.Options{Name: "hl0"}, o.holders())
		if s != nil || !errors.Is(err, unix.E2BIG) {
			t.Errorf("with too many queues: got %v, %v", s, err)
		}
		return nil
	})
}

// A VM that has answered the daemon that was killed, and hangs since, is silent for the next one.
func TestRecoverSilent(t *testing.T) {
	o := newOrphan(t, 2)
	m := segment.Membership{Generation: 1, Members: o.members()}
	answer, mac := m.Frame(segment.MAC(segment.Reflector)), segment.MAC(2)
	copy(answer[6:], mac[:])
	o.vms[2].send(t, answer)
	o.reaches(t, "after the answer", 2, frame(mac, segment.MAC(1), "one"), segment.Of(1))
	o.failsToRecover(t)
	for _, when := range []string{"recovered", "recovered again"} {
		o.recover(t)
		if err := errors.Join(o.segment.Announce(m), o.segment.Announce(m)); err != nil {
			t.Fatal(err)
		}
		if got, err := o.segment.Silent(0); err != nil || got != segment.Of(2) {
			t.Errorf("%s: %s are silent, %v; want 2", when, got, err)
		}
		if err := o.segment.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
