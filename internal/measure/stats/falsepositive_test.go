package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// twins returns n blocks of two sides: both have the block's noise, of the standard
// deviation shared, and their own, of 1; b is larger by shift.
func twins(r *rand.Rand, n int, shared, shift float64) (a, b []Observation) {
	for block := range n {
		common := 100 + shared*r.NormFloat64()
		a = append(a, Observation{block, common + r.NormFloat64()})
		b = append(b, Observation{block, common + r.NormFloat64() + shift})
	}
	return a, b
}

// pooled returns the rate over many measurements.
func pooled(t *testing.T, measurements, blocks int, shared, shift float64) float64 {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	sum := FalsePositives{}
	for seed := range measurements {
		a, b := twins(r, blocks, shared, shift)
		f, err := WelchFalsePositives(a, b, 0.05, 20, uint64(seed))
		if err != nil {
			t.Fatal(err)
		}
		if f.Blocks != blocks || f.Tests != 40 {
			t.Fatalf("%+v of %d blocks and 20 splits", f, blocks)
		}
		sum = f.Add(sum)
	}
	return sum.Rate()
}

// Over many equal pairs the rate is that of the test. Noise that blocks share makes it
// smaller, a real difference larger.
func TestFalsePositiveRate(t *testing.T) {
	for _, test := range []struct {
		name          string
		shared, shift float64
		low, high     float64
	}{
		{"equal", 0, 0, 0.04, 0.06},
		{"equal in blocks that differ", 3, 0, 0, 0.005},
		{"not equal", 0, 1, 0.3, 0.9},
	} {
		if got := pooled(t, 1000, 13, test.shared, test.shift); got < test.low || got > test.high {
			t.Errorf("%s: rate %v, want between %v and %v", test.name, got, test.low, test.high)
		}
	}
}

// The rate shows that equal configurations look different if they are measured one after
// the other on a machine that drifts.
func TestFalsePositivesShowDrift(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var a, b []Observation
	for block := range 24 {
		a = append(a, Observation{block, float64(block) + r.NormFloat64()})
		b = append(b, Observation{block, float64(block) + 24 + r.NormFloat64()})
	}
	f, err := WelchFalsePositives(a, b, 0.05, 100, 1)
	if err != nil || f.Rate() < 0.9 {
		t.Errorf("rate %v, %v", f.Rate(), err)
	}
}

func TestFalsePositivesCountBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	a, b := twins(r, 9, 0, 0)
	f, err := WelchFalsePositives(a, b, 0.05, 50, 7)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := WelchFalsePositives(a, b, 0.05, 50, 7)
	if f != again {
		t.Errorf("equal arguments give %+v and %+v", f, again)
	}
	// A block with one side is left out; several values of a block count as their median.
	more := append([]Observation{{99, 1e9}}, a...)
	more = append(more, Observation{0, a[0].Value - 5}, Observation{0, a[0].Value + 5})
	if same, err := WelchFalsePositives(more, b, 0.05, 50, 7); err != nil || same != f {
		t.Errorf("got %+v, %v; want %+v", same, err, f)
	}
}

// Tests without variance do not count.
func TestFalsePositivesOfConstants(t *testing.T) {
	var a, b []Observation
	for block := range 8 {
		a, b = append(a, Observation{block, 5}), append(b, Observation{block, 5})
	}
	f, err := WelchFalsePositives(a, b, 0.05, 10, 1)
	if err != nil || f.Tests != 0 || f.Positives != 0 || !math.IsNaN(f.Rate()) {
		t.Errorf("got %+v, rate %v, %v", f, f.Rate(), err)
	}
}

func TestFalsePositivesRefuse(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	a, b := twins(r, 6, 0, 0)
	for name, test := range map[string]struct {
		a, b  []Observation
		alpha float64
		is    error
	}{
		"three blocks":       {a[:3], b, 0.05, ErrTooFew},
		"no block in common": {a[:3], b[3:], 0.05, ErrTooFew},
		"nothing":            {nil, b, 0.05, ErrTooFew},
		"not a number":       {append([]Observation{{9, math.NaN()}}, a...), b, 0.05, ErrNotFinite},
		"level 0":            {a, b, 0, nil},
		"level 1":            {a, b, 1, nil},
	} {
		if _, err := WelchFalsePositives(test.a, test.b, test.alpha, 10, 1); err == nil || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: got %v, want %v", name, err, test.is)
		}
	}
}
