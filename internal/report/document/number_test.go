package document

import (
	"math"
	"testing"
)

func TestNumbersInWords(t *testing.T) {
	tests := []struct{ name, got, want string }{
		{"four digits", Rounded(187.234), "187.2"},
		{"whole above 1000", Rounded(12345.6), "12346"},
		{"a count", Rounded(3), "3"},
		{"small", Rounded(0.012345), "0.01235"},
		{"zero", Rounded(0), "0"},
		{"missing", Rounded(Missing), None},
		{"ratio", Ratio(1.5178), "1.52"},
		{"small ratio", Ratio(0.01234), "0.0123"},
		{"zero ratio", Ratio(0), "0.00"},
		{"percent", Percent(0.184), "18 %"},
		{"small percent", Percent(0.035), "3.5 %"},
		{"no 10.0", Percent(0.0996), "10 %"},
		{"p", PValue(0.01349), "p = 0.013"},
		{"p of one", PValue(1), "p = 1.00"},
		{"small p", PValue(0.0004), "p < 0.001"},
		{"no p", PValue(Missing), "p undefined"},
		{"lower", Change(0.816), "18 % lower"},
		{"higher", Change(1.52), "52 % higher"},
		{"times", Change(2.104), "2.10 times"},
		{"interval", Bracket(Interval{1, 2, 0.95}, 1), "[1.0, 2.0]"},
		{"level", Level(0.95), "95 %"},
		{"level of a family", Level(1 - 0.05/24), "99.79 %"},
		{"no interval", Bracket(Interval{Missing, Missing, Missing}, 1), None},
		{"list", List([]string{"a", "b", "c"}), "a, b and c"},
		{"list of one", List([]string{"a"}), "a"},
		{"plural", Plural(2, "sample"), "2 samples"},
		{"anchor", Anchor("g1", "UDP_rr / <x>"), "g1-udp-rr-x"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

func TestNumberJSON(t *testing.T) {
	for n, want := range map[Number]string{1.5: "1.5", Number(math.Inf(1)): "null", 0: "0"} {
		if got, err := n.MarshalJSON(); err != nil || string(got) != want {
			t.Errorf("%v: %s, %v; want %s", float64(n), got, err, want)
		}
	}
	if got, err := Missing.MarshalJSON(); err != nil || string(got) != "null" {
		t.Errorf("missing: %s, %v", got, err)
	}
}

func TestSumOfMissingPartsIsMissing(t *testing.T) {
	if got := Sum([]Number{1, 2.5}); got != 3.5 {
		t.Errorf("sum %v", got)
	}
	if Sum([]Number{1, Missing}).Defined() || Sum(nil).Defined() {
		t.Error("a sum of missing parts is defined")
	}
}
