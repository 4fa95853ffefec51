package score

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"unnest.io/unnest/internal/measure/result"
)

// hib returns a row where higher is better.
func hib(name, configuration string, value float64) Row {
	return Row{"s", name, result.HIB, "MB/s", configuration, value, 0}
}

// lib returns a row where lower is better.
func lib(name, configuration string, value float64) Row {
	return Row{"s", name, result.LIB, "s", configuration, value, 0}
}

func TestSuites(t *testing.T) {
	rows := []Row{
		hib("read", "a", 40), hib("read", "b", 100), lib("unpack", "a", 2), lib("unpack", "b", 8),
		hib("read", "a", 60), {"t", "x", result.HIB, "", "b", 3, 0},
	}
	suites, err := Suites(rows, Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Ratios of b to a: 100/50 = 2 and, as lower is better, 2/8 = 1/4.
	want := []Suite{{
		Name: "s", Configurations: []string{"a", "b"}, Baseline: "a",
		Cases: []Case{
			{Name: "read", Order: result.HIB, Unit: "MB/s", Counted: true, Cells: map[string]Cell{"a": {50, 2, 0.5, 10}, "b": {100, 1, 1, 0}}},
			{Name: "unpack", Order: result.LIB, Unit: "s", Counted: true, Cells: map[string]Cell{"a": {2, 1, 0.25, 0}, "b": {8, 1, 1, 0}}},
		},
		Totals: map[string]Total{"a": {Raw: 0.25, Rounded: 0.25, Cases: 2}, "b": {Raw: 0, Rounded: 0, Cases: 2}},
		GeoMeans: map[string]GeoMean{
			"a": {Ratio: 1, Cases: 2},
			"b": {Ratio: math.Sqrt(0.5), Cases: 2},
		},
		Warnings: []Warning{{CaseTurns, "without case unpack b (1.000) overtakes a (0.500)"}},
	}, {
		Name: "t", Configurations: []string{"b"}, Baseline: "b",
		Cases:    []Case{{Name: "x", Order: result.HIB, Counted: true, Cells: map[string]Cell{"b": {3, 1, 1, 0}}}},
		Totals:   map[string]Total{"b": {Raw: 1, Rounded: 1, Cases: 1}},
		GeoMeans: map[string]GeoMean{"b": {Ratio: 1, Cases: 1}},
	}}
	if diff := cmp.Diff(want, suites, cmpopts.EquateApprox(1e-6, 0)); diff != "" {
		t.Errorf("suites differ (-want +got):\n%s", diff)
	}
}

// A case that b lacks counts for no configuration, or with Partial for those that have it.
// It is always listed as missing.
func TestMissing(t *testing.T) {
	rows := []Row{hib("x", "a", 1), hib("x", "b", 2), hib("y", "a", 3), hib("y", "c", 4), hib("x", "c", 1)}
	for _, tt := range []struct {
		partial bool
		totals  map[string]Total
		means   map[string]int // cases of the geometric mean
	}{
		{false, map[string]Total{"a": {0.5, 0.5, 1, false}, "b": {1, 1, 1, false}, "c": {0.5, 0.5, 1, false}}, map[string]int{"a": 1, "b": 1, "c": 1}},
		{true, map[string]Total{"a": {1.25, 1.25, 2, false}, "b": {1, 1, 1, true}, "c": {1.5, 1.5, 2, false}}, map[string]int{"a": 2, "b": 1, "c": 2}},
	} {
		s := one(t, rows, Options{Partial: tt.partial})
		if diff := cmp.Diff(tt.totals, s.Totals); diff != "" {
			t.Errorf("partial %v: totals differ (-want +got):\n%s", tt.partial, diff)
		}
		if diff := cmp.Diff([]Missing{{"y", "b"}}, s.Missing); diff != "" {
			t.Errorf("partial %v: missing differ (-want +got):\n%s", tt.partial, diff)
		}
		means := map[string]int{}
		for name, g := range s.GeoMeans {
			means[name] = g.Cases
		}
		if diff := cmp.Diff(tt.means, means); diff != "" {
			t.Errorf("partial %v: cases of the geometric means differ (-want +got):\n%s", tt.partial, diff)
		}
		if s.Cases[1].Counted != tt.partial || s.Cases[1].Cells["a"].Score != 0.75 {
			t.Errorf("partial %v: case y is %+v", tt.partial, s.Cases[1])
		}
	}
}

func TestNoCaseCounts(t *testing.T) {
	s := one(t, []Row{hib("x", "a", 1), hib("y", "b", 2)}, Options{})
	if len(s.Totals) > 0 || len(s.GeoMeans) > 0 || len(s.Missing) != 2 {
		t.Errorf("got totals %v, geometric means %v, missing %v", s.Totals, s.GeoMeans, s.Missing)
	}
	if len(s.Warnings) != 1 || s.Warnings[0].Kind != NoTotal {
		t.Errorf("got warnings %v, want %s", s.Warnings, NoTotal)
	}
}

// Six cases have an interval, five do not. The logarithms of the ratios are ln 2 and 2 ln 2, three
// times each, with a standard deviation of √0.3 ln 2. The t quantile at 97.5 % with five degrees of
// freedom is 2.570582.
func TestGeoMeanInterval(t *testing.T) {
	var rows []Row
	for i, ratio := range []float64{2, 4, 2, 4, 2, 4} {
		name := string(rune('p' + i))
		rows = append(rows, hib(name, "a", 1), hib(name, "b", ratio))
	}
	half := 2.570581836 * math.Sqrt(0.3/6) * math.Ln2
	want := GeoMean{Ratio: 2 * math.Sqrt2, Low: math.Exp(1.5*math.Ln2 - half), High: math.Exp(1.5*math.Ln2 + half), Cases: 6}
	if diff := cmp.Diff(want, one(t, rows, Options{}).GeoMeans["b"], cmpopts.EquateApprox(1e-8, 0)); diff != "" {
		t.Errorf("six cases (-want +got):\n%s", diff)
	}
	if g := one(t, rows[:10], Options{}).GeoMeans["b"]; g.HasInterval() || g.Cases != 5 {
		t.Errorf("five cases: got %+v, want no interval", g)
	}
}

func TestBaseline(t *testing.T) {
	rows := []Row{hib("x", "a", 1), hib("x", "b", 2), {"t", "x", result.HIB, "", "c", 3, 0}}
	suites, err := Suites(rows, Options{Baseline: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if g := suites[0].GeoMeans["a"]; suites[0].Baseline != "b" || g != (GeoMean{Ratio: 0.5, Cases: 1}) || g.HasInterval() {
		t.Errorf("against %s: a is %+v, want half of b, and no interval", suites[0].Baseline, g)
	}
	want := []Warning{{NoBaseline, "no results of b: no geometric means"}}
	if diff := cmp.Diff(want, suites[1].Warnings); diff != "" || len(suites[1].GeoMeans) > 0 || suites[1].Baseline != "" {
		t.Errorf("suite without the baseline: %+v", suites[1])
	}
	_, err = Suites(rows, Options{Baseline: "z"})
	if err == nil || err.Error() != `no results of baseline "z": choose one of a, b, c` {
		t.Errorf("unknown baseline: %v", err)
	}
}

func TestRefused(t *testing.T) {
	good := hib("x", "a", 1)
	change := func(change func(*Row)) Row { r := good; change(&r); return r }
	value := func(x float64) Row { return change(func(r *Row) { r.Value = x }) }
	const positive = "want a positive number, from 1e-100 to 1e+100"
	for _, tt := range []struct {
		row  Row
		want string
	}{
		{value(0), "row 2, value: 0: " + positive},
		{value(-1), "row 2, value: -1: " + positive},
		{value(math.NaN()), "row 2, value: NaN: " + positive},
		{value(math.Inf(1)), "row 2, value: +Inf: " + positive},
		{value(1e101), "row 2, value: 1e+101: " + positive},
		{change(func(r *Row) { r.Suite = "" }), "row 2, suite: is empty: give it a name"},
		{change(func(r *Row) { r.Case = "" }), "row 2, case: is empty: give it a name"},
		{change(func(r *Row) { r.Configuration = "" }), "row 2, configuration: is empty: give it a name"},
		{change(func(r *Row) { r.Case = "x\x1b" }), `row 2, case: "x\x1b" has a control character: remove it`},
		{change(func(r *Row) { r.Order = "hib" }), `row 2, order: "hib": want HIB (higher is better) or LIB (lower is better)`},
		{change(func(r *Row) { r.Order = result.LIB }), `row 2, order: LIB, but case "x" was HIB before: give a case one order`},
		{change(func(r *Row) { r.Unit = "s" }), `row 2, unit: "s", but case "x" was in "MB/s" before: give a case one unit`},
	} {
		_, err := Suites([]Row{good, tt.row}, Options{})
		e, ok := errors.AsType[*RowError](err)
		if !ok || e.Row != 1 || err.Error() != tt.want {
			t.Errorf("%+v: got %v, want %s", tt.row, err, tt.want)
		}
	}
	if _, err := Suites(nil, Options{}); err == nil || err.Error() != "no results: give at least one row" {
		t.Errorf("no rows: %v", err)
	}
}

// Extreme values do not overflow.
func TestExtremes(t *testing.T) {
	rows := []Row{
		hib("x", "a", Least), hib("x", "b", Greatest), hib("y", "a", Greatest), hib("y", "b", Least),
		hib("x", "b", Greatest), lib("z", "a", Least), lib("z", "b", Greatest),
	}
	s := one(t, rows, Options{})
	for name, g := range s.GeoMeans {
		if !(g.Ratio > 0) || math.IsInf(g.Ratio, 0) || math.IsInf(g.High, 0) || math.IsInf(s.Totals[name].Raw, 0) {
			t.Errorf("%s: %+v, %+v", name, g, s.Totals[name])
		}
	}
}

// random returns rows of 3 to 8 cases in 2 to 5 configurations, some of them
// repeated and some left out.
func random(rng *rand.Rand) []Row {
	cases, configurations := 3+rng.IntN(6), 2+rng.IntN(4)
	var rows []Row
	for i := range cases {
		order := []result.Order{result.HIB, result.LIB}[rng.IntN(2)]
		for j := range configurations {
			level := math.Exp(4 * rng.NormFloat64())
			for n := range 1 + rng.IntN(3) {
				if i*j*n == 2 && rng.IntN(2) == 0 {
					continue
				}
				rows = append(rows, Row{"s", fmt.Sprint("case", i), order, "u", fmt.Sprint("c", j), level * math.Exp(0.02*rng.NormFloat64()), 0})
			}
		}
	}
	return rows
}

// approx compares suites up to rounding. Cases and configurations are compared by
// name: their order is that of the rows.
var approx = cmp.Options{
	cmpopts.EquateApprox(1e-9, 1e-12),
	cmpopts.SortSlices(func(a, b Case) bool { return a.Name < b.Name }),
	cmpopts.SortSlices(func(a, b string) bool { return a < b }),
	cmpopts.SortSlices(func(a, b Missing) bool { return a.Case+a.Configuration < b.Case+b.Configuration }),
	cmpopts.IgnoreFields(Suite{}, "Warnings"), // bounded in the order of the rows
}

// Scores and ratios do not depend on the unit of a case.
func TestScaleInvariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		rows := random(rng)
		scaled := slices.Clone(rows)
		factor := math.Exp(5 * rng.NormFloat64())
		for i := range scaled {
			if scaled[i].Case == "case1" {
				scaled[i].Value *= factor
			}
		}
		a, b := one(t, rows, Options{Baseline: "c0"}), one(t, scaled, Options{Baseline: "c0"})
		for name, cell := range a.Cases[1].Cells {
			if got := b.Cases[1].Cells[name].Mean; math.Abs(got/cell.Mean/factor-1) > 1e-9 {
				t.Fatalf("mean %v, scaled by %v it is %v", cell.Mean, factor, got)
			}
		}
		if diff := cmp.Diff(a, b, approx, cmpopts.IgnoreFields(Cell{}, "Mean", "StdErr"), cmpopts.IgnoreFields(Total{}, "Rounded")); diff != "" {
			t.Fatalf("scaled by %v (-before +after):\n%s", factor, diff)
		}
	}
}

// The order of the rows does not matter.
func TestPermutationInvariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 200 {
		rows := random(rng)
		shuffled := slices.Clone(rows)
		rng.Shuffle(len(rows), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		opts := Options{Baseline: "c1", Partial: i%2 == 0}
		if diff := cmp.Diff(one(t, rows, opts), one(t, shuffled, opts), approx, cmpopts.IgnoreFields(Total{}, "Rounded")); diff != "" {
			t.Fatalf("shuffled (-before +after):\n%s", diff)
		}
	}
}

// The claim of a warning is true when the rows are left out.
func TestWarningsHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	kinds := map[Kind]int{}
	for i := range 300 {
		rows := random(rng)
		opts := Options{Partial: i%2 == 0}
		s := one(t, rows, opts)
		for _, w := range s.Warnings {
			var what, name, up, down string
			var upTotal, downTotal float64
			text := strings.NewReplacer("(", "", ")", "", ",", "").Replace(w.Text)
			if _, err := fmt.Sscanf(text, "without %s %s %s %f overtakes %s %f", &what, &name, &up, &upTotal, &down, &downTotal); err != nil {
				continue // of another kind, or what is beyond the bound
			}
			kinds[w.Kind]++
			rest := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
				return what == "case" && r.Case == name || what == "configuration" && r.Configuration == name
			})
			after := one(t, rest, opts).Totals
			if !(s.Totals[up].Raw < s.Totals[down].Raw && after[up].Raw > after[down].Raw) ||
				math.Abs(after[up].Raw-upTotal) > 0.00051 || math.Abs(after[down].Raw-downTotal) > 0.00051 {
				t.Fatalf("%s: before %v, after %v", w.Text, s.Totals, after)
			}
		}
	}
	if kinds[CaseTurns] < 20 || kinds[ConfigTurns] < 20 {
		t.Errorf("checked %v: want 20 of either kind", kinds)
	}
}

// Where every case reverses the order, only some are named.
func TestWarningsAreBounded(t *testing.T) {
	var rows []Row
	for i := range 13 { // a wins seven cases, b six: without one of a's it is a tie but for the head start
		a, b := 1.0, 0.5
		if i%2 == 1 {
			a, b = 0.5, 1
		}
		rows = append(rows, hib(fmt.Sprint("case ", string(rune('A'+i))), "a", a), hib(fmt.Sprint("case ", string(rune('A'+i))), "b", b))
	}
	rows = append(rows, hib("head start", "a", 0.9), hib("head start", "b", 1))
	s := one(t, rows, Options{})
	var texts []string
	for _, w := range s.Warnings {
		texts = append(texts, w.Text)
	}
	want := []string{
		"without case case A b (10.000) overtakes a (9.900)",
		"without case case C b (10.000) overtakes a (9.900)",
		"without case case E b (10.000) overtakes a (9.900)",
		"without case case G b (10.000) overtakes a (9.900)",
		"without case case I b (10.000) overtakes a (9.900)",
		"2 more cases reverse the order when left out",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("warnings differ (-want +got):\n%s", diff)
	}
}

func TestGeoMeanDisagrees(t *testing.T) {
	// b is somewhat faster three times, and once twelve times slower.
	rows := []Row{
		hib("x", "a", 8), hib("x", "b", 10), hib("y", "a", 8), hib("y", "b", 10),
		hib("z", "a", 8), hib("z", "b", 10), hib("w", "a", 5), hib("w", "b", 0.4), hib("w", "c", 10),
		hib("x", "c", 1), hib("y", "c", 1), hib("z", "c", 1),
	}
	s := one(t, rows, Options{})
	last := s.Warnings[len(s.Warnings)-1]
	if last.Kind != GeoMeanDisagree || last.Text != "by the geometric mean a (1.000) overtakes b (0.629)" {
		t.Errorf("got %+v", last)
	}
}

func TestFamilies(t *testing.T) {
	var cases []Case
	for _, name := range []string{"db1", "io1", "db2", "solo7", "12", "13", "gzip", "io2", "db10"} {
		cases = append(cases, Case{Name: name})
	}
	var got []string
	for _, family := range families(cases) {
		got = append(got, span(family))
	}
	if diff := cmp.Diff([]string{"db1 to db10", "io1 and io2"}, got); diff != "" {
		t.Errorf("families differ (-want +got):\n%s", diff)
	}
}

// An order that two standard errors can reverse is no reason for a warning.
func TestNoWarningsWithinNoise(t *testing.T) {
	rows := func(stdErr float64) []Row {
		return []Row{
			{"s", "x", result.HIB, "MB/s", "a", 100, stdErr}, {"s", "x", result.HIB, "MB/s", "b", 90, stdErr},
			{"s", "y", result.HIB, "MB/s", "a", 95, stdErr}, {"s", "y", result.HIB, "MB/s", "b", 100, stdErr},
		}
	}
	for stdErr, want := range map[float64]int{0: 1, 0.1: 1, 5: 0} {
		if s := one(t, rows(stdErr), Options{}); len(s.Warnings) != want {
			t.Errorf("standard error %v: warnings %+v, want %d", stdErr, s.Warnings, want)
		}
	}
	repeated := append(rows(0), rows(0)...)
	for i := range repeated[4:] {
		repeated[4+i].Value += 10
	}
	if s := one(t, repeated, Options{}); len(s.Warnings) != 0 || math.Abs(s.Cases[0].Cells["a"].StdErr-5) > 1e-12 {
		t.Errorf("repetitions that differ by 10: %+v", s)
	}
}
