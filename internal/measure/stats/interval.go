package stats

import (
	"cmp"
	"math"
	"slices"
)

// Interval is a two-sided confidence interval. The zero Interval is undefined.
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
	half := tCritical(1-confidence, float64(s.N-1)) * s.StdErr
	return Interval{s.Mean - half, s.Mean + half, confidence}, nil
}

// CenterInterval returns Student's t interval of the geometric mean of xs, computed on the
// logarithms, or of the mean if a value is not positive. It fails with ErrTooFew for fewer
// than MinRepetitions values.
func CenterInterval(xs []float64, confidence float64) (Interval, error) {
	if err := checkSample(xs, MinRepetitions); err != nil {
		return Interval{}, err
	}
	if slices.Min(xs) <= 0 {
		return MeanInterval(xs, confidence)
	}
	i, err := MeanInterval(logs(xs), confidence)
	if err != nil {
		return Interval{}, err
	}
	return Interval{math.Exp(i.Low), math.Exp(i.High), confidence}, nil
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
// whole interval is in [1/(1+margin), 1+margin], No if all of it is outside, Undecided if
// it includes a bound or is not defined. The range is symmetric on the logarithmic scale,
// so the reverse ratio has the same answer. Yes with confidence 1-2α is the two one-sided
// tests procedure at level α (Schuirmann 1987), so an interval of 95 % decides at 2.5 %.
func Within(ratio Interval, margin float64) Answer {
	low, high := 1/(1+margin), 1+margin
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
