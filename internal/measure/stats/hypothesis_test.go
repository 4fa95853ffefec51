package stats

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestWelchSamples(t *testing.T) {
	// Welch's example data of textbooks; t, df and p as R's t.test prints them.
	xs := []float64{27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4}
	ys := []float64{27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4}
	got, err := welchSamples(xs, ys)
	if err != nil {
		t.Fatal(err)
	}
	if !near(got.Statistic, -2.46, 0.01) || !near(got.DF, 25.0, 0.05) || !near(got.P, 0.021, 0.0005) {
		t.Errorf("got %+v, want t = -2.46, df = 25.0, p = 0.021", got)
	}
	back, err := welchSamples(ys, xs)
	if err != nil {
		t.Fatal(err)
	}
	if back.Statistic != -got.Statistic || back.P != got.P {
		t.Errorf("exchanged sides give %+v after %+v", back, got)
	}
}

func TestWelchErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b Moments
		want error
	}{
		{"one sample", Moments{1, 5, 0}, Moments{6, 5, 1}, ErrTooFew},
		{"none", Moments{6, 5, 1}, Moments{}, ErrTooFew},
		{"constant", Moments{6, 5, 0}, Moments{6, 6, 0}, ErrNoVariance},
		{"NaN", Moments{6, math.NaN(), 1}, Moments{6, 6, 1}, ErrNotFinite},
		{"negative error", Moments{6, 5, -1}, Moments{6, 6, 1}, ErrNotFinite},
	} {
		for _, test := range []func(a, b Moments) (Test, error){Welch, WelchTruncated} {
			if got, err := test(tc.a, tc.b); !errors.Is(err, tc.want) || got.Defined() {
				t.Errorf("%s: %+v, error %v, want %v", tc.name, got, err, tc.want)
			}
		}
	}
	if _, err := welchSamples(nil, []float64{1, 2}); !errors.Is(err, ErrTooFew) {
		t.Errorf("empty first sample: error %v", err)
	}
	if _, err := welchSamples([]float64{1, 2}, []float64{math.Inf(1)}); !errors.Is(err, ErrNotFinite) {
		t.Errorf("infinite second sample: error %v", err)
	}
}

func TestWelchOneConstantSide(t *testing.T) {
	got, err := Welch(Moments{6, 3.8567, 0.0357}, Moments{6, 3.73, 0})
	if err != nil || got.DF != 5 {
		t.Errorf("got %+v, error %v, want df = 5", got, err)
	}
}

func TestWelchTruncatedKeepsIntegers(t *testing.T) {
	// Equal errors have df = 2(n-1), which rounding may leave below.
	for n := 2; n < 60; n++ {
		got, err := WelchTruncated(Moments{n, 1, 0.1}, Moments{n, 2, 0.1})
		if err != nil || got.DF != float64(2*(n-1)) {
			t.Errorf("n = %d: df %v, error %v, want %d", n, got.DF, err, 2*(n-1))
		}
	}
}

// TestTTail compares with closed forms: df = 1 is Cauchy's distribution, df = 2
// is algebraic, huge df is normal.
func TestTTail(t *testing.T) {
	for x := -30.0; x <= 30; x += 0.37 {
		cauchy := 2 / math.Pi * math.Atan2(1, math.Abs(x))
		algebraic := 2 / (2 + x*x + math.Abs(x)*math.Sqrt(2+x*x))
		if got := tTail(x, 1); !near(got, cauchy, 1e-12) {
			t.Errorf("t = %v, df = 1: %v, want %v", x, got, cauchy)
		}
		if got := tTail(x, 2); !near(got, algebraic, 1e-12) {
			t.Errorf("t = %v, df = 2: %v, want %v", x, got, algebraic)
		}
		if got := tTail(x, 1e9); !near(got, math.Erfc(math.Abs(x)/math.Sqrt2), 1e-4) {
			t.Errorf("t = %v, df = 1e9: %v", x, got)
		}
	}
	if got := tTail(1e6, 10); !(got > 0 && got < 1e-50) {
		t.Errorf("far tail: %v, want a tiny positive number", got)
	}
}

// pairsLarger is U by its definition.
func pairsLarger(xs, ys []float64) float64 {
	u := 0.0
	for _, x := range xs {
		for _, y := range ys {
			u += float64(cmp.Compare(x, y)+1) / 2
		}
	}
	return u
}

// bruteMannWhitney enumerates every division of all values in two sides.
func bruteMannWhitney(xs, ys []float64) float64 {
	all := slices.Concat(xs, ys)
	center := float64(len(xs)*len(ys)) / 2
	seen := math.Abs(pairsLarger(xs, ys) - center)
	far, total := 0, 0
	for mask := uint(0); mask < 1<<len(all); mask++ {
		if bits.OnesCount(mask) != len(xs) {
			continue
		}
		var a, b []float64
		for i, x := range all {
			if mask>>i&1 == 1 {
				a = append(a, x)
			} else {
				b = append(b, x)
			}
		}
		total++
		if math.Abs(pairsLarger(a, b)-center) >= seen {
			far++
		}
	}
	return float64(far) / float64(total)
}

func TestMannWhitneyBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 0))
	for range 400 {
		xs, ys := make([]float64, 1+rng.IntN(5)), make([]float64, 1+rng.IntN(5))
		levels := 1 + rng.IntN(12) // few levels make ties
		for _, side := range [][]float64{xs, ys} {
			for i := range side {
				side[i] = float64(rng.IntN(levels)) - 3
			}
		}
		got, err := MannWhitney(xs, ys)
		if err != nil {
			t.Fatal(err)
		}
		if want := bruteMannWhitney(xs, ys); !near(got.P, want, 1e-12) || got.Statistic != pairsLarger(xs, ys) {
			t.Errorf("%v against %v: %+v, want U = %v, p = %v", xs, ys, got, pairsLarger(xs, ys), want)
		}
	}
}

func TestMannWhitneyKnown(t *testing.T) {
	for _, tc := range []struct {
		name   string
		xs, ys []float64
		u, p   float64
	}{
		{"three runs", []float64{1, 2, 3}, []float64{4, 5, 6}, 0, 0.1},
		{"six runs", []float64{7, 8, 9, 10, 11, 12}, []float64{1, 2, 3, 4, 5, 6}, 36, 2.0 / 924},
		{"single", []float64{1}, []float64{2}, 0, 1},
		{"all equal", []float64{5, 5, 5}, []float64{5, 5, 5}, 4.5, 1},
		{"constant sides", []float64{6, 6, 6}, []float64{5, 5, 5}, 9, 0.1},
	} {
		got, err := MannWhitney(tc.xs, tc.ys)
		if err != nil || got.Statistic != tc.u || !near(got.P, tc.p, 1e-12) {
			t.Errorf("%s: %+v, error %v, want U = %v, p = %v", tc.name, got, err, tc.u, tc.p)
		}
	}
	for _, tc := range []struct {
		xs, ys []float64
		want   error
	}{{nil, []float64{1}, ErrTooFew}, {[]float64{1}, nil, ErrTooFew}, {[]float64{1}, []float64{math.NaN()}, ErrNotFinite}} {
		if got, err := MannWhitney(tc.xs, tc.ys); !errors.Is(err, tc.want) || got.Defined() {
			t.Errorf("%v against %v: %+v, error %v, want %v", tc.xs, tc.ys, got, err, tc.want)
		}
	}
}

// TestMannWhitneyApproximation compares the normal approximation with the
// exact distribution on samples just beyond the limit, with and without ties.
func TestMannWhitneyApproximation(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	for _, levels := range []int{10, 1 << 30} {
		for range 20 {
			xs, ys := make([]float64, 25), make([]float64, 18)
			for i := range xs {
				xs[i] = float64(rng.IntN(levels))
			}
			for i := range ys {
				ys[i] = float64(rng.IntN(levels))
			}
			ranks, _ := doubledRanks(xs, ys)
			sum := 0
			for _, r := range ranks[:len(xs)] {
				sum += r
			}
			got, err := MannWhitney(xs, ys)
			if err != nil {
				t.Fatal(err)
			}
			if want := rankSumTail(ranks, len(xs), sum); !near(got.P, want, 0.02) {
				t.Errorf("%d levels: %v by approximation, %v exactly", levels, got.P, want)
			}
		}
	}
	same := make([]float64, 50)
	if got, err := MannWhitney(same, same); err != nil || got.P != 1 {
		t.Errorf("50 equal values on each side: %+v, error %v, want p = 1", got, err)
	}
}

// TestFalsePositives is an A/A simulation: tests at 5 % on equal sides call
// about 5 % different, and Holm keeps a table of ten to about 5 %.
func TestFalsePositives(t *testing.T) {
	const runs, alpha = 3000, 0.05
	rng := rand.New(rand.NewPCG(4, 0))
	welch, rank, table := 0, 0, 0
	var family []float64
	for i := range runs {
		xs, ys := normals(rng, 6, 100, 10), normals(rng, 6, 100, 10)
		w, err := welchSamples(xs, ys)
		if err != nil {
			t.Fatal(err)
		}
		m, err := MannWhitney(xs, ys)
		if err != nil {
			t.Fatal(err)
		}
		if w.P <= alpha {
			welch++
		}
		if m.P <= alpha {
			rank++
		}
		if family = append(family, w.P); i%10 == 9 {
			if slices.Min(Holm(family)) <= alpha {
				table++
			}
			family = nil
		}
	}
	for _, tc := range []struct {
		name      string
		rate      float64
		low, high float64
	}{
		{"Welch", float64(welch) / runs, 0.035, 0.06},
		{"Mann-Whitney", float64(rank) / runs, 0.03, 0.055}, // 0.041 is the nearest it can
		{"tables after Holm", float64(table) / (runs / 10), 0.01, 0.09},
	} {
		if tc.rate < tc.low || tc.high < tc.rate {
			t.Errorf("%s: false-positive rate %v, want %v to %v", tc.name, tc.rate, tc.low, tc.high)
		}
	}
}
