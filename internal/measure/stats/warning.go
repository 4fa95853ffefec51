package stats

import (
	"cmp"
	"math"
	"slices"
)

// Kind is the kind of a warning.
type Kind string

// The kinds of warnings: first those about one sample, then those about a pair. Comments
// name the fields of Warning that are set.
const (
	Unusable       Kind = "unusable"        // Err: no value, or one that is not finite
	FewRepetitions Kind = "few-repetitions" // N blocks are fewer than MinRepetitions
	Repeated       Kind = "repeated"        // N values in Of blocks; those of a block count as one
	NoVariance     Kind = "no-variance"     // all N values are Value
	Noisy          Kind = "noisy"           // Value, the coefficient of variation, is above NoisyCV
	Outliers       Kind = "outliers"        // N of Of values are beyond OutlierMADs
	Drift          Kind = "drift"           // a trend over N blocks; Value is its p

	NoRatio Kind = "no-ratio" // Err: a ratio needs positive values
)

// Warning is a reason to trust a result less. Package report words it.
type Warning struct {
	Kind  Kind
	N, Of int
	Value float64
	Err   error
}

// Thresholds of the warnings.
const (
	// NoisyCV is the coefficient of variation above which a sample is noisy.
	NoisyCV = 0.10
	// OutlierMADs is the distance from the median, in median absolute deviations scaled
	// to the standard deviation of a normal distribution, beyond which a value is an
	// outlier. The usual 3.5 would flag 15 % of undisturbed samples of six, because their
	// MAD is imprecise; this flags 3 %.
	OutlierMADs = 7.0
	// DriftAlpha is the level of the trend test. It is strict because a report tests
	// hundreds of samples; six values have to rise or fall without exception.
	DriftAlpha = 0.01
)

// Warnings returns the warnings about one sample.
func Warnings(obs []Observation) (warnings []Warning) {
	values := Values(obs)
	s, err := Summarize(values)
	if err != nil {
		return []Warning{{Kind: Unusable, Err: err}}
	}
	xs := Values(ByBlock(obs))
	warn := func(yes bool, w Warning) {
		if yes {
			warnings = append(warnings, w)
		}
	}
	n, p, far := len(xs), trendP(xs), outliers(values)
	warn(n < MinRepetitions, Warning{Kind: FewRepetitions, N: n})
	warn(s.N > n, Warning{Kind: Repeated, N: s.N, Of: n})
	warn(s.N > 1 && s.StdDev == 0, Warning{Kind: NoVariance, N: s.N, Value: s.Mean})
	warn(s.CV() > NoisyCV && !math.IsInf(s.CV(), 1), Warning{Kind: Noisy, Value: s.CV()})
	warn(far > 0, Warning{Kind: Outliers, N: far, Of: s.N})
	warn(p < DriftAlpha, Warning{Kind: Drift, N: n, Value: p})
	return warnings
}

// outliers counts the values of xs beyond OutlierMADs. It returns 0 for fewer than
// MinRepetitions, and when more than half of the values are equal, so that the MAD is 0.
func outliers(xs []float64) int {
	const toStdDev = 1.4826 // of the MAD of a normal distribution
	if len(xs) < MinRepetitions {
		return 0
	}
	center := median(slices.Clone(xs))
	distances := make([]float64, len(xs))
	for i, x := range xs {
		distances[i] = math.Abs(x - center)
	}
	limit := OutlierMADs * toStdDev * median(distances)
	count := 0
	for _, d := range distances {
		if limit > 0 && d > limit {
			count++
		}
	}
	return count
}

// trendP returns the p-value of the Mann-Kendall test for a monotonic trend of xs, by its
// normal approximation with tie and continuity correction. Without a trend to test it
// is 1.
func trendP(xs []float64) float64 {
	rises := 0.0
	tied := map[float64]float64{}
	for i, x := range xs {
		tied[x]++
		for _, y := range xs[i+1:] {
			rises += float64(cmp.Compare(y, x))
		}
	}
	weight := func(n float64) float64 { return n * (n - 1) * (2*n + 5) / 18 }
	variance := weight(float64(len(xs)))
	for _, t := range tied {
		variance -= weight(t)
	}
	if variance == 0 {
		return 1
	}
	const step = 2 // of Kendall's S
	z := max(0, math.Abs(rises)-step/2) / math.Sqrt(variance)
	return min(1, 2*normalCDF(-z))
}
