package stats

import (
	"math"
	"slices"
)

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
