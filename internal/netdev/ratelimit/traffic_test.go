package ratelimit

import (
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	frameSize = 1400
	// protocol is for local experiments: nobody answers.
	protocol = 0x88b5
	// patience is for what must happen, on any machine.
	patience = time.Minute
)

// direction is one between tap0 and the pod.
type direction struct {
	from, to netns.NsHandle
	sender   string
	receiver string
	bucket   string // the interface that has the token bucket
}

func (h *host) toPod() direction { return direction{h.ns, h.pod, "tap0", "eth0", "tap0"} }

func (h *host) fromPod() direction {
	return direction{h.pod, h.ns, "eth0", "tap0", ifbName("tap0")}
}

// flood sends frames as fast as it can.
func (h *host) flood(d direction, bytes int) {
	h.t.Helper()
	h.in(d.from, func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		h.check(err)
		defer unix.Close(fd)
		h.check(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<30)) // the queue's frames count
		link, err := netlink.LinkByName(d.sender)
		h.check(err)
		frame := make([]byte, frameSize)
		for i := range 12 {
			frame[i] = 2
		}
		frame[12], frame[13] = protocol>>8, protocol&0xff
		for ; bytes > 0; bytes -= len(frame) {
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}); err != nil && err != unix.ENOBUFS {
				h.t.Fatal(err)
			}
		}
	})
}

// counter returns a socket at the receiving end that counts the frames of flood. Sockets
// of one protocol see frames after the ifb device has returned them.
func (h *host) counter(d direction) (fd int) {
	h.t.Helper()
	h.in(d.to, func() {
		link, err := netlink.LinkByName(d.receiver)
		h.check(err)
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		h.check(err)
		h.check(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol>>8 | protocol&0xff<<8, Ifindex: link.Attrs().Index}))
	})
	return fd
}

// arrived returns the bytes that a counter has seen since the last call.
func (h *host) arrived(fd int) int {
	h.t.Helper()
	stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	h.check(err)
	return int(stats.Packets) * frameSize // with those that the socket has no memory for
}

// traffic floods a direction with twice what a bucket allows, and checks that no more
// than that arrives. A busy machine sends and forwards later, and the limit grows with the
// time: there is no lower bound, except that something arrives.
func (h *host) traffic(what string, d direction, b *bucket) {
	h.t.Helper()
	fd := h.counter(d)
	defer unix.Close(fd)
	if b == nil {
		h.unlimited(what, d, fd)
		return
	}
	allowed := func(t time.Duration) float64 {
		return 1.1*(float64(b.burst)+float64(b.rate)*t.Seconds()) + 10*frameSize
	}
	begin := time.Now()
	sent, passed := 0, 0
	for took := time.Duration(0); took < 300*time.Millisecond || passed == 0 || float64(sent) < 2*allowed(took); {
		h.flood(d, 1<<20)
		sent += 1 << 20
		passed += h.arrived(fd)
		took = time.Since(begin) // after the count: an upper bound
		if float64(passed) > allowed(took) {
			h.t.Errorf("%s: %d of %d bytes pass in %v, want at most %.0f", what, passed, sent, took, allowed(took))
			return
		}
		if took > patience {
			h.t.Fatalf("%s: %d of %d bytes pass in %v", what, passed, sent, took)
		}
	}
	h.t.Logf("%s: %d of %d bytes pass in %v", what, passed, sent, time.Since(begin))
}

// unlimited checks that more passes than the burst of a bucket.
func (h *host) unlimited(what string, d direction, fd int) {
	h.t.Helper()
	begin := time.Now()
	for passed := 0; passed < 1<<20; passed += h.arrived(fd) {
		h.flood(d, 1<<20)
		if time.Since(begin) > patience {
			h.t.Fatalf("%s: %d bytes pass in %v, want no limit", what, passed, time.Since(begin))
		}
	}
}
