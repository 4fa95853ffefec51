package loopback

import (
	"bytes"
	"encoding/binary"
	goflag "flag"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// Verdicts of programs (linux/pkt_cls.h).
const (
	unspecified = 0xffffffff
	shot        = 2
	redirected  = 7
)

// fuzzedPrograms are the programs of fraction 1 of 3, run with frames of the fuzzer and not
// attached to any link.
type fuzzedPrograms struct {
	*loopbackObjects
	pod   ns.NetNS
	state loopbackSegment
}

func newFuzzedPrograms(f *testing.F) *fuzzedPrograms {
	f.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		f.Skip("needs root and eBPF: set UNNEST_PRIVILEGED=1")
	}
	pod, err := ns.TempNetNS()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { pod.Close() })
	state := loopbackSegment{Generation: 7, Fraction: 1, Nic: 1, Members: uint32(segment.Of(1, 2, 3))}
	o, err := load(state)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { o.Close() })
	return &fuzzedPrograms{o, pod, state}
}

// run runs a program on a frame. It returns the verdict, the frame afterwards, and the
// members that the program knows then.
func (z *fuzzedPrograms) run(t *testing.T, p *ebpf.Program, frame []byte) (verdict uint32, out []byte, known loopbackSegment) {
	t.Helper()
	err := z.pod.Do(func(ns.NetNS) (err error) {
		if err := z.HostloSegment.Put(uint32(0), z.state); err != nil {
			return err
		}
		options := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+512)}
		if verdict, err = p.Run(&options); err != nil {
			return err
		}
		out = options.DataOut
		return z.HostloSegment.Lookup(uint32(0), &known)
	})
	if err != nil {
		t.Fatalf("run %s: %v", p, err)
	}
	return verdict, out, known
}

// wantSome returns a count that must not be zero at the end: else no frame has passed, and
// the target shows nothing.
func wantSome(f *testing.F) *int {
	f.Helper()
	passed := new(int)
	f.Cleanup(func() {
		if *passed == 0 && goflag.Lookup("test.fuzz").Value.String() == "" {
			f.Error("no frame has passed")
		}
	})
	return passed
}

// runs reports whether the kernel runs a program on a frame: not without the headers of its
// type.
func runs(frame []byte) bool {
	if len(frame) <= 14 || len(frame) > 2000 {
		return false
	}
	headers := map[uint16]int{unix.ETH_P_IP: 34, unix.ETH_P_IPV6: 54}
	return len(frame) >= headers[binary.BigEndian.Uint16(frame[12:])]
}

// isLoopback reports whether a frame has a packet between loopback addresses or aliases.
func isLoopback(frame []byte) bool {
	aliases := netip.MustParsePrefix("fd68:6f73:746c:6f00::/96")
	ok := func(a []byte) bool {
		parsed, valid := netip.AddrFromSlice(a)
		return valid && (parsed.IsLoopback() || aliases.Contains(parsed))
	}
	switch packet := frame[14:]; binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_IP:
		return len(packet) >= 20 && ok(packet[12:16]) && ok(packet[16:20])
	case unix.ETH_P_IPV6:
		return len(packet) >= 40 && ok(packet[8:24]) && ok(packet[24:40])
	}
	return false
}

// fractionOf returns the fraction with a MAC; 255: none.
func fractionOf(mac []byte) segment.Fraction {
	for f := segment.Reflector; f <= segment.MaxFractions; f++ {
		if a := segment.MAC(f); bytes.Equal(a[:], mac) {
			return f
		}
	}
	return 255
}

func seedFrames(f *testing.F, to, from segment.Address) {
	f.Helper()
	ether := func(kind uint16, payload ...byte) []byte {
		return append(binary.BigEndian.AppendUint16(append(append([]byte{}, to[:]...), from[:]...), kind), payload...)
	}
	ip4 := func(protocol byte, payload ...byte) []byte {
		return append([]byte{0x45, 0, 0, byte(20 + len(payload)), 0, 1, 0, 0, 64, protocol, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1}, payload...)
	}
	ip6 := func(next byte, payload ...byte) []byte {
		header := make([]byte, 40)
		header[0], header[5], header[6], header[7], header[23], header[39] = 0x60, byte(len(payload)), next, 64, 1, 1
		return append(header, payload...)
	}
	tcp := func(flags byte) []byte {
		return []byte{0x80, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0}
	}
	udp := []byte{0x80, 0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4}
	for _, flags := range []byte{0x02, 0x12, 0x10, 0x14, 0x04, 0x11} {
		f.Add(ether(unix.ETH_P_IP, ip4(unix.IPPROTO_TCP, tcp(flags)...)...))
		f.Add(ether(unix.ETH_P_IPV6, ip6(unix.IPPROTO_TCP, tcp(flags)...)...))
	}
	f.Add(ether(unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, udp...)...))
	f.Add(ether(unix.ETH_P_IPV6, ip6(unix.IPPROTO_UDP, udp...)...))
	f.Add(ether(unix.ETH_P_IP, ip4(unix.IPPROTO_ICMP, append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, ip4(unix.IPPROTO_UDP, udp...)...)...)...))
	f.Add(ether(unix.ETH_P_IPV6, ip6(unix.IPPROTO_ICMPV6, append([]byte{1, 4, 0, 0, 0, 0, 0, 0}, ip6(unix.IPPROTO_TCP, tcp(2)...)...)...)...))
	f.Add(ether(unix.ETH_P_IPV6, ip6(0, append([]byte{unix.IPPROTO_TCP, 0, 0xc2, 4, 0, 1, 0, 0}, tcp(0x10)...)...)...))
	f.Add(segment.Membership{Generation: 8, Members: segment.Of(1, 2)}.Frame(to))
	f.Add(append([]byte{0x81, 0, 0, 5}, ether(unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, udp...)...)...))
}

// No frame from the segment's NIC reaches the pod's lo unless it is between loopback
// addresses, from another member and for this fraction; only the reflector changes the
// members; and what the program answers names this fraction as the sender.
func FuzzEnterNIC(f *testing.F) {
	z := newFuzzedPrograms(f)
	for _, to := range []segment.Address{segment.Broadcast, segment.MAC(1)} {
		seedFrames(f, to, segment.MAC(2))
	}
	passed := wantSome(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if !runs(frame) {
			return
		}
		verdict, out, known := z.run(t, z.EnterNic, frame)
		from := fractionOf(frame[6:12])
		if known.Members != z.state.Members && (from != segment.Reflector || !segment.Set(known.Members).Valid()) {
			t.Errorf("fraction %d has set the members to %s", from, segment.Set(known.Members))
		}
		switch {
		case verdict == shot:
			return
		case verdict != redirected:
			t.Fatalf("verdict is %d", int32(verdict))
		case bytes.Equal(out[:12], make([]byte, 12)): // into lo
			if !isLoopback(frame) {
				t.Error("a packet of other addresses enters lo")
			}
		case fractionOf(out[6:12]) != 1 || fractionOf(out[:6]) != from:
			t.Errorf("answer from % x to % x", out[6:12], out[:6])
		}
		*passed++
		if from != 2 && from != 3 {
			t.Errorf("accepted from % x, which is not another member", frame[6:12])
		}
		if frame[0]&1 == 0 && fractionOf(frame[:6]) != 1 {
			t.Errorf("accepted for % x", frame[:6])
		}
	})
}

// What leaves the pod's lo for the segment is between loopback addresses, and names this
// fraction as its sender.
func FuzzLeaveLo(f *testing.F) {
	z := newFuzzedPrograms(f)
	seedFrames(f, segment.Address{}, segment.Address{})
	passed := wantSome(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if !runs(frame) {
			return
		}
		verdict, out, known := z.run(t, z.LeaveLo, frame)
		if known != z.state {
			t.Errorf("the segment is %+v", known)
		}
		switch {
		case verdict == unspecified: // stays in the fraction
		case verdict == shot && !isLoopback(frame): // another of the pod's own addresses has its alias
		case verdict != redirected:
			t.Errorf("verdict is %d", int32(verdict))
		case !isLoopback(out):
			t.Error("a packet of other addresses leaves lo")
		case fractionOf(out[6:12]) != 1:
			t.Errorf("it leaves as % x", out[6:12])
		default:
			*passed++
		}
	})
}

// What comes from outside and leaves for the segment has aliases, and names this fraction as its
// sender; all else stays.
func FuzzEnterPod(f *testing.F) {
	z := newFuzzedPrograms(f)
	own := netip.MustParseAddr("10.1.2.3")
	if err := z.HostloAddresses.Put(own.As16(), uint32(1500)); err != nil {
		f.Fatal(err)
	}
	seedFrames(f, segment.Address{}, segment.Address{2, 0, 0, 0, 0, 2})
	outside := netip.MustParseAddr("10.9.9.9")
	for _, payload := range [][]byte{
		{0x80, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 0xff, 0xff},
		{0x80, 0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4},
	} {
		protocol := byte(unix.IPPROTO_TCP)
		if len(payload) == 12 {
			protocol = unix.IPPROTO_UDP
		}
		frame := []byte{0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, byte(20 + len(payload)), 0, 1, 0, 0, 64, protocol, 0, 0}
		frame = append(append(frame, outside.AsSlice()...), own.AsSlice()...)
		f.Add(append(frame, payload...))
	}
	passed := wantSome(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if !runs(frame) {
			return
		}
		verdict, out, known := z.run(t, z.EnterPod, frame)
		if known != z.state {
			t.Errorf("the segment is %+v", known)
		}
		switch {
		case verdict == unspecified, verdict == shot: // stays in the fraction, or is beyond the limit
		case verdict != redirected:
			t.Errorf("verdict is %d", int32(verdict))
		case !isLoopback(out):
			t.Error("a packet without aliases leaves")
		case fractionOf(out[6:12]) != 1:
			t.Errorf("it leaves as % x", out[6:12])
		default:
			*passed++
		}
	})
}
