package stats

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// FalsePositives counts how often a test found a difference between two equal
// configurations.
type FalsePositives struct {
	Blocks    int // with both configurations
	Tests     int // two for each split, without undefined ones
	Positives int // tests with p < Alpha
	Alpha     float64
}

// Rate returns the fraction of positive tests; Alpha is expected. It is NaN without
// tests.
func (f FalsePositives) Rate() float64 { return float64(f.Positives) / float64(f.Tests) }

// Add returns the sum of the counts, for the rate over several cases. Alpha is that of f.
func (f FalsePositives) Add(g FalsePositives) FalsePositives {
	f.Blocks += g.Blocks
	f.Tests += g.Tests
	f.Positives += g.Positives
	return f
}

// WelchFalsePositives estimates the false-positive rate of Welch's test at level alpha
// from an A/A measurement: a and b are observations of the same configuration, so every
// difference that the test finds is a false one.
//
// Each block counts once per side, as the median of its values; blocks without both
// sides are left out. Each split shuffles the n blocks and takes the first ⌊n/2⌋ and the
// other ⌈n/2⌉ as two measurements, in each of which it tests a against b. So a test has
// the same kind of samples as in a report, only fewer. A test without variance on both
// sides does not count.
//
// The expected rate is alpha if the values are independent and about normal, and less if
// blocks differ, because the test does not pair blocks. A higher rate means that the two
// were measured differently, such as in separate blocks of time, or that tails are heavy.
// The tests overlap, so the rate varies far more between measurements than Tests
// suggests: judge it over many cases.
//
// It fails with ErrTooFew unless four blocks have both sides.
func WelchFalsePositives(a, b []Observation, alpha float64, splits int, seed uint64) (FalsePositives, error) {
	if err := checkConfidence(1 - alpha); err != nil {
		return FalsePositives{}, fmt.Errorf("false positives at level %v: want a number between 0 and 1, such as %v", alpha, DefaultAlpha)
	}
	for _, side := range [][]Observation{a, b} {
		if err := checkSample(Values(side), 1); err != nil {
			return FalsePositives{}, fmt.Errorf("false positives: %w", err)
		}
	}
	joined, both := pairs(BlockMedians(a), BlockMedians(b))
	const least = 4 // two in each half
	if both < least {
		return FalsePositives{}, fmt.Errorf("false positives: %w: %d blocks have both configurations, want at least %d", ErrTooFew, both, least)
	}
	f := FalsePositives{Blocks: both, Alpha: alpha}
	var xs, ys []float64
	for _, p := range joined {
		if p.hasA && p.hasB {
			xs, ys = append(xs, p.a), append(ys, p.b)
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for range splits {
		r.Shuffle(len(xs), func(i, j int) {
			xs[i], xs[j] = xs[j], xs[i]
			ys[i], ys[j] = ys[j], ys[i]
		})
		half := len(xs) / 2
		for _, part := range [][2][]float64{{xs[:half], ys[:half]}, {xs[half:], ys[half:]}} {
			if err := f.count(part[0], part[1]); err != nil {
				return FalsePositives{}, fmt.Errorf("false positives: %w", err)
			}
		}
	}
	return f, nil
}

// count tests xs against ys.
func (f *FalsePositives) count(xs, ys []float64) error {
	test, err := welchSamples(xs, ys)
	if errors.Is(err, ErrNoVariance) {
		return nil
	}
	if err != nil {
		return err
	}
	f.Tests++
	if test.P < f.Alpha {
		f.Positives++
	}
	return nil
}
