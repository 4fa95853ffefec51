package trace

import (
	"math/big"
	"strings"
	"testing"

	"unnest.io/unnest/internal/plan/cluster"
)

func TestAmountOf(t *testing.T) {
	const machine = 96 * cluster.VCPU
	for _, c := range []struct {
		text  string
		unit  int64
		shift int
		want  int64
		why   Reason
		err   string
	}{
		{"", machine, 0, 0, kept, ""},
		{"null", machine, 0, 0, kept, ""},
		{"0", machine, 0, 0, kept, ""},
		{"-0.0", machine, 0, 0, kept, ""},
		{"1", machine, 0, machine, kept, ""},
		{"0.125", machine, 0, 12 * cluster.VCPU, kept, ""},
		{" 0.01562 ", machine, 0, 1499520000, kept, ""},
		{"1.526e-05", machine, 0, 1464960, kept, ""},
		{"5E1", 10, 0, 500, kept, ""},
		{".5", 10, 0, 5, kept, ""},
		{"5.", 10, 0, 50, kept, ""},
		{"+5", 10, 0, 50, kept, ""},
		{"50", cluster.VCPU, 2, cluster.VCPU / 2, kept, ""},
		{"0.049", 10, 0, 0, kept, ""},
		{"0.05", 10, 0, 1, kept, ""},
		{"0.333333333333333333333333333333", 3, 0, 1, kept, ""},
		{"1e-9999999", machine, 0, 0, kept, ""},
		{"9223372036854775807", 1, 0, 9223372036854775807, kept, ""},
		{"9223372036854775808", 1, 0, 0, kept, "is too large"},
		{"1e30", 1, 0, 0, kept, "is too large"},
		{"1e99999999999999999999", 1, 0, 0, kept, "is too large"},
		{"123456789012345678901234567890", 1, 0, 0, kept, "is too large"},
		{"123456789012345678901234567890e-20", 1, 0, 1234567890, kept, ""},
		{"-1", machine, 0, 0, Negative, ""},
		{"NaN", machine, 0, 0, NotANumber, ""},
		{"-inf", machine, 0, 0, NotANumber, ""},
		{".", 1, 0, 0, kept, "want a decimal number"},
		{"1e", 1, 0, 0, kept, "want a decimal number"},
		{"1..2", 1, 0, 0, kept, "want a decimal number"},
		{"0x10", 1, 0, 0, kept, "want a decimal number"},
		{"abc", 1, 0, 0, kept, "want a decimal number"},
		{strings.Repeat("x", 100), 1, 0, 0, kept, strings.Repeat("x", 40) + "…"},
	} {
		got, err := amountOf("cpu", []byte(c.text), c.unit, c.shift)
		if got.value != c.want || got.why != c.why || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("amountOf(%q, %d, %d) = %d %v, %v; want %d %v, %q", c.text, c.unit, c.shift, got.value, got.why, err, c.want, c.why, c.err)
		}
	}
}

// FuzzAmountOf compares with exact fractions.
func FuzzAmountOf(f *testing.F) {
	for _, text := range []string{"0.07446", "1.526e-05", "-3", "1e5", "99999999999999999999.5", ".", "e", "1e-30"} {
		f.Add(text, int64(96*cluster.VCPU))
	}
	f.Fuzz(func(t *testing.T, text string, unit int64) {
		if unit <= 0 || len(text) > 19 || strings.ContainsAny(text, "_/xXpPoObB") {
			return
		}
		got, err := amountOf("cpu", []byte(text), unit, 0)
		want, isNumber := new(big.Rat).SetString(strings.TrimSpace(text))
		if err != nil || got.why != kept || !isNumber {
			if isNumber && want.Sign() >= 0 && err != nil && want.Cmp(big.NewRat(1, 1)) < 0 {
				t.Errorf("%q is the number %v, but %v", text, want, err)
			}
			return
		}
		want.Mul(want, new(big.Rat).SetInt64(unit))
		off := want.Sub(want, new(big.Rat).SetInt64(got.value))
		if off.Abs(off).Cmp(big.NewRat(1, 2)) > 0 {
			t.Errorf("%q of %d is %d, off by %v", text, unit, got.value, off)
		}
	})
}

func TestWhole(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-1": -1, "9223372036854775807": 9223372036854775807} {
		if got, err := whole("time", []byte(text)); got != want || err != nil {
			t.Errorf("whole(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "1.5", " 1", "9223372036854775808", "99999999999999999999", "x"} {
		if got, err := whole("time", []byte(text)); err == nil {
			t.Errorf("whole(%q) = %d, want an error", text, got)
		}
	}
}

func TestColumns(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"a,b,c", "a|b|c"},
		{"", ""},
		{",", "|"},
		{`"a,b",c`, "a,b|c"},
		{`"a ""b""",`, `a "b"|`},
		{`a"b,c`, `a"b|c`},
		{`"open,c`, `open,c`},
		{`"a"x,c`, `a|c`},
	} {
		into := make([][]byte, 3)
		n := columns([]byte(c.line), into)
		var got []string
		for _, column := range into[:n] {
			got = append(got, string(column))
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("columns(%q) = %q, want %q", c.line, got, c.want)
		}
	}
	if n := columns([]byte("a,b,c,d"), make([][]byte, 2)); n != 4 {
		t.Errorf("%d columns, want 4", n)
	}
}

// A number of containers is whole, however it is written.
func TestInstances(t *testing.T) {
	for text, want := range map[string]int64{"3": 3, "3.0": 3, "3e2": 300, "": 0, "2.7": -1, "2.96": -1, "-1": -1} {
		if n, err := instances("n", []byte(text)); err == nil && n != want || err != nil && want >= 0 {
			t.Errorf("%q: %d, %v; want %d", text, n, err, want)
		}
	}
}
