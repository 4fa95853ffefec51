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

// Verdict is what a comparison shows.
type Verdict string

// The verdicts on a side against its baseline. All but TooFew follow from the interval of
// the ratio alone.
const (
	Better  Verdict = "better" // the interval excludes 1
	Worse   Verdict = "worse"  // the interval excludes 1
	Equal   Verdict = "equal"  // the whole interval is within the margin of 1
	Unknown Verdict = "not known"
	TooFew  Verdict = "too few blocks" // or none of them varies
)

// Judge returns the interval of the ratio at the confidence of the family, and the
// verdict. It is Equal if the interval contains 1 and lies within the margin, a
// fraction.
func (e Effect) Judge(f Family, margin float64, higherIsBetter bool) (Interval, Verdict) {
	i := e.Interval(f.Confidence())
	switch {
	case !i.Defined():
		return i, TooFew
	case !i.Contains(1) && (e.Log > 0) == higherIsBetter:
		return i, Better
	case !i.Contains(1):
		return i, Worse
	case Within(i, margin) == Yes:
		return i, Equal
	}
	return i, Unknown
}

// Family is a set of comparisons that are judged together.
type Family struct {
	Tests int     // comparisons with a p-value
	Found int     // those that show a difference
	Level float64 // of each test; 1-Level is the confidence of each interval
}

// Confidence returns the confidence of the intervals of the family.
func (f Family) Confidence() float64 { return 1 - f.Level }

// Judge returns the family of the comparisons with the p-values ps, of which NaN do not
// count. Of the differences that it finds, a share of at most rate is expected to be
// false (Benjamini and Hochberg 1995). Its level is rate·Found/Tests, or rate/Tests when
// nothing is found: intervals with the confidence 1-Level have a false coverage rate of
// at most rate among the found ones (Benjamini and Yekutieli 2005), and exclude "no
// difference" exactly for them.
func Judge(ps []float64, rate float64) Family {
	sorted := slices.DeleteFunc(slices.Clone(ps), math.IsNaN)
	slices.Sort(sorted)
	f := Family{Tests: len(sorted), Level: rate}
	if f.Tests == 0 {
		return f
	}
	level := func(rank int) float64 { return rate * float64(rank) / float64(f.Tests) }
	for i, p := range sorted {
		if p <= level(i+1) {
			f.Found = i + 1
		}
	}
	f.Level = level(max(1, f.Found))
	return f
}
