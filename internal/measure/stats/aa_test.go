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

// Over many equal pairs the rate is the level, also where blocks differ. A real
// difference makes it larger.
func TestFalsePositiveRate(t *testing.T) {
	for _, test := range []struct {
		name          string
		shared, shift float64
		low, high     float64
	}{
		{"equal", 0, 0, 0.04, 0.06},
		{"equal in blocks that differ", 10, 0, 0.04, 0.06},
		{"not equal", 0, 1, 0.2, 0.9},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		sum := FalsePositives{}
		for range 1000 {
			a, b := twins(r, 13, test.shared, test.shift)
			f, err := EqualPair(a, b, 0.05)
			if err != nil {
				t.Fatal(err)
			}
			if f.Tests != 2 {
				t.Fatalf("%d tests of 13 blocks, want 2", f.Tests)
			}
			sum = f.Add(sum)
		}
		if rate := sum.Rate(); rate < test.low || test.high < rate {
			t.Errorf("%s: rate %v, want %v to %v", test.name, rate, test.low, test.high)
		}
	}
}

func TestExpectedFalsePositives(t *testing.T) {
	for _, tc := range []struct{ tests, low, high int }{{1, 0, 1}, {20, 0, 3}, {100, 1, 10}, {1000, 37, 64}} { // scipy.stats.binom.ppf
		if low, high := (FalsePositives{Tests: tc.tests, Alpha: 0.05}).Expected(); low != tc.low || high != tc.high {
			t.Errorf("%d tests: %d to %d, want %d to %d", tc.tests, low, high, tc.low, tc.high)
		}
	}
}

func TestFalsePositivesErrors(t *testing.T) {
	if f, err := EqualPair(slow[:5], fast[:5], 0.05); !errors.Is(err, ErrTooFew) || !math.IsNaN(f.Rate()) {
		t.Errorf("five blocks: %+v, error %v", f, err)
	}
	if _, err := EqualPair(slow, nil, 0.05); !errors.Is(err, ErrTooFew) {
		t.Errorf("an empty side: error %v", err)
	}
	if _, err := EqualPair(inBlocks(0, 1, 2, 3, 4, 5), fast, 0.05); !errors.Is(err, ErrNotPositive) {
		t.Errorf("a zero: error %v", err)
	}
	if f, err := EqualPair(slow, slow, 0.05); err != nil || f.Tests != 0 {
		t.Errorf("no variance: %+v, error %v", f, err)
	}
}
