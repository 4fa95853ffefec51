package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func compare(t *testing.T, a, b []Observation, o Options) Comparison {
	t.Helper()
	if o.Confidence == 0 {
		o.Confidence = DefaultConfidence
	}
	c, err := Compare(a, b, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestVerdict(t *testing.T) {
	low, high := inBlocks(100, 101, 99, 102, 98, 100), inBlocks(200, 201, 199, 202, 198, 200)
	similar := inBlocks(101, 99, 102, 98, 100, 101)
	for _, tc := range []struct {
		name         string
		a, b         []Observation
		higherBetter bool
		want         Verdict
	}{
		{"more throughput", high, low, true, Better},
		{"less throughput", low, high, true, Worse},
		{"more latency", high, low, false, Worse},
		{"less latency", low, high, false, Better},
		{"the same", low, similar, true, NoDifferenceSeen},
		{"three that differ", high[:3], low[:3], true, Better},
		{"three that do not", low[:3], similar[:3], true, TooFew},
		{"one", high[:1], low, true, TooFew},
		{"constant and different", inBlocks(6, 6, 6, 6, 6, 6), inBlocks(5, 5, 5, 5, 5, 5), true, Better},
		{"constant and equal", inBlocks(5, 5, 5, 5, 5, 5), inBlocks(5, 5, 5, 5, 5, 5), true, NoDifferenceSeen},
	} {
		c := compare(t, tc.a, tc.b, Options{HigherIsBetter: tc.higherBetter, Interleaved: true})
		if got := c.Verdict(c.P(), DefaultAlpha); got != tc.want {
			t.Errorf("%s: %s, want %s (p = %v)", tc.name, got, tc.want, c.P())
		}
		if got := c.Verdict(math.NaN(), DefaultAlpha); got != TooFew {
			t.Errorf("%s, p = NaN: %s, want %s", tc.name, got, TooFew)
		}
	}
	c := compare(t, high, low, Options{Interleaved: true})
	if got := c.Verdict(0.2, DefaultAlpha); got != Unclear {
		t.Errorf("interval without 1, adjusted to 0.2: %s, want %s", got, Unclear)
	}
	c = compare(t, low, similar, Options{Interleaved: true})
	if got := c.Verdict(0.2, DefaultAlpha); got != NoDifferenceSeen {
		t.Errorf("interval with 1, adjusted to 0.2: %s, want %s", got, NoDifferenceSeen)
	}
}

func TestCompareGathers(t *testing.T) {
	a, b := inBlocks(110, 112, 108, 111, 109, 113), inBlocks(100, 103, 98, 101, 99, 102)
	c := compare(t, a, b, Options{HigherIsBetter: true, Interleaved: true, Seed: 5})
	ratio, err := BlockRatio(a, b, 0.95, 5)
	if err != nil {
		t.Fatal(err)
	}
	welch, err := welchSamples(Values(a), Values(b))
	if err != nil {
		t.Fatal(err)
	}
	rank, err := MannWhitney(Values(a), Values(b))
	if err != nil {
		t.Fatal(err)
	}
	if c.Ratio != ratio || c.Welch != welch || c.MannWhitney != rank || c.P() != welch.P {
		t.Errorf("got %+v, want %+v, %+v, %+v", c, ratio, welch, rank)
	}
	if c.A.N != 6 || c.B.Median != 100.5 || c.Detectable != MinimumDetectable(c.A.Moments, c.B.Moments) || len(c.Warnings) != 0 {
		t.Errorf("got %+v", c)
	}
}

func TestCompareWarnings(t *testing.T) {
	a, b := inBlocks(110, 112, 108, 111, 109, 113), inBlocks(100, 103, 98, 101, 99, 102)
	elsewhere := make([]Observation, len(b))
	for i, o := range b {
		elsewhere[i] = Observation{o.Block + 100, o.Value}
	}
	waves := []float64{1, 3, 9, 27, 81, 243}
	for _, tc := range []struct {
		name        string
		a, b        []Observation
		interleaved bool
		want        []Kind
	}{
		{"interleaved", a, b, true, nil},
		{"in sequence", a, b, false, []Kind{NotInterleaved}},
		{"another run", a, elsewhere, true, []Kind{NotInterleaved}},
		{"zero baseline", a, inBlocks(0, 0, 0, 0, 0, 0), true, []Kind{NoRatio}},
		{"skewed", inBlocks(101, 102, 103, 104, 105, 106), inBlocks(100, 99, 98, 97, 96, 500), true, []Kind{Disagreement}},
		{"common noise", inBlocks(1.2, 3.7, 11, 33, 99, 300), inBlocks(waves...), true, []Kind{SharedNoise}},
	} {
		c := compare(t, tc.a, tc.b, Options{Interleaved: tc.interleaved})
		if got := kinds(c.Warnings); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %+v, want %v", tc.name, c.Warnings, tc.want)
		}
		if wantPaired := tc.interleaved && tc.name != "another run" && !math.IsNaN(c.Ratio.Point); c.Ratio.Paired != wantPaired {
			t.Errorf("%s: paired %v, want %v", tc.name, c.Ratio.Paired, wantPaired)
		}
	}
}

// TestCompareCountsBlocks: repeating values within a block adds no evidence.
func TestCompareCountsBlocks(t *testing.T) {
	a, b := inBlocks(110, 100, 108), inBlocks(100, 103, 98)
	often := func(obs []Observation) []Observation { return slices.Concat(obs, obs, obs, obs) }
	once, repeated := compare(t, a, b, Options{Interleaved: true}), compare(t, often(a), often(b), Options{Interleaved: true})
	if once.P() != repeated.P() || repeated.A.N != 3 {
		t.Errorf("p = %v with n = %d after p = %v with n = 3", repeated.P(), repeated.A.N, once.P())
	}
}

func TestCompareUndefined(t *testing.T) {
	c := compare(t, inBlocks(3), inBlocks(2), Options{Interleaved: true})
	if c.Welch.Defined() || c.P() != 1 || c.Ratio.Point != 1.5 || c.Ratio.Interval.Defined() || !math.IsNaN(c.Detectable) {
		t.Errorf("one against one: %+v", c)
	}
	c = compare(t, inBlocks(1, 2, 3), inBlocks(0, 0, 0), Options{Interleaved: true})
	if !math.IsNaN(c.Ratio.Point) || !c.Welch.Defined() || !math.IsNaN(c.Detectable) {
		t.Errorf("baseline of zeros: %+v", c)
	}
}

func TestCompareErrors(t *testing.T) {
	good := inBlocks(1, 2, 3)
	hidden := append(inBlocks(1, 2, 3), Observation{0, math.NaN()}, Observation{0, 2}) // its block median is finite
	for _, tc := range []struct {
		name string
		a, b []Observation
		want error
	}{
		{"empty", nil, good, ErrTooFew},
		{"empty baseline", good, nil, ErrTooFew},
		{"NaN", hidden, good, ErrNotFinite},
		{"NaN in baseline", good, hidden, ErrNotFinite},
	} {
		if _, err := Compare(tc.a, tc.b, Options{Confidence: 0.95}); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", tc.name, err, tc.want)
		}
	}
	if _, err := Compare(good, good, Options{}); err == nil {
		t.Error("confidence 0: no error")
	}
}

func TestMinimumDetectable(t *testing.T) {
	// δ = 4σ/√n: σ = 10 % and n = 16 give 10 %.
	m := Moments{N: 16, Mean: 200, StdErr: 20.0 / 4}
	if got := MinimumDetectable(m, m); !near(got, 0.1, 1e-12) {
		t.Errorf("got %v, want 0.1", got)
	}
	if got := MinimumDetectable(Moments{N: 1, Mean: 1}, m); !math.IsNaN(got) {
		t.Errorf("one sample: %v, want NaN", got)
	}
	if got := MinimumDetectable(m, Moments{N: 6, StdErr: 1}); !math.IsNaN(got) {
		t.Errorf("baseline 0: %v, want NaN", got)
	}
}

// TestPowerAtMinimumDetectable simulates the power of the test at MinimumDetectable.
func TestPowerAtMinimumDetectable(t *testing.T) {
	const runs, sd = 2000, 10.0
	for _, tc := range []struct {
		n         int
		low, high float64
	}{{6, 0.66, 0.76}, {30, 0.76, 0.83}} {
		rng := rand.New(rand.NewPCG(12, uint64(tc.n)))
		delta := 4 * sd / math.Sqrt(float64(tc.n))
		seen := 0
		for range runs {
			w, err := welchSamples(normals(rng, tc.n, 100+delta, sd), normals(rng, tc.n, 100, sd))
			if err != nil {
				t.Fatal(err)
			}
			if w.P <= 0.05 {
				seen++
			}
		}
		if power := float64(seen) / runs; power < tc.low || tc.high < power {
			t.Errorf("n = %d: power %v, want %v to %v", tc.n, power, tc.low, tc.high)
		}
	}
}
