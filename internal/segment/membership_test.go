package segment_test

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"unnest/internal/segment"
)

// The guest's eBPF program reads these very bytes.
func TestFrame(t *testing.T) {
	for _, c := range []struct {
		to   segment.Address
		m    segment.Membership
		want string // hexadecimal, up to the padding
	}{
		{segment.Broadcast, segment.Membership{Generation: 1, Members: segment.Of(1, 2)}, "ffffffffffff026835000000" + "88b5" + "484c4f31" + "00000001" + "00000006"},
		{segment.MAC(16), segment.Membership{Generation: 0xfffffffe, Members: segment.Of(16)}, "026835000010026835000000" + "88b5" + "484c4f31" + "fffffffe" + "00010000"},
		{segment.MAC(1), segment.Membership{}, "026835000001026835000000" + "88b5" + "484c4f31" + "00000000" + "00000000"},
	} {
		frame := c.m.Frame(c.to)
		got := hex.EncodeToString(frame)
		if want := c.want + strings.Repeat("0", 2*segment.FrameSize-len(c.want)); got != want {
			t.Errorf("%+v:\n got %s\nwant %s", c.m, got, want)
		}
		for _, f := range [][]byte{frame, frame[:26], append(frame, 1, 2, 3)} {
			if m, err := segment.ParseMembership(f); m != c.m || err != nil {
				t.Errorf("%d bytes of %+v: read %+v, %v", len(f), c.m, m, err)
			}
		}
	}
}

func TestParseMembershipFails(t *testing.T) {
	changed := func(offset int, b byte) []byte {
		frame := segment.Membership{Generation: 1, Members: segment.Of(1, 2)}.Frame(segment.Broadcast)
		frame[offset] = b
		return frame
	}
	for _, c := range []struct {
		name  string
		frame []byte
		word  string
	}{
		{"nothing", nil, "0 bytes"},
		{"cut off", changed(0, 0)[:25], "25 bytes"},
		{"IPv4", append(append(changed(0, 0)[:12:12], 8, 0), changed(0, 0)[14:]...), "0x0800"},
		{"from a fraction", changed(11, 1), "02:68:35:00:00:01"},
		{"another version", changed(17, '2'), "HLO2"},
		{"fraction 0", changed(25, 7), "0x7"},
		{"fraction 17", changed(23, 2), "0x20006"},
	} {
		if m, err := segment.ParseMembership(c.frame); err == nil || !strings.Contains(err.Error(), c.word) || m != (segment.Membership{}) {
			t.Errorf("%s: got %+v, %v; want an error with %q", c.name, m, err, c.word)
		}
	}
}

func FuzzParseMembership(f *testing.F) {
	f.Add(segment.Membership{Generation: 7, Members: segment.Of(1, 16)}.Frame(segment.Broadcast))
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, err := segment.ParseMembership(frame)
		if err != nil {
			return
		}
		if again, err := segment.ParseMembership(m.Frame(segment.MAC(1))); again != m || err != nil {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b uint32
		want bool
	}{
		{1, 2, true}, {2, 1, false}, {2, 2, false},
		{math.MaxUint32, 0, true}, {0, math.MaxUint32, false}, // around the end
		{0, math.MaxInt32, true}, {math.MaxInt32, 0, false}, // as far as can be told
	} {
		if got := segment.Older(c.a, c.b); got != c.want {
			t.Errorf("%d before %d: %v", c.a, c.b, got)
		}
	}
}
