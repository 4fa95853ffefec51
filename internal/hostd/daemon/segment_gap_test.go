package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// withoutAnnouncements is the environment variable with which the daemon of a lab announces no members but new ones.
const withoutAnnouncements = "UNNEST_TEST_WITHOUT_ANNOUNCEMENTS"

// stall counts the frames from one machine to another.
type stall struct {
	mu         sync.Mutex
	lost, sent int
}

// watchFrames sends a frame from one queue to the other each millisecond, until stop is closed.
func watchFrames(from, to int, source, target segment.Fraction, stop <-chan struct{}) (*stall, <-chan error) {
	s, ended := &stall{}, make(chan error, 1)
	mac, at := segment.MAC(source), segment.MAC(target)
	go func() {
		buffer := make([]byte, 1<<17)
		for i := 0; ; i++ {
			select {
			case <-stop:
				ended <- nil
				return
			case <-time.After(time.Millisecond):
			}
			frame := append(append(append(make([]byte, 12), at[:]...), mac[:]...), 8, 0)
			text := fmt.Sprintf("frame %d", i)
			frame = append(append(frame, make([]byte, 60)...), text...)
			if _, err := unix.Write(from, frame); err != nil && !errors.Is(err, unix.EINVAL) { // the header is of 10 bytes
				ended <- err
				return
			}
			arrived := false
			for {
				n, err := unix.Read(to, buffer)
				if err != nil {
					break
				}
				arrived = arrived || bytes.Equal(buffer[:n], frame)
			}
			s.mu.Lock()
			s.sent++
			if !arrived {
				s.lost++
			}
			s.mu.Unlock()
		}
	}()
	return s, ended
}

// QEMU changes header and offloads of the segment's TAP when it takes a queue, and QEMU 10 also
// when a guest gives its NIC up. Frames between other machines are lost until the daemon has restored both. It does so at once:
// there is no announcement here, which would do it, too.
func TestSegmentPassesWhileOthersJoinAndLeave(t *testing.T) {
	t.Setenv(withoutAnnouncements, "1")
	l := newLab(t)
	a, b, c := l.boot(1, 2), l.boot(2, 2), l.boot(3, 4)
	l.serve(patience)
	a.mustJoin("web", "c1")
	b.mustJoin("web", "c1")
	from, to := a.queue(tapOf("default/web")), b.queue(tapOf("default/web"))
	defer unix.Close(from)
	defer unix.Close(to)
	stop := make(chan struct{})
	s, ended := watchFrames(from, to, a.fraction("default/web"), b.fraction("default/web"), stop)
	passes := func(what string) {
		t.Helper()
		passed := s.count()
		l.eventually(what, func() bool { return s.count() > passed+10 })
	}
	for i := range 5 {
		container := fmt.Sprint("c", i)
		c.mustJoin("web", container)
		queue := c.queue(tapOf("default/web"))
		err := errors.Join(unix.IoctlSetPointerInt(queue, unix.TUNSETVNETHDRSZ, 10), unix.IoctlSetInt(queue, unix.TUNSETOFFLOAD, 0), unix.Close(queue))
		l.check(err)
		passes("frames pass after a change")
		c.leaveWilling(container)
		passes("frames pass after one has left")
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Logf("%d of %d frames are lost", s.lost, s.sent)
}

func (s *stall) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent - s.lost
}
