package bench

import (
	"slices"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
)

// The parts of a phase have its number. A restart of a machine later has none.
func TestPhases(t *testing.T) {
	var got benchtest.Phases
	p := &phases{Progress: &got, all: 2}
	p.next("make the guest image")
	p.Phase("unpacking Debian")
	p.next("boot the guest")
	p.end()
	p.Phase("restart the machine of NAT")
	want := benchtest.Phases{"[1/2] make the guest image", "[1/2] unpacking Debian", "[2/2] boot the guest", "restart the machine of NAT"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
