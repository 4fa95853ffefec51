package segment_test

import (
	"net"
	"slices"
	"testing"

	"unnest.io/unnest/internal/hostapi/segment"
)

// Every fraction has an address of its own, which a NIC may have.
func TestMAC(t *testing.T) {
	seen := map[string]bool{segment.Broadcast.String(): true}
	for f := segment.Reflector; f <= segment.MaxFractions; f++ {
		mac := segment.MAC(f).String()
		hw, err := net.ParseMAC(mac)
		if err != nil || hw.String() != mac || segment.Address(hw) != segment.MAC(f) {
			t.Errorf("fraction %d: got %q, %v", f, mac, err)
		} else if hw[0]&3 != 2 || seen[mac] {
			t.Errorf("fraction %d: %s is not an unicast address of local administration that nobody else has", f, mac)
		}
		seen[mac] = true
	}
	if got, want := segment.MAC(16).String(), "02:68:35:00:00:10"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestValid(t *testing.T) {
	for f, want := range map[segment.Fraction]bool{0: false, 1: true, 16: true, 17: false, 255: false} {
		if f.Valid() != want {
			t.Errorf("fraction %d: valid is %v", f, !want)
		}
		if f < 32 && segment.Of(f).Valid() != want {
			t.Errorf("the set of %d: valid is %v", f, !want)
		}
	}
	if !segment.Set(0).Valid() {
		t.Error("the empty set is not valid")
	}
}

func TestSet(t *testing.T) {
	for _, c := range []struct {
		members []segment.Fraction
		bits    segment.Set
		text    string
	}{
		{nil, 0, "none"},
		{[]segment.Fraction{1}, 0x2, "1"},
		{[]segment.Fraction{1, 2, 5}, 0x26, "1,2,5"},
		{[]segment.Fraction{16}, 0x10000, "16"},
	} {
		s := segment.Of(c.members...)
		if s != c.bits || s.String() != c.text || s.Len() != len(c.members) || !slices.Equal(slices.Collect(s.All()), c.members) {
			t.Errorf("%v: got %#x, %q, %d fractions %v", c.members, uint32(s), s, s.Len(), slices.Collect(s.All()))
		}
		for f := segment.Fraction(1); f <= segment.MaxFractions; f++ {
			if s.Has(f) != slices.Contains(c.members, f) {
				t.Errorf("%v: has %d: %v", c.members, f, s.Has(f))
			}
			if with := s.With(f); !with.Has(f) || with.Without(f) != s.Without(f) || s.Without(f).Has(f) {
				t.Errorf("%v: with %d %v, without %v", c.members, f, with, s.Without(f))
			}
		}
	}
	for f := range segment.Of(3, 4).All() {
		if f != 3 {
			t.Errorf("%d comes after the loop has ended", f)
		}
		break
	}
}
