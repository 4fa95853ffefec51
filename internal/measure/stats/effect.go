package stats

import (
	"fmt"
	"math"
	"slices"
)

// Effect is the ratio of a side to its baseline, on the scale of natural logarithms.
type Effect struct {
	Log    float64 // mean of the logarithms of the blocks' ratios
	StdErr float64 // its standard error; NaN with fewer than two blocks
	DF     float64 // degrees of freedom of the t distribution
	N      int     // blocks: the shared ones if Paired, else those of the side that has fewer
	Paired bool
}

// Compare estimates the ratio of a to the baseline b. Each block counts once per side:
// see ByBlock.
//
// If the sides are interleaved and share a block, the effect is paired: the mean of the
// logarithms of the ratios within the shared blocks, with n-1 degrees of freedom. What
// disturbs both sides of a block cancels out. Otherwise it is the difference of the means
// of the logarithms, with the standard error and the degrees of freedom of Welch (1947).
//
// It fails with ErrTooFew if a side is empty, with ErrNotFinite if a value is not finite,
// and with ErrNotPositive if a value is not positive, because it has no logarithm.
func Compare(a, b []Observation, interleaved bool) (Effect, error) {
	if err := checkPositive(Values(a)); err != nil {
		return Effect{}, fmt.Errorf("compare: %w", err)
	}
	if err := checkPositive(Values(b)); err != nil {
		return Effect{}, fmt.Errorf("compare with baseline: %w", err)
	}
	a, b = ByBlock(a), ByBlock(b)
	if xs, ys := shared(a, b); interleaved && len(xs) > 0 {
		return pairedEffect(xs, ys)
	}
	return separateEffect(Values(a), Values(b))
}

// pairedEffect is the effect of xs over ys, which have equal lengths.
func pairedEffect(xs, ys []float64) (Effect, error) {
	ratios := make([]float64, len(xs))
	for i := range xs {
		ratios[i] = math.Log(xs[i]) - math.Log(ys[i])
	}
	m, err := momentsOf(ratios)
	return Effect{Log: m.Mean, StdErr: m.StdErr, DF: float64(m.N - 1), N: m.N, Paired: true}, err
}

// separateEffect is the effect of xs over ys, which were measured in other blocks.
func separateEffect(xs, ys []float64) (Effect, error) {
	a, err := momentsOf(logs(xs))
	if err != nil {
		return Effect{}, err
	}
	b, err := momentsOf(logs(ys))
	if err != nil {
		return Effect{}, err
	}
	e := Effect{Log: a.Mean - b.Mean, StdErr: math.Hypot(a.StdErr, b.StdErr), N: min(a.N, b.N)}
	if e.N > 1 {
		e.DF = welchDF(a, b)
	}
	return e, nil
}

// momentsOf returns the moments of xs. One value has no standard error: NaN.
func momentsOf(xs []float64) (Moments, error) {
	s, err := Summarize(xs)
	if s.N == 1 {
		s.StdErr = math.NaN()
	}
	return s.Moments, err
}

func checkPositive(xs []float64) error {
	if err := checkSample(xs, 1); err != nil {
		return err
	}
	if least := slices.Min(xs); least <= 0 {
		return fmt.Errorf("value %v: %w", least, ErrNotPositive)
	}
	return nil
}

// Ratio returns the ratio to the baseline: the geometric mean of the blocks' ratios.
func (e Effect) Ratio() float64 { return math.Exp(e.Log) }

// Testable reports whether there are enough blocks for a test, and a scatter to test
// against.
func (e Effect) Testable() bool { return e.N >= MinRepetitions && e.StdErr > 0 }

// P returns the two-sided p-value of the t test that the ratio is 1. It is NaN unless the
// effect is testable.
func (e Effect) P() float64 {
	if !e.Testable() {
		return math.NaN()
	}
	return tTail(e.Log/e.StdErr, e.DF)
}

// Interval returns the t interval of the ratio: it excludes 1 if and only if P is below
// 1-confidence. It is undefined unless the effect is testable.
func (e Effect) Interval(confidence float64) Interval {
	if !e.Testable() {
		return Interval{}
	}
	half := tCritical(1-confidence, e.DF) * e.StdErr
	return Interval{math.Exp(e.Log - half), math.Exp(e.Log + half), confidence}
}

// Detectable returns the smallest increase of the ratio above 1, as a fraction, that a
// test at level alpha finds with the probability power in runs with as many blocks and
// as much scatter as this one. A decrease of equal size on the logarithmic scale is as
// easy to find. It is NaN unless the effect is testable.
func (e Effect) Detectable(alpha, power float64) float64 {
	if !e.Testable() {
		return math.NaN()
	}
	return math.Expm1(noncentrality(alpha, power, e.DF) * e.StdErr)
}

// BlocksToDecide returns the number of blocks at which the verdict is expected to be
// known, if ratio and scatter stay as they are: tests at level alpha then find the
// difference in 80 % of runs (DefaultPower), or the interval lies within the margin, a
// fraction. It is 0 unless the effect is testable, and at most limit.
func (e Effect) BlocksToDecide(alpha, margin float64, limit int) int {
	if !e.Testable() {
		return 0
	}
	decided := func(n int) bool {
		stdErr, df := e.scaled(n)
		half := tCritical(alpha, df) * stdErr
		spare := tCritical(2*(1-DefaultPower), df) * stdErr // approximates the noncentral t well
		return math.Abs(e.Log) >= half+spare || math.Abs(e.Log)+half <= math.Log1p(margin)
	}
	return leastBlocks(decided, limit)
}

// BlocksFor returns the number of blocks at which the interval is expected to be as
// narrow as precision, a fraction: its upper bound is at most the ratio times
// 1+precision. It assumes that the scatter stays as it is. It is 0 unless the effect is
// testable, and at most limit.
func (e Effect) BlocksFor(precision, confidence float64, limit int) int {
	if !e.Testable() {
		return 0
	}
	return leastBlocks(func(n int) bool {
		stdErr, df := e.scaled(n)
		return tCritical(1-confidence, df)*stdErr <= math.Log1p(precision)
	}, limit)
}

// scaled returns the standard error and the degrees of freedom with n blocks.
func (e Effect) scaled(n int) (stdErr, df float64) {
	return e.StdErr * math.Sqrt(float64(e.N)/float64(n)), e.DF / float64(e.N-1) * float64(n-1)
}

// leastBlocks returns the least number of blocks that is enough, from MinRepetitions to
// limit.
func leastBlocks(enough func(n int) bool, limit int) int {
	low, high := MinRepetitions, max(limit, MinRepetitions)
	for low < high {
		if mid := (low + high) / 2; enough(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}
