package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

func TestMeanInterval(t *testing.T) {
	// t quantiles from printed tables: 12.706 (df 1), 2.571 (df 5), 3.707 (df 6, 99.0 %).
	for _, tc := range []struct {
		n                    int
		confidence, quantile float64
	}{{2, 0.95, 12.706}, {6, 0.95, 2.571}, {6, 0.90, 2.015}, {7, 0.99, 3.707}} {
		xs := make([]float64, tc.n)
		for i := range xs {
			xs[i] = float64(i)
		}
		s, err := Summarize(xs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := MeanInterval(xs, tc.confidence)
		if err != nil {
			t.Fatal(err)
		}
		half := tc.quantile * s.StdErr
		if !near(got.Low, s.Mean-half, 0.001) || !near(got.High, s.Mean+half, 0.001) || got.Confidence != tc.confidence {
			t.Errorf("n = %d at %v: %+v, want %v ± %v", tc.n, tc.confidence, got, s.Mean, half)
		}
	}
}

func TestCenterInterval(t *testing.T) {
	got, err := CenterInterval(Values(fast), 0.95)
	if err != nil {
		t.Fatal(err)
	}
	if geo := math.Sqrt(got.Low * got.High); !near1(geo, center(Values(fast)), 1e-12) {
		t.Errorf("%+v is around %v, want the geometric mean %v", got, geo, center(Values(fast)))
	}
	if got, err := CenterInterval([]float64{0, 1, 2, 3, 4, 5}, 0.95); err != nil || !near((got.Low+got.High)/2, 2.5, 1e-12) {
		t.Errorf("with a zero: %+v, error %v, want one around the mean", got, err)
	}
	if got, err := CenterInterval([]float64{1, 2, 3, 4, 5}, 0.95); !errors.Is(err, ErrTooFew) || got.Defined() {
		t.Errorf("five values: %+v, error %v", got, err)
	}
}

func TestIntervalErrors(t *testing.T) {
	for name, interval := range map[string]func([]float64, float64) (Interval, error){
		"mean": MeanInterval, "center": CenterInterval,
	} {
		for _, tc := range []struct {
			xs   []float64
			want error
		}{{nil, ErrTooFew}, {[]float64{1}, ErrTooFew}, {[]float64{1, 2, 3, 4, 5, math.NaN()}, ErrNotFinite}} {
			if got, err := interval(tc.xs, 0.95); !errors.Is(err, tc.want) || got.Defined() {
				t.Errorf("%s of %v: %+v, error %v, want %v", name, tc.xs, got, err, tc.want)
			}
		}
		for _, confidence := range []float64{0, 1, 95, -1, math.NaN()} {
			if _, err := interval([]float64{1, 2}, confidence); err == nil {
				t.Errorf("%s at confidence %v: no error", name, confidence)
			}
		}
	}
}

// TestIntervalCoverage simulates how often intervals include the true value.
func TestIntervalCoverage(t *testing.T) {
	const runs = 4000
	for name, interval := range map[string]func([]float64, float64) (Interval, error){
		"mean": MeanInterval, "center": CenterInterval,
	} {
		for _, n := range []int{6, 15} {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			hits, nominal := 0, 0.0
			for range runs {
				got, err := interval(normals(rng, n, 10, 1), 0.95)
				if err != nil {
					t.Fatal(err)
				}
				nominal = got.Confidence
				if got.Contains(10) {
					hits++
				}
			}
			if coverage := float64(hits) / runs; !near(coverage, nominal, 0.03) {
				t.Errorf("%s, n = %d: coverage %v, want about %v", name, n, coverage, nominal)
			}
		}
	}
}

func TestMeanIntervalOfManySamples(t *testing.T) {
	xs := make([]float64, 50000)
	for i := range xs {
		xs[i] = float64(i % 2)
	}
	got, err := MeanInterval(xs, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	if half := 1.96 * 0.5 / math.Sqrt(50000); !near(got.High-0.5, half, half/100) {
		t.Errorf("interval %+v, want 0.5 ± %v", got, half)
	}
}

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		low, high, margin float64
		want              Answer
	}{
		{0.98, 1.02, 0.035, Yes},
		{0.9662, 1.035, 0.035, Yes},
		{0.966, 1.03, 0.035, Undecided},
		{0.96, 1.02, 0.035, Undecided},
		{0.98, 1.04, 0.035, Undecided},
		{0.5, 1.5, 0.035, Undecided},
		{1.04, 1.06, 0.035, No},
		{0.40, 0.50, 0.035, No},
		{1, 1, 0, Yes},
	} {
		if got := Within(Interval{tc.low, tc.high, 0.95}, tc.margin); got != tc.want {
			t.Errorf("[%v, %v] within %v: %s, want %s", tc.low, tc.high, tc.margin, got, tc.want)
		}
	}
	if got := Within(Interval{}, 0.035); got != Undecided {
		t.Errorf("no interval: %s, want undecided", got)
	}
}
