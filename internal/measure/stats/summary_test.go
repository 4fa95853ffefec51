package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

// normals returns n draws from a normal distribution.
func normals(rng *rand.Rand, n int, mean, sd float64) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = mean + sd*rng.NormFloat64()
	}
	return xs
}

func TestSummarize(t *testing.T) {
	for _, tc := range []struct {
		name string
		xs   []float64
		want Summary
	}{
		{"one", []float64{7}, Summary{Moments{1, 7, 0}, 7, 7, 0, 7, 7}},
		{"constant", []float64{0.1, 0.1, 0.1, 0.1, 0.1, 0.1}, Summary{Moments{6, 0.1, 0}, 0.1, 0.1, 0, 0.1, 0.1}},
		{"odd", []float64{9, 1, 2}, Summary{Moments{3, 4, math.Sqrt(19.0 / 3)}, math.Cbrt(18), 2, math.Sqrt(19), 1, 9}},
		{"even", []float64{2, 4, 4, 4, 5, 5, 7, 9}, Summary{Moments{8, 5, math.Sqrt(32.0 / 56)}, math.Pow(2*4*4*4*5*5*7*9, 1.0/8), 4.5, math.Sqrt(32.0 / 7), 2, 9}},
		{"negative", []float64{-1, 1}, Summary{Moments{2, 0, 1}, 0, 0, math.Sqrt2, -1, 1}},
	} {
		got, err := Summarize(tc.xs)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got.N != tc.want.N || got.Median != tc.want.Median || got.Min != tc.want.Min || got.Max != tc.want.Max ||
			!near(got.Mean, tc.want.Mean, 1e-15) || !near(got.Center, tc.want.Center, 1e-14) || !near(got.StdDev, tc.want.StdDev, 1e-14) || !near(got.StdErr, tc.want.StdErr, 1e-14) {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// The percentiles of 1 to 9 are known. They do not depend on the order of the values, and
// are never outside them.
func TestQuantiles(t *testing.T) {
	xs := []float64{9, 1, 8, 2, 7, 3, 6, 4, 5}
	got, err := Quantiles(xs, 0, 0.01, 0.25, 0.5, 0.75, 0.99, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1, 1, 8.0 / 3, 5, 22.0 / 3, 9, 9} {
		if !near(got[i], want, 1e-12) {
			t.Errorf("quantile %d of 1 to 9: got %v, want %v", i, got[i], want)
		}
	}
	if xs[0] != 9 {
		t.Error("the values were sorted in place")
	}
	if one, err := Quantiles([]float64{7}, 0.25, 0.99); err != nil || one[0] != 7 || one[1] != 7 {
		t.Errorf("of one value: got %v, %v", one, err)
	}
	if _, err := Quantiles(nil, 0.5); !errors.Is(err, ErrTooFew) {
		t.Errorf("of none: got %v, want ErrTooFew", err)
	}
}

func TestSummarizeErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		xs   []float64
		want error
	}{
		{"empty", nil, ErrTooFew},
		{"NaN", []float64{1, math.NaN()}, ErrNotFinite},
		{"infinite", []float64{math.Inf(-1), 1}, ErrNotFinite},
		{"overflow", []float64{math.MaxFloat64, -math.MaxFloat64}, ErrNotFinite},
	} {
		if _, err := Summarize(tc.xs); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestSummarizeKeepsArgument(t *testing.T) {
	xs := []float64{3, 1, 2}
	if _, err := Summarize(xs); err != nil {
		t.Fatal(err)
	}
	if xs[0] != 3 || xs[1] != 1 || xs[2] != 2 {
		t.Errorf("argument became %v", xs)
	}
}

func TestRelative(t *testing.T) {
	m := Moments{N: 6, Mean: -50, StdErr: 2}
	if got := m.RelStdErr(); got != 0.04 {
		t.Errorf("RelStdErr = %v, want 0.04", got)
	}
	if got := (Moments{Mean: 150}).RelativeChange(Moments{Mean: 200}); got != -0.25 {
		t.Errorf("RelativeChange = %v, want -0.25", got)
	}
	if got := (Summary{Moments: m, StdDev: 5}).CV(); got != 0.1 {
		t.Errorf("CV = %v, want 0.1", got)
	}
	if got := (Moments{Mean: 0, StdErr: 1}).RelStdErr(); !math.IsInf(got, 1) {
		t.Errorf("RelStdErr with mean 0 = %v, want +Inf", got)
	}
}
