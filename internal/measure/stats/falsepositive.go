package stats

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// FalsePositives is how often a test called two equal configurations different.
type FalsePositives struct {
	Blocks    int // that hold both configurations
	Tests     int // two for each split; those that are not defined are not counted
	Positives int // tests with p < Alpha
	Alpha     float64
}

// Rate returns the share of the tests that were positive: Alpha is what to expect.
// It is NaN when no test was defined.
func (f FalsePositives) Rate() float64 { return float64(f.Positives) / float64(f.Tests) }

// Add returns the counts of both, for the rate over several cases. Alpha is that
// of the first.
func (f FalsePositives) Add(g FalsePositives) FalsePositives {
	f.Blocks += g.Blocks
	f.Tests += g.Tests
	f.Positives += g.Positives
	return f
}

// WelchFalsePositives estimates the false-positive rate of Welch's test at level
// alpha from an A/A measurement: a and b are observations of the same configuration,
// entered twice, so that every difference that the test sees is a false one.
//
// Each block counts once per side, as the median of its values; blocks that lack a
// side are left out. For each of so many splits the n blocks are put into random
// order, and the first ⌊n/2⌋ of them and the other ⌈n/2⌉ are two measurements: in
// each, the values of a are tested against those of b of the same blocks. So a test
// has what a report has: two samples that were measured side by side, only fewer. A
// test without any variance on both sides is not counted.
//
// If a and b are alike, the expected rate is alpha where the values are independent
// and about normal, and less where blocks differ from each other, because the test
// does not know that both sides share them. A higher rate means that the
// configurations are not measured alike, as when they come in separate blocks of
// time, or that tails are heavy. The tests of one a and b overlap: the rate scatters
// far more between measurements than Tests suggests, so judge it over many cases.
//
// It fails with ErrTooFew unless four blocks hold both sides.
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
		return FalsePositives{}, fmt.Errorf("false positives: %w: %d blocks hold both configurations, at least %d needed", ErrTooFew, both, least)
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

// count makes one test.
func (f *FalsePositives) count(xs, ys []float64) error {
	test, err := WelchSamples(xs, ys)
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
