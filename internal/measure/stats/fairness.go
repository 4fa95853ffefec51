package stats

import "math"

// Jain returns Jain's index of fairness of shares: 1 if all are equal, 1/n if one of n has
// everything. It is NaN without a positive share.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if !(squares > 0) {
		return math.NaN()
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// LargestDeviation returns by how much the largest and the smallest of shares differ, as a
// fraction of the largest. It is NaN without a positive share.
func LargestDeviation(shares []float64) float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, x := range shares {
		low, high = min(low, x), max(high, x)
	}
	if !(high > 0) {
		return math.NaN()
	}
	return (high - low) / high
}
