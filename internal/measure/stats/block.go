package stats

import (
	"maps"
	"slices"
)

// Observation is one measured value and its block, one pass over all configurations.
// Values of a block share the state of the machine (and of the guest, if a block is a
// boot), so the block is the unit of replication.
type Observation struct {
	Block int
	Value float64
}

// Values returns the values of obs in their order.
func Values(obs []Observation) []float64 {
	xs := make([]float64, len(obs))
	for i, o := range obs {
		xs[i] = o.Value
	}
	return xs
}

// BlockMedians returns one observation per block, the median of its values, in the order
// of the blocks. Values of one block are not independent; counting them as independent
// would overstate the certainty of differences.
func BlockMedians(obs []Observation) []Observation {
	byBlock := map[int][]float64{}
	for _, o := range obs {
		byBlock[o.Block] = append(byBlock[o.Block], o.Value)
	}
	medians := make([]Observation, 0, len(byBlock))
	for _, block := range slices.Sorted(maps.Keys(byBlock)) {
		medians = append(medians, Observation{block, median(byBlock[block])})
	}
	return medians
}

// pair is the values of two sides in one block; either may be missing.
type pair struct {
	a, b       float64
	hasA, hasB bool
}

// pairs joins the block medians of two sides, in the order of the blocks, and counts the
// blocks with both.
func pairs(a, b []Observation) (joined []pair, both int) {
	byBlock := map[int]pair{}
	for _, o := range a {
		byBlock[o.Block] = pair{a: o.Value, hasA: true}
	}
	for _, o := range b {
		p := byBlock[o.Block]
		if p.hasA {
			both++
		}
		p.b, p.hasB = o.Value, true
		byBlock[o.Block] = p
	}
	for _, block := range slices.Sorted(maps.Keys(byBlock)) {
		joined = append(joined, byBlock[block])
	}
	return joined, both
}
