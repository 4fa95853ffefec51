package ratelimit

import (
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// flood sends frames of 1400 bytes from an interface, as fast as it can.
func (h *host) flood(ns netns.NsHandle, name string, bytes int) {
	h.t.Helper()
	h.in(ns, func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		h.check(err)
		defer unix.Close(fd)
		h.check(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<30)) // the queue's frames count
		link, err := netlink.LinkByName(name)
		h.check(err)
		frame := make([]byte, 1400)
		for i := range 12 {
			frame[i] = 2
		}
		frame[12], frame[13] = 0x88, 0xb5 // for local experiments: no one answers
		for ; bytes > 0; bytes -= len(frame) {
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}); err != nil && err != unix.ENOBUFS {
				h.t.Fatal(err)
			}
		}
	})
}

// backlog returns how many bytes wait in the token bucket of an interface.
func (h *host) backlog(name string) int {
	h.t.Helper()
	link, err := netlink.LinkByName(name)
	h.check(err)
	all, err := netlink.QdiscList(link)
	h.check(err)
	i := slices.IndexFunc(all, func(q netlink.Qdisc) bool { return q.Type() == "tbf" })
	if i < 0 {
		h.t.Fatalf("%s has no token bucket", name)
	}
	return int(all[i].Attrs().Statistics.Queue.Backlog)
}

// Whatever burst a pod asks for, no more than 1 MiB of its frames wait on the host, or
// those of 100 ms.
func TestQueue(t *testing.T) {
	inHost(t, func(h *host) {
		const burst = 16 << 20 // bytes
		tests := []struct {
			name  string
			rate  uint64 // bit/s
			burst uint64 // bytes
			most  int    // bytes
		}{
			{"a large burst", 8e6, burst, 100e3},
			{"the default burst", 8e6, 0, 100e3},
			{"the lowest rate", 64e3, 0, minBurst},
			{"a high rate", 100e6, burst, 1 << 20},
		}
		for _, tt := range tests {
			l := Limits{tt.rate, tt.burst * 8, tt.rate, tt.burst * 8}
			h.check(Clear("tap0")) // else the frames of the case before wait too
			h.check(Set("tap0", l))
			h.flood(h.ns, "tap0", burst+16<<20)
			to := h.backlog("tap0")
			h.flood(h.pod, "eth0", burst+16<<20)
			from := h.backlog(ifbName("tap0"))
			for end := time.Now().Add(time.Second); from == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
				from = h.backlog(ifbName("tap0"))
			}
			t.Logf("%s: %d bytes wait to the pod, %d from it", tt.name, to, from)
			if to > tt.most || from > tt.most {
				t.Errorf("%s: %d bytes wait to the pod, %d from it; want at most %d", tt.name, to, from, tt.most)
			}
			if counted := int(Queue(l)); counted < to+from || counted > 2*tt.most {
				t.Errorf("%s: Queue says %d bytes, %d wait", tt.name, counted, to+from)
			}
			if to == 0 || from == 0 {
				t.Errorf("%s: nothing waits: the test shows nothing", tt.name)
			}
		}
	})
}
