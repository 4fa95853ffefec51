package stats

import (
	"errors"
	"math"
	"testing"
)

func TestWelchSamples(t *testing.T) {
	// Welch's example data of textbooks; t, df and p as R's t.test prints them.
	xs := []float64{27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4}
	ys := []float64{27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4}
	got, err := Welch(moments(t, xs), moments(t, ys))
	if err != nil {
		t.Fatal(err)
	}
	if !near(got.Statistic, -2.46, 0.01) || !near(got.DF, 25.0, 0.05) || !near(got.P, 0.021, 0.0005) {
		t.Errorf("got %+v, want t = -2.46, df = 25.0, p = 0.021", got)
	}
	back, err := Welch(moments(t, ys), moments(t, xs))
	if err != nil {
		t.Fatal(err)
	}
	if back.Statistic != -got.Statistic || back.P != got.P {
		t.Errorf("exchanged sides give %+v after %+v", back, got)
	}
}

func moments(t *testing.T, xs []float64) Moments {
	t.Helper()
	s, err := Summarize(xs)
	if err != nil {
		t.Fatal(err)
	}
	return s.Moments
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
			if got, err := test(tc.a, tc.b); !errors.Is(err, tc.want) || !math.IsNaN(got.P) {
				t.Errorf("%s: %+v, error %v, want %v", tc.name, got, err, tc.want)
			}
		}
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

// TestMinimumDetectable compares with the noncentral t distribution of SciPy.
func TestMinimumDetectable(t *testing.T) {
	m := Moments{N: 6, Mean: 200, StdErr: 10} // df = 10
	got, err := MinimumDetectable(m, m)
	if ncp := got / (10 * math.Sqrt2); err != nil || !near(power(ncp, 0.05, 10), 0.8, 1e-9) {
		t.Errorf("%v, error %v: power %v, want 0.8", got, err, power(ncp, 0.05, 10))
	}
	if got, err := MinimumDetectable(Moments{N: 1, Mean: 1}, m); !errors.Is(err, ErrTooFew) || !math.IsNaN(got) {
		t.Errorf("one sample: %v, error %v", got, err)
	}
}
