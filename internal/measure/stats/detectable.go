package stats

import "math"

// MinimumDetectable returns the smallest difference of the means, as a fraction of the
// mean of b, that a test at 5 % finds in samples like a and b with a power of about 80 %.
// It is Lehr's rule n = 16 (σ/δ)² per side, that is δ = 4σ/√n, with both standard errors
// instead of one σ/√n: δ = √8·√(SE_a²+SE_b²). The rule is for large n; at n = 6 the power
// is about 70 %. It is NaN when a side has fewer than two samples or the mean of b is 0.
func MinimumDetectable(a, b Moments) float64 {
	if a.N < 2 || b.N < 2 || b.Mean == 0 {
		return math.NaN()
	}
	return math.Sqrt(8) * math.Hypot(a.StdErr, b.StdErr) / math.Abs(b.Mean)
}
