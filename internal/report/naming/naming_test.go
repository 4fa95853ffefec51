package naming

import (
	"slices"
	"testing"

	"unnest.io/unnest/internal/measure/result"
)

func TestGroupTitle(t *testing.T) {
	tests := []struct {
		c            result.Case
		title, label string
	}{
		{result.Case{Name: "udp_rr/64", Group: "udp_rr", Size: 64, Title: "UDP ping-pong, 64 B"}, "UDP ping-pong", "64 B"},
		{result.Case{Name: "udp_rr/64", Group: "udp_rr", Size: 64}, "udp_rr", "64 B"},
		{result.Case{Name: "boot", Title: "Container start"}, "Container start", "Container start"},
		{result.Case{Name: "boot"}, "boot", "boot"},
	}
	for _, tt := range tests {
		if got := Group(tt.c); got != tt.title {
			t.Errorf("title of %+v: %q, want %q", tt.c, got, tt.title)
		}
		if got := Label(tt.c); got != tt.label {
			t.Errorf("label of %+v: %q, want %q", tt.c, got, tt.label)
		}
	}
}

func TestSlotsAreFixedForKnownNames(t *testing.T) {
	run := result.Run{}
	for _, name := range []string{"custom", "Hostlo", "SameNode", "NoCont"} {
		run.Configurations = append(run.Configurations, result.Configuration{Name: name})
	}
	var got []int
	for _, s := range Series(run) {
		got = append(got, s.Slot)
	}
	if want := []int{1, 2, 0, 3}; !slices.Equal(got, want) {
		t.Errorf("slots %v, want %v", got, want)
	}
}

func TestQuantity(t *testing.T) {
	for metric, want := range map[string]string{
		"latency_mean": "latency", "cpu_per_execution": "CPU per execution", "guest_soft": "software interrupt time in the guest",
	} {
		if got := Quantity(metric); got != want {
			t.Errorf("%s: %q, want %q", metric, got, want)
		}
	}
}
