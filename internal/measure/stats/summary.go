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
