package stats

import (
	"fmt"
	"math"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
)

// Moments are the number of samples, their mean and its standard error, which
// publications print and Welch's test needs.
type Moments struct {
	N      int
	Mean   float64
	StdErr float64 // standard error of the mean, s/√n
}

// RelStdErr returns the standard error as a fraction of the mean. It is not finite when
// the mean is 0.
func (m Moments) RelStdErr() float64 { return m.StdErr / math.Abs(m.Mean) }

// RelativeChange returns the change of the mean from base as a fraction of base, ΔL in
// FitzGerald 2014. It is not finite when the mean of base is 0.
func (m Moments) RelativeChange(base Moments) float64 { return (m.Mean - base.Mean) / base.Mean }

// Summary describes one sample in the unit of its values. StdDev is the
// standard deviation with n-1; it and StdErr are 0 when there is one value.
type Summary struct {
	Moments
	Center float64 // geometric mean, or the mean if a value is not positive
	Median float64
	StdDev float64
	Min    float64
	Max    float64
}

// CV returns the coefficient of variation, the standard deviation as a fraction of the
// mean. It is not finite when the mean is 0.
func (s Summary) CV() float64 { return s.StdDev / math.Abs(s.Mean) }

// Summarize describes xs. It fails with ErrTooFew when xs is empty, and with ErrNotFinite
// when a value or a result is not finite.
func Summarize(xs []float64) (Summary, error) {
	if err := checkSample(xs, 1); err != nil {
		return Summary{}, err
	}
	s := Summary{
		Moments: Moments{N: len(xs), Mean: xs[0]},
		Center:  center(xs),
		Median:  median(slices.Clone(xs)),
		Min:     slices.Min(xs),
		Max:     slices.Max(xs),
	}
	if s.Min < s.Max { // else rounding would invent a variance
		s.Mean, s.StdDev = moremath.Mean(xs), moremath.StdDev(xs)
		s.StdErr = s.StdDev / math.Sqrt(float64(s.N))
	}
	if !finite(s.Mean) || !finite(s.StdDev) || !finite(s.Median) {
		return Summary{}, fmt.Errorf("samples between %v and %v overflow: %w", s.Min, s.Max, ErrNotFinite)
	}
	return s, nil
}

// Quantiles returns the quantiles ps of the distribution of xs, interpolated between
// values (Hyndman and Fan 1996, definition 8). A quantile that xs does not resolve, such
// as the 99th percentile of few values, is the smallest or the largest value. It fails as
// Summarize does.
func Quantiles(xs []float64, ps ...float64) ([]float64, error) {
	if err := checkSample(xs, 1); err != nil {
		return nil, err
	}
	sample := moremath.Sample{Xs: slices.Sorted(slices.Values(xs)), Sorted: true}
	qs := make([]float64, len(ps))
	for i, p := range ps {
		qs[i] = sample.Quantile(p)
	}
	return qs, nil
}

// median returns the median of xs, which must not be empty. It sorts xs.
func median(xs []float64) float64 {
	slices.Sort(xs)
	mid := len(xs) / 2
	if len(xs)%2 == 1 {
		return xs[mid]
	}
	return xs[mid-1] + (xs[mid]-xs[mid-1])/2
}

// PMeaning is the meaning of Welch's P. It is not the probability that the means are
// equal.
const PMeaning = "the probability, if the two had the same mean, of a difference at least as large as the observed one"

// Test is the result of Welch's two-sided test. P is the probability, if the means did not
// differ, of a statistic at least as far from 0 as the observed one. If the test is
// undefined, P and Statistic are NaN.
type Test struct {
	Statistic float64
	DF        float64 // degrees of freedom
	P         float64
}

// Welch tests whether two means differ, without assuming equal variances (Welch 1947). A
// positive statistic means that a is larger. It fails with ErrTooFew unless both have two
// samples, and with ErrNoVariance when both standard errors are 0.
func Welch(a, b Moments) (Test, error) {
	t, df, err := welch(a, b)
	if err != nil {
		return undefined, err
	}
	return Test{t, df, tTail(t, df)}, nil
}

// WelchTruncated is Welch with the degrees of freedom truncated to an integer, as for
// printed tables of the t distribution. It gives the p-values of FitzGerald 2014 (A
// Comparative Analysis of Nested Virtualization in x86_64 and S390x Hypervisors, §3.1),
// with n = 6.
func WelchTruncated(a, b Moments) (Test, error) {
	t, df, err := welch(a, b)
	if err != nil {
		return undefined, err
	}
	df = math.Floor(df + 1e-9) // a df of 10 can be computed as 9.999…
	return Test{t, df, tTail(t, df)}, nil
}

var undefined = Test{Statistic: math.NaN(), P: math.NaN()}

// welch returns the statistic and the degrees of freedom of Welch and
// Satterthwaite.
func welch(a, b Moments) (t, df float64, err error) {
	for _, m := range []Moments{a, b} {
		if m.N < 2 {
			return 0, 0, fmt.Errorf("%w: %d given, at least 2 needed on each side", ErrTooFew, m.N)
		}
		if !finite(m.Mean) || !finite(m.StdErr) || m.StdErr < 0 {
			return 0, 0, fmt.Errorf("mean %v with standard error %v: %w", m.Mean, m.StdErr, ErrNotFinite)
		}
	}
	se := math.Hypot(a.StdErr, b.StdErr)
	if se == 0 {
		return 0, 0, fmt.Errorf("means %v and %v: %w", a.Mean, b.Mean, ErrNoVariance)
	}
	return (a.Mean - b.Mean) / se, welchDF(a, b), nil
}

// welchDF returns the degrees of freedom of Welch and Satterthwaite. Both sides have at
// least two values.
func welchDF(a, b Moments) float64 {
	se := math.Hypot(a.StdErr, b.StdErr)
	wa, wb := math.Pow(a.StdErr/se, 2), math.Pow(b.StdErr/se, 2)
	return 1 / (wa*wa/float64(a.N-1) + wb*wb/float64(b.N-1))
}

// MinimumDetectable returns the difference of the means that Welch's test at 5 % finds with
// a probability of 80 % in samples with the standard errors of a and b. It fails as Welch
// does.
func MinimumDetectable(a, b Moments) (float64, error) {
	_, df, err := welch(a, b)
	if err != nil {
		return math.NaN(), err
	}
	return noncentrality(DefaultAlpha, DefaultPower, df) * math.Hypot(a.StdErr, b.StdErr), nil
}
