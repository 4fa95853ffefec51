package stats

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
