package stats

import (
	"fmt"
	"math"
	"slices"
)

// MinRuns is the least number of runs that are combined.
const MinRuns = 2

// Combined is the effect over several runs of one experiment, by a random-effects model: each run has a ratio of its own,
// because what its boot draws once, such as the placement of memory, is in all of its blocks.
type Combined struct {
	Runs   int
	Log    float64 // mean of the logarithms of the runs' ratios
	StdErr float64 // its standard error, between and within runs
	Tau    float64 // standard deviation between runs, on the scale of logarithms (Paule and Mandel 1982)
	Within float64 // standard error of one run: the root of the mean of their squares
	Q      float64 // Cochran's: about Runs-1 if the runs do not differ
}

// Combine returns the effect over the runs of effects. It needs two that are testable. The interval and the test
// are those of Hartung and Knapp (2001), at least as wide as without their factor.
func Combine(effects []Effect) (Combined, error) {
	tested := slices.DeleteFunc(slices.Clone(effects), func(e Effect) bool { return !e.Testable() })
	if len(tested) < MinRuns {
		return Combined{}, fmt.Errorf("%w: %d of %d runs have an interval, at least %d needed", ErrTooFew, len(tested), len(effects), MinRuns)
	}
	c := Combined{Runs: len(tested)}
	for _, e := range tested {
		c.Within += e.StdErr * e.StdErr / float64(c.Runs)
	}
	c.Within = math.Sqrt(c.Within)
	_, _, c.Q = weighted(tested, 0)
	variance := between(tested)
	c.Tau = math.Sqrt(variance)
	c.Log, c.StdErr, _ = weighted(tested, variance)
	return c, nil
}

// weighted returns the mean of the logarithms with the variance between runs that is given, its standard error, and the
// weighted sum of squares around it.
func weighted(effects []Effect, between float64) (mean, stdErr, squares float64) {
	weights := 0.0
	for _, e := range effects {
		w := 1 / (e.StdErr*e.StdErr + between)
		weights += w
		mean += w * e.Log
	}
	mean /= weights
	for _, e := range effects {
		squares += (e.Log - mean) * (e.Log - mean) / (e.StdErr*e.StdErr + between)
	}
	return mean, math.Sqrt(1 / weights), squares
}

// between returns the variance between runs with which the weighted sum of squares is what it is expected to be, one less
// than the number of runs; 0 if it is less without any.
func between(effects []Effect) float64 {
	want := float64(len(effects) - 1)
	sum := func(variance float64) float64 { _, _, squares := weighted(effects, variance); return squares }
	if sum(0) <= want {
		return 0
	}
	high := 1.0
	for sum(high) > want {
		high *= 2
	}
	for low := 0.0; high-low > 1e-15*high; {
		mid := (low + high) / 2
		if mid == low || mid == high {
			break
		}
		if sum(mid) > want {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// Ratio returns the ratio to the baseline over the runs.
func (c Combined) Ratio() float64 { return math.Exp(c.Log) }

// I2 returns the share of the variance of the runs' ratios that is between runs (Higgins and Thompson 2002).
func (c Combined) I2() float64 {
	if c.Q <= float64(c.Runs-1) {
		return 0
	}
	return 1 - float64(c.Runs-1)/c.Q
}

// P returns the two-sided p-value of the test that the ratio over runs is 1.
func (c Combined) P() float64 { return tTail(c.Log/c.StdErr, float64(c.Runs-1)) }

// Interval returns the interval of the mean over runs.
func (c Combined) Interval(confidence float64) Interval { return c.around(c.StdErr, confidence) }

// NextRun returns the interval in which a further run reports its ratio: it has the scatter between and within runs
// (Higgins, Thompson and Spiegelhalter 2009).
func (c Combined) NextRun(confidence float64) Interval {
	return c.around(math.Sqrt(c.StdErr*c.StdErr+c.Tau*c.Tau+c.Within*c.Within), confidence)
}

func (c Combined) around(stdErr, confidence float64) Interval {
	half := tCritical(1-confidence, float64(c.Runs-1)) * stdErr
	return Interval{math.Exp(c.Log - half), math.Exp(c.Log + half), confidence}
}
