package stats

import (
	"fmt"
	"math"

	moremath "github.com/aclements/go-moremath/stats"
)

// FalsePositives counts how often a test found a difference between two equal
// configurations.
type FalsePositives struct {
	Tests     int     // independent: each has blocks of its own
	Positives int     // tests with p ≤ Alpha
	Alpha     float64 // level of the tests, and expected share of Positives
}

// Rate returns the share of positive tests. It is NaN without tests.
func (f FalsePositives) Rate() float64 { return float64(f.Positives) / float64(f.Tests) }

// Add returns the sum of the counts, for the rate over several cases. Alpha is that of f.
func (f FalsePositives) Add(g FalsePositives) FalsePositives {
	f.Tests += g.Tests
	f.Positives += g.Positives
	return f
}

// Expected returns the smallest and the largest number of positives that a perfect tool
// has in about 95 % of measurements of this size: the central interval of the binomial
// distribution with the probability Alpha.
func (f FalsePositives) Expected() (low, high int) {
	positives := moremath.BinomialDist{N: f.Tests, P: f.Alpha}
	for positives.CDF(float64(low)) < 0.025 {
		low++
	}
	for high = low; positives.CDF(float64(high)) < 0.975; high++ {
	}
	return low, high
}

// EqualPair tests a against b, which are observations of the same configuration, so every
// difference that a test finds is a false one. Each test takes the next MinRepetitions
// blocks that both sides have, so no two tests share a block. A test in which nothing
// varies does not count.
//
// It fails with ErrTooFew unless there are blocks for one test, and as Compare does.
func EqualPair(a, b []Observation, alpha float64) (FalsePositives, error) {
	if err := checkPositive(Values(a)); err != nil {
		return FalsePositives{}, fmt.Errorf("test equal configurations: %w", err)
	}
	if err := checkPositive(Values(b)); err != nil {
		return FalsePositives{}, fmt.Errorf("test equal configurations: %w", err)
	}
	f := FalsePositives{Alpha: alpha}
	xs, ys := shared(ByBlock(a), ByBlock(b))
	if len(xs) < MinRepetitions {
		return f, fmt.Errorf("test equal configurations: %w: %d blocks have both, want at least %d", ErrTooFew, len(xs), MinRepetitions)
	}
	for ; len(xs) >= MinRepetitions; xs, ys = xs[MinRepetitions:], ys[MinRepetitions:] {
		e, err := pairedEffect(xs[:MinRepetitions], ys[:MinRepetitions])
		if err != nil {
			return FalsePositives{}, err
		}
		if !e.Testable() {
			continue
		}
		f.Tests++
		if e.P() <= alpha {
			f.Positives++
		}
	}
	return f, nil
}

// Jain returns Jain's index of fairness of shares: 1 if all are equal, 1/n if one of n has
// everything. It is NaN without a positive share.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if !(squares > 0) {
		return math.NaN()
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// LargestDeviation returns by how much the largest and the smallest of shares differ, as a
// fraction of the largest. It is NaN without a positive share.
func LargestDeviation(shares []float64) float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, x := range shares {
		low, high = min(low, x), max(high, x)
	}
	if !(high > 0) {
		return math.NaN()
	}
	return (high - low) / high
}
