package stats

import (
	"fmt"
	"math"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
)

const methodMannWhitney = "Mann-Whitney U"

// exactLimit is the largest total number of samples for which P is exact. Counting takes
// about a millisecond there.
const exactLimit = 40

// MannWhitney tests whether values of xs tend to be larger or smaller than those of ys
// (Mann and Whitney 1947). The statistic is U, the number of pairs in which xs is larger;
// ties count one half. For up to 40 samples in total P is exact, also with ties, else it
// is the normal approximation with tie and continuity correction. P is 1 when all values
// are equal. It fails with ErrTooFew when a side is empty.
//
// go-moremath is not used, because it miscounts some samples with ties, and doubles one
// tail although ties make the distribution asymmetric: its p can exceed 1.
func MannWhitney(xs, ys []float64) (Test, error) {
	for i, sample := range [][]float64{xs, ys} {
		if err := checkSample(sample, 1); err != nil {
			return undefined(methodMannWhitney), fmt.Errorf("sample %d of 2: %w", i+1, err)
		}
	}
	ranks, ties := doubledRanks(xs, ys)
	sum := 0
	for _, r := range ranks[:len(xs)] {
		sum += r
	}
	n, m := float64(len(xs)), float64(len(ys))
	test := Test{Statistic: float64(sum)/2 - n*(n+1)/2, Method: methodMannWhitney}
	if len(ranks) <= exactLimit {
		test.P = rankSumTail(ranks, len(xs), sum)
		return test, nil
	}
	test.Method += ", normal approximation"
	test.P = normalTail(math.Abs(test.Statistic-n*m/2), n*m/12*(n+m+1-ties/((n+m)*(n+m-1))))
	return test, nil
}

// doubledRanks returns twice the rank of every value of xs, then of ys, where ties share
// their mean rank, and Σ(t³-t) over the groups of t ties.
func doubledRanks(xs, ys []float64) (ranks []int, ties float64) {
	all := slices.Concat(xs, ys)
	sorted := slices.Sorted(slices.Values(all))
	ranks = make([]int, len(all))
	for i, x := range all {
		below, _ := slices.BinarySearch(sorted, x)
		upTo, _ := slices.BinarySearch(sorted, math.Nextafter(x, math.Inf(1)))
		ranks[i] = below + 1 + upTo
		t := float64(upTo - below)
		ties += t*t - 1 // for each of the t members of the group
	}
	return ranks, ties
}

// rankSumTail returns the probability that the sum of n of the ranks, drawn without
// replacement, is at least as far from its expectation as sum.
func rankSumTail(ranks []int, n, sum int) float64 {
	total := 0
	for _, r := range ranks {
		total += r
	}
	// ways[k][s] is the number of choices of k ranks with sum s.
	ways := make([][]float64, n+1)
	for k := range ways {
		ways[k] = make([]float64, total+1)
	}
	ways[0][0] = 1
	for _, r := range ranks {
		for k := n; k > 0; k-- {
			for s := r; s <= total; s++ {
				ways[k][s] += ways[k-1][s-r]
			}
		}
	}
	// Scaled by the number of ranks the expectation is an integer.
	distance := func(s int) int { return max(s*len(ranks)-n*total, n*total-s*len(ranks)) }
	far, all := 0.0, 0.0
	for s, w := range ways[n] {
		all += w
		if distance(s) >= distance(sum) {
			far += w
		}
	}
	return far / all
}

// normalTail returns P(|X| ≥ distance) for a statistic X on a grid of halves or
// wholes with mean 0 and the given variance, with continuity correction.
func normalTail(distance, variance float64) float64 {
	if variance <= 0 || distance <= 0.5 {
		return 1
	}
	return 2 * moremath.StdNormal.CDF(-(distance-0.5)/math.Sqrt(variance))
}
