package stats

import (
	"fmt"
	"math"
	"testing"

	"unnest.io/unnest/internal/report/papers"
)

// printed is one mean of FitzGerald 2014, Tables 5-14.
type printed struct {
	Moments
	key, level      string // key: table, architecture, measure
	change, percent papers.Number
}

func sysbench() []printed {
	var rows []printed
	for _, r := range papers.Sysbench() {
		key := fmt.Sprint(r.Table, " ", r.Architecture, " ")
		rows = append(rows, newPrinted(key+"throughput", r.Level, r.Throughput), newPrinted(key+"response", r.Level, r.Response))
	}
	return rows
}

func newPrinted(key, level string, m papers.Mean) printed {
	return printed{Moments{N: 6, Mean: m.Mean.Float(), StdErr: m.StdErr.Float()}, key, level, m.Change, m.RelStdErr}
}

// matches reports whether got agrees with a printed number up to one unit of
// its last digit: some are rounded, some truncated.
func matches(got float64, want papers.Number) bool {
	return math.Abs(got-want.Float()) <= want.Unit()*1.001
}

func find(t *testing.T, rows []printed, key, level string) Moments {
	t.Helper()
	for _, r := range rows {
		if r.key == key && r.level == level {
			return r.Moments
		}
	}
	t.Fatalf("no row %s %s", key, level)
	return Moments{}
}

// TestPrintedDerivatives checks every change and relative standard error of
// Tables 5-14, except four that do not follow from the printed means.
func TestPrintedDerivatives(t *testing.T) {
	misprints := map[string]string{
		"5 S390x throughput L1 stderr":  "1.77, is 1.79",
		"10 S390x throughput L0 stderr": "0.235, is 0.253 as in Table 9",
		"11 S390x throughput L1 change": "-8.52, is -8.48",
		"14 S390x throughput L2 change": "-98.85, is -96.85",
	}
	base := map[string]Moments{}
	checked := 0
	check := func(name string, got float64, want papers.Number) {
		checked++
		_, misprinted := misprints[name]
		if matches(got, want) == misprinted {
			t.Errorf("%s: computed %.5f, printed %s, known misprint %v", name, got, want, misprinted)
		}
	}
	for _, r := range sysbench() {
		name := r.key + " " + r.level
		check(name+" stderr", 100*r.RelStdErr(), r.percent)
		if r.level != "L0" {
			check(name+" change", 100*r.RelativeChange(base[r.key]), r.change)
		}
		base[r.key] = r.Moments
	}
	if checked != 200 {
		t.Errorf("checked %d numbers, want 120 standard errors and 80 changes", checked)
	}
}

// TestPrintedPValues checks the p-values of FitzGerald 2014, notes 4 and 5. Two
// come out with another last digit from the printed moments than from his data;
// all five lie within the rounding of the printed moments.
func TestPrintedPValues(t *testing.T) {
	rows := sysbench()
	for _, tc := range []struct {
		key, from, to             string
		printed, truncated, uncut float64
		unitMean, unitErr         float64 // half a unit of the last printed digit
	}{
		{"5 S390x throughput", "L0", "L1", 0.207, 0.207, 0.205, 0.05, 0.005},
		{"5 S390x throughput", "L1", "L2", 0.829, 0.829, 0.829, 0.05, 0.005},
		{"5 S390x response", "L0", "L1", 0.167, 0.166, 0.165, 0.00005, 0.00005},
		{"5 S390x response", "L1", "L2", 0.794, 0.794, 0.794, 0.00005, 0.00005},
		{"10 S390x throughput", "L0", "L1", 0.705, 0.703, 0.702, 0.000005, 0.000005},
	} {
		a, b := find(t, rows, tc.key, tc.from), find(t, rows, tc.key, tc.to)
		cut, uncut := welchP(t, WelchTruncated, a, b), welchP(t, Welch, a, b)
		got, want := fmt.Sprintf("%.3f %.3f", cut, uncut), fmt.Sprintf("%.3f %.3f", tc.truncated, tc.uncut)
		if got != want {
			t.Errorf("%s %s-%s: p = %s, want %s", tc.key, tc.from, tc.to, got, want)
		}
		low, high := cut, cut
		for corner := range 16 {
			p := welchP(t, WelchTruncated, shift(a, corner, tc.unitMean, tc.unitErr), shift(b, corner>>2, tc.unitMean, tc.unitErr))
			low, high = min(low, p), max(high, p)
		}
		if tc.printed < low-0.0005 || high+0.0005 < tc.printed {
			t.Errorf("%s %s-%s: printed p %v outside [%v, %v]", tc.key, tc.from, tc.to, tc.printed, low, high)
		}
	}
}

func welchP(t *testing.T, test func(a, b Moments) (Test, error), a, b Moments) float64 {
	t.Helper()
	result, err := test(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return result.P
}

// shift moves m to a corner of its rounding box.
func shift(m Moments, corner int, mean, stdErr float64) Moments {
	m.Mean += mean * float64(2*(corner&1)-1)
	m.StdErr += stdErr * float64(corner&2-1)
	return m
}
