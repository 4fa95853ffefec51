package stats

import (
	"cmp"
	"math"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
)

// Interval is a two-sided confidence interval. Confidence is its coverage, which can be
// below the requested one in a small sample. The zero Interval is undefined.
type Interval struct {
	Low, High, Confidence float64
}

// Defined reports whether there is an interval.
func (i Interval) Defined() bool { return i.Confidence > 0 }

// Contains reports whether x is in the interval, including its bounds.
func (i Interval) Contains(x float64) bool { return i.Defined() && i.Low <= x && x <= i.High }

// MeanInterval returns Student's t interval of the mean. It needs two values.
func MeanInterval(xs []float64, confidence float64) (Interval, error) {
	if err := checkConfidence(confidence); err != nil {
		return Interval{}, err
	}
	s, err := Summarize(xs)
	if err = cmp.Or(checkSample(xs, 2), err); err != nil {
		return Interval{}, err
	}
	dist := moremath.TDist{V: min(float64(s.N-1), maxDF)}
	half := moremath.InvCDF(dist)((1+confidence)/2) * s.StdErr
	return Interval{s.Mean - half, s.Mean + half, confidence}, nil
}

// MedianInterval returns the interval of the median between two order statistics at equal
// distance from the ends. It makes no assumption about the distribution. Its coverage is
// exact and at least confidence, except where even the smallest and largest value have a
// lower one: below six values at 95 %. Interval.Confidence is the actual coverage. It
// needs two values.
func MedianInterval(xs []float64, confidence float64) (Interval, error) {
	if err := checkConfidence(confidence); err != nil {
		return Interval{}, err
	}
	if err := checkSample(xs, 2); err != nil {
		return Interval{}, err
	}
	sorted := slices.Sorted(slices.Values(xs))
	below := moremath.BinomialDist{N: len(xs), P: 0.5} // values below the true median
	coverage := func(k int) float64 { return 1 - 2*below.CDF(float64(k)) }
	k := 0
	for coverage(k+1) >= confidence {
		k++
	}
	return Interval{sorted[k], sorted[len(sorted)-1-k], coverage(k)}, nil
}

// Answer is the answer to a yes-no question.
type Answer string

// The answers.
const (
	Yes       Answer = "yes"
	No        Answer = "no"
	Undecided Answer = "undecided"
)

// Within answers whether a ratio is equivalent to 1 within margin, a fraction: Yes if the
// whole interval is in [1-margin, 1+margin], No if all of it is outside, Undecided if it
// includes a bound or is not defined. Yes with confidence 1-2α is the two one-sided tests
// procedure at level α (Schuirmann 1987), so an interval of 95 % decides at 2.5 %.
func Within(ratio Interval, margin float64) Answer {
	low, high := 1-math.Abs(margin), 1+math.Abs(margin)
	switch {
	case !ratio.Defined():
		return Undecided
	case low <= ratio.Low && ratio.High <= high:
		return Yes
	case ratio.High < low || high < ratio.Low:
		return No
	}
	return Undecided
}
