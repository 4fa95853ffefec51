package report

import (
	"math"
	"slices"
	"testing"

	"unnest/internal/measure/result"
)

func TestNumbersInWords(t *testing.T) {
	tests := []struct{ name, got, want string }{
		{"four digits", number(187.234), "187.2"},
		{"whole above 1000", number(12345.6), "12346"},
		{"a count", number(3), "3"},
		{"small", number(0.012345), "0.01235"},
		{"zero", number(0), "0"},
		{"missing", number(missing), none},
		{"ratio", ratio(1.5178), "1.52"},
		{"small ratio", ratio(0.01234), "0.0123"},
		{"zero ratio", ratio(0), "0.00"},
		{"percent", percent(0.184), "18 %"},
		{"small percent", percent(0.035), "3.5 %"},
		{"no 10.0", percent(0.0996), "10 %"},
		{"p", pValue(0.01349), "p = 0.013"},
		{"p of one", pValue(1), "p = 1.00"},
		{"small p", pValue(0.0004), "p < 0.001"},
		{"no p", pValue(missing), "p undefined"},
		{"lower", change(0.816), "18 % lower"},
		{"higher", change(1.52), "52 % higher"},
		{"times", change(2.104), "2.10 times"},
		{"interval", bracket(Interval{1, 2, 0.95}, 1), "[1.0, 2.0]"},
		{"level", level(0.95), "95 %"},
		{"level of a family", level(1 - 0.05/24), "99.79 %"},
		{"no interval", bracket(Interval{missing, missing, missing}, 1), none},
		{"quantity", quantity("latency_mean"), "latency"},
		{"quantity with an abbreviation", quantity("cpu_per_execution"), "CPU per execution"},
		{"quantity of the CPU", quantity("guest_soft"), "software interrupt time in the guest"},
		{"list", list([]string{"a", "b", "c"}), "a, b and c"},
		{"list of one", list([]string{"a"}), "a"},
		{"plural", plural(2, "sample"), "2 samples"},
		{"anchor", anchor("g1", "UDP_rr / <x>"), "g1-udp-rr-x"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

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
		if got := groupTitle(tt.c); got != tt.title {
			t.Errorf("title of %+v: %q, want %q", tt.c, got, tt.title)
		}
		if got := caseLabel(tt.c); got != tt.label {
			t.Errorf("label of %+v: %q, want %q", tt.c, got, tt.label)
		}
	}
}

func TestWrap(t *testing.T) {
	tests := []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"one two three", 7, []string{"one two", "three"}},
		{"unbreakable", 4, []string{"unbreakable"}},
		{"about 3.5 % of it (p < 0.001)", 9, []string{"about", "3.5 % of", "it", "(p < 0.001)"}},
	}
	for _, tt := range tests {
		if got := wrap(tt.text, tt.width); !slices.Equal(got, tt.want) {
			t.Errorf("wrap %q at %d: %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

func TestNumberJSON(t *testing.T) {
	for n, want := range map[Number]string{1.5: "1.5", Number(math.Inf(1)): "null", 0: "0"} {
		if got, err := n.MarshalJSON(); err != nil || string(got) != want {
			t.Errorf("%v: %s, %v; want %s", float64(n), got, err, want)
		}
	}
	if got, err := missing.MarshalJSON(); err != nil || string(got) != "null" {
		t.Errorf("missing: %s, %v", got, err)
	}
}

func TestSumOfMissingPartsIsMissing(t *testing.T) {
	if got := sum([]Number{1, 2.5}); got != 3.5 {
		t.Errorf("sum %v", got)
	}
	if sum([]Number{1, missing}).Defined() || sum(nil).Defined() {
		t.Error("a sum of missing parts is defined")
	}
}
