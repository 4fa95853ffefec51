package stats

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// printed is one mean of FitzGerald 2014 as printed; change and percent are
// strings because their digits give the tolerance.
type printed struct {
	Moments
	key, level      string // key: table, architecture, measure
	change, percent string
}

func readSysbench(t *testing.T) []printed {
	t.Helper()
	file, err := os.Open("testdata/sysbench.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var rows []printed
	for lines := bufio.NewScanner(file); lines.Scan(); {
		f := strings.Split(lines.Text(), "\t")
		if len(f) != 8 || f[0] == "table" {
			continue
		}
		rows = append(rows, printed{
			Moments: Moments{N: 6, Mean: parse(t, f[4]), StdErr: parse(t, f[6])},
			key:     f[0] + " " + f[1] + " " + f[3], level: f[2], change: f[5], percent: f[7],
		})
	}
	if len(rows) != 120 {
		t.Fatalf("read %d rows, want 120: 10 tables, 2 architectures, 3 levels, 2 measures", len(rows))
	}
	return rows
}

func parse(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// matches reports whether got agrees with a printed number up to one unit of
// its last digit: some are rounded, some cut.
func matches(t *testing.T, got float64, want string) bool {
	t.Helper()
	_, decimals, _ := strings.Cut(want, ".")
	unit := math.Pow(10, -float64(len(decimals)))
	return math.Abs(got-parse(t, want)) <= unit*1.001
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
// Tables 5-14, but for those four that do not follow from the printed means.
func TestPrintedDerivatives(t *testing.T) {
	misprints := map[string]string{
		"5 S390x throughput L1 stderr":  "1.77, is 1.79",
		"10 S390x throughput L0 stderr": "0.235, is 0.253 as in Table 9",
		"11 S390x throughput L1 change": "-8.52, is -8.48",
		"14 S390x throughput L2 change": "-98.85, is -96.85",
	}
	base := map[string]Moments{}
	check := func(name string, got float64, want string) {
		_, misprinted := misprints[name]
		if matches(t, got, want) == misprinted {
			t.Errorf("%s: computed %.5f, printed %s, known misprint %v", name, got, want, misprinted)
		}
	}
	for _, r := range readSysbench(t) {
		name := r.key + " " + r.level
		check(name+" stderr", 100*r.RelStdErr(), r.percent)
		if r.level != "L0" {
			check(name+" change", 100*r.RelativeChange(base[r.key]), r.change)
		}
		base[r.key] = r.Moments
	}
}

// TestPrintedPValues checks the p-values of FitzGerald 2014, notes 4 and 5. Two
// come out with another last digit from the printed moments than from his data;
// all five lie within the rounding of the printed moments.
func TestPrintedPValues(t *testing.T) {
	rows := readSysbench(t)
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
