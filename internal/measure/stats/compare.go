package stats

import (
	"errors"
	"fmt"
	"math"
)

// Options are the options of Compare.
type Options struct {
	HigherIsBetter bool    // throughput, not latency
	Interleaved    bool    // equal block numbers are the same pass over all configurations
	Confidence     float64 // of the interval of the ratio, such as DefaultConfidence
	Seed           uint64  // of the bootstrap
}

// Comparison is the comparison of a with the baseline b. Each block counts once per side,
// as the median of its values, so N in A and B is the number of blocks. Undefined numbers
// are NaN, which JSON cannot represent.
type Comparison struct {
	A, B           Summary
	Ratio          RatioEstimate // median of A over median of B
	Welch          Test
	MannWhitney    Test
	Detectable     float64 // see MinimumDetectable
	HigherIsBetter bool
	Warnings       []Warning // about the pair; Warnings(obs) returns those about a side
}

// Compare compares a with the baseline b. The ratio is BlockRatio if the sides are
// interleaved and share a block, else Ratio. It fails only if a side is empty, a value
// is not finite or the confidence is not in (0, 1); too few samples, no variance and no
// ratio are not errors.
func Compare(a, b []Observation, o Options) (Comparison, error) {
	if err := checkConfidence(o.Confidence); err != nil {
		return Comparison{}, err
	}
	a, summaryA, err := summarizeBlocks(a)
	if err != nil {
		return Comparison{}, fmt.Errorf("compare: %w", err)
	}
	b, summaryB, err := summarizeBlocks(b)
	if err != nil {
		return Comparison{}, fmt.Errorf("compare with baseline: %w", err)
	}
	c := Comparison{A: summaryA, B: summaryB, HigherIsBetter: o.HigherIsBetter}
	if c.MannWhitney, err = MannWhitney(Values(a), Values(b)); err != nil {
		return Comparison{}, err
	}
	// If Welch fails, the test is undefined, and the summaries show the reason: one
	// sample, or no variance.
	c.Welch, _ = Welch(c.A.Moments, c.B.Moments)
	c.Detectable = MinimumDetectable(c.A.Moments, c.B.Moments)
	err = c.addRatio(a, b, o)
	return c, err
}

// summarizeBlocks reduces obs to one value per block and summarizes them.
func summarizeBlocks(obs []Observation) ([]Observation, Summary, error) {
	if err := checkSample(Values(obs), 1); err != nil { // a median would hide NaN
		return nil, Summary{}, err
	}
	blocks := BlockMedians(obs)
	s, err := Summarize(Values(blocks))
	return blocks, s, err
}

// addRatio sets the ratio and the warnings about the pair.
func (c *Comparison) addRatio(a, b []Observation, o Options) error {
	warn := func(kind Kind, err error) { c.Warnings = append(c.Warnings, Warning{Kind: kind, Err: err}) }
	var err error
	if _, both := pairs(a, b); o.Interleaved && both > 0 {
		c.Ratio, err = BlockRatio(a, b, o.Confidence, o.Seed)
	} else {
		c.Ratio, err = Ratio(Values(a), Values(b), o.Confidence, o.Seed)
		warn(NotInterleaved, nil)
	}
	if errors.Is(err, ErrNotPositive) {
		warn(NoRatio, err)
		err = nil
	}
	if (c.A.Mean-c.B.Mean)*(c.A.Median-c.B.Median) < 0 {
		warn(Disagreement, nil)
	}
	if r := c.Ratio; r.Paired && r.Interval.Defined() && !r.Interval.Contains(1) && c.P() > 1-o.Confidence {
		warn(SharedNoise, nil)
	}
	return err
}

// P returns the deciding p-value: Welch's, or that of Mann-Whitney where Welch's test is
// not defined because nothing varies. Adjust the values of a table with Holm before
// calling Verdict.
func (c Comparison) P() float64 {
	if c.Welch.Defined() {
		return c.Welch.P
	}
	return c.MannWhitney.P
}

// Verdict is the result of a comparison.
type Verdict string

// The verdicts on a against its baseline.
const (
	Better           Verdict = "better"
	Worse            Verdict = "worse"
	NoDifferenceSeen Verdict = "no difference seen" // there may be a small one
	// Unclear means that the interval of the ratio excludes 1, but the test, which is
	// adjusted for its table and does not pair blocks, finds no difference.
	Unclear Verdict = "unclear"
	TooFew  Verdict = "too few samples" // to find a difference
)

// Verdict judges the comparison at level alpha by its p-value, adjusted for its table.
// The direction is that of the means, because the p-value is about the means. Without a
// difference, fewer than MinRepetitions are TooFew.
func (c Comparison) Verdict(adjustedP, alpha float64) Verdict {
	least := min(c.A.N, c.B.N)
	switch {
	case least < 2 || math.IsNaN(adjustedP):
		return TooFew
	case adjustedP > alpha && least < MinRepetitions:
		return TooFew
	case adjustedP > alpha && c.Ratio.Interval.Defined() && !c.Ratio.Interval.Contains(1):
		return Unclear
	case adjustedP > alpha:
		return NoDifferenceSeen
	case (c.A.Mean > c.B.Mean) == c.HigherIsBetter:
		return Better
	}
	return Worse
}
