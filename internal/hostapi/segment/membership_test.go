package segment_test

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"unnest.io/unnest/internal/hostapi/segment"
)

// The guest's eBPF program reads these very bytes.
func TestFrame(t *testing.T) {
	for _, c := range []struct {
		to   segment.Address
		m    segment.Membership
		want string // hexadecimal, up to the padding
	}{
		{segment.Broadcast, segment.Membership{Generation: 1, Members: segment.Of(1, 2)}, "ffffffffffff026835000000" + "88b5" + "484c4f31" + "00000001" + "00000006" + "00000000" + "01"},
		{segment.MAC(16), segment.Membership{Generation: 0xfffffffe, Members: segment.Of(16), Silent: segment.Of(1)}, "026835000010026835000000" + "88b5" + "484c4f31" + "fffffffe" + "00010000" + "00000002" + "01"},
		{segment.MAC(1), segment.Membership{}, "026835000001026835000000" + "88b5" + "484c4f31" + "00000000" + "00000000" + "00000000" + "01"},
	} {
		got := hex.EncodeToString(c.m.Frame(c.to))
		if want := c.want + strings.Repeat("0", 2*segment.FrameSize-len(c.want)); got != want {
			t.Errorf("%+v:\n got %s\nwant %s", c.m, got, want)
		}
	}
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
