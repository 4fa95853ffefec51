package stats

import (
	"cmp"
	"math"
	"slices"
)

// Holm returns the p-values of a family of tests adjusted by Holm's step-down procedure
// (Holm 1979), in the order of ps. Rejecting at adjusted values of at most α limits the
// probability of any false rejection to α. NaN, an undefined test, stays NaN and does not
// count for the family.
func Holm(ps []float64) []float64 {
	adjusted := slices.Clone(ps)
	var order []int // of the defined tests, smallest p first
	for i, p := range ps {
		if !math.IsNaN(p) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(ps[i], ps[j]) })
	largest := 0.0
	for rank, i := range order {
		largest = max(largest, min(1, float64(len(order)-rank)*ps[i]))
		adjusted[i] = largest
	}
	return adjusted
}
