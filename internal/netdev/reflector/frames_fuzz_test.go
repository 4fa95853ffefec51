package reflector

import (
	"encoding/binary"
	"flag"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// fuzzedSegment is a segment of three fractions in a network namespace of its own. Frames
// come in by the descriptors that VMs would have.
type fuzzedSegment struct {
	*Segment
	queues map[segment.Fraction]*os.File
	names  map[segment.Address]segment.Fraction
}

func newFuzzedSegment(f *testing.F, host ns.NetNS, mode Mode) *fuzzedSegment {
	f.Helper()
	z := &fuzzedSegment{queues: map[segment.Fraction]*os.File{}, names: map[segment.Address]segment.Fraction{}}
	err := host.Do(func(ns.NetNS) (err error) {
		if z.Segment, err = Create(Options{Name: "hlo" + string(mode), Mode: mode, Limit: Limit{Rate: 1e9}}); err != nil {
			return err
		}
		for n := segment.Fraction(1); n <= 3 && err == nil; n++ {
			z.queues[n], err = z.Join(n)
			z.names[segment.MAC(n)] = n
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		for _, q := range z.queues {
			q.Close()
		}
		if err := host.Do(func(ns.NetNS) error { return z.Delete() }); err != nil {
			f.Error(err)
		}
	})
	return z
}

// receive returns the frames in a queue, each with its header.
func (z *fuzzedSegment) receive(t *testing.T, at segment.Fraction) (frames [][]byte) {
	t.Helper()
	fd := int(z.queues[at].Fd())
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err == unix.EINTR { //nolint:errorlint // a system call's own
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return frames
		}
		frame := make([]byte, 1<<17)
		size, err := unix.Read(fd, frame)
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame[:size])
	}
}

// No fraction receives a frame whose source is not its sender's, that is not IP, or that is
// for another fraction. Nothing that a VM writes, header or frame, ends the segment.
func FuzzFrames(f *testing.F) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		f.Skip("needs root, network namespaces and eBPF: set UNNEST_PRIVILEGED=1")
	}
	host, err := ns.TempNetNS()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { host.Close() })
	segments := map[Mode]*fuzzedSegment{Unicast: newFuzzedSegment(f, host, Unicast), Plain: newFuzzedSegment(f, host, Plain)}
	for from := segment.Fraction(1); from <= 3; from++ {
		for _, to := range []segment.Address{segment.Broadcast, segment.MAC(1), segment.MAC(2), segment.MAC(9)} {
			source := segment.MAC(from)
			frame := append(make([]byte, headerSize), append(to[:], source[:]...)...)
			frame = append(frame, 8, 0, 0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1, 0x80, 0, 0, 53, 0, 8, 0, 0)
			f.Add(byte(1), frame)
			f.Add(byte(2), frame)
			offloaded := append([]byte{}, frame...)
			copy(offloaded, []byte{1, 1, 54, 0, 20, 0, 34, 0, 6, 0}) // checksum at 34+6, TCP of 20 bytes in IPv4
			f.Add(byte(1), append(offloaded, make([]byte, 100)...))
		}
	}
	f.Add(byte(1), append(make([]byte, headerSize), segment.Membership{Generation: 9}.Frame(segment.Broadcast)...))
	arrived := 0
	f.Cleanup(func() {
		if arrived == 0 && flag.Lookup("test.fuzz").Value.String() == "" { // else in other processes
			f.Error("no frame has arrived: this shows nothing")
		}
	})
	f.Fuzz(func(t *testing.T, from byte, frame []byte) {
		sender := segment.Fraction(from%3 + 1)
		for mode, z := range segments {
			z.receiveAll(t, nil)
			if _, err := unix.Write(int(z.queues[sender].Fd()), frame); err != nil {
				continue // the kernel refuses a header that makes no sense
			}
			z.receiveAll(t, func(at segment.Fraction, got []byte) {
				arrived++
				kind := binary.BigEndian.Uint16(got[12:])
				to := segment.Address(got[:6])
				switch {
				case z.names[segment.Address(got[6:12])] != sender:
					t.Errorf("%s: fraction %d receives a frame from % x that %d has sent", mode, at, got[6:12], sender)
				case kind != unix.ETH_P_IP && kind != unix.ETH_P_IPV6:
					t.Errorf("%s: fraction %d receives type %#x", mode, at, kind)
				case mode == Unicast && to != segment.Broadcast && z.names[to] != at:
					t.Errorf("fraction %d receives a frame for % x", at, to)
				case mode == Unicast && at == sender:
					t.Errorf("fraction %d receives its own frame", at)
				}
			})
		}
		if len(frame) >= 54 && len(frame) < 2000 { // queue 0 - 1 has no owner
			z := segments[Unicast]
			for _, p := range []*ebpf.Program{z.programs.Unicast, z.programs.Plain} {
				if verdict, err := p.Run(&ebpf.RunOptions{Data: frame}); err != nil || verdict != 2 {
					t.Errorf("%s from no queue: verdict %d, %v, want the frame dropped", p, verdict, err)
				}
			}
		}
	})
}

// receiveAll calls f with each frame, without its header, that a fraction has in its queue.
func (z *fuzzedSegment) receiveAll(t *testing.T, f func(at segment.Fraction, frame []byte)) {
	t.Helper()
	for at := range z.queues {
		for _, frame := range z.receive(t, at) {
			if f != nil {
				f(at, frame[headerSize:])
			}
		}
	}
}
