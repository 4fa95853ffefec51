package stats

import (
	"maps"
	"math"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
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

// ByBlock returns one observation per block, in the order of the blocks: the geometric
// mean of its values, or their mean if one is not positive. Values of one block are not
// independent; counting them as independent would overstate the certainty of differences.
func ByBlock(obs []Observation) []Observation {
	values := map[int][]float64{}
	for _, o := range obs {
		values[o.Block] = append(values[o.Block], o.Value)
	}
	blocks := make([]Observation, 0, len(values))
	for _, block := range slices.Sorted(maps.Keys(values)) {
		blocks = append(blocks, Observation{block, center(values[block])})
	}
	return blocks
}

// center returns the geometric mean of xs, or the mean if a value is not positive. It is
// exact for equal values.
func center(xs []float64) float64 {
	if slices.Min(xs) == slices.Max(xs) {
		return xs[0]
	}
	if slices.Min(xs) <= 0 {
		return moremath.Mean(xs)
	}
	return math.Exp(moremath.Mean(logs(xs)))
}

// logs returns the natural logarithms of xs.
func logs(xs []float64) []float64 {
	ls := make([]float64, len(xs))
	for i, x := range xs {
		ls[i] = math.Log(x)
	}
	return ls
}

// shared returns the values of the blocks that both sides have, in the order of the
// blocks. Each side has at most one value per block.
func shared(a, b []Observation) (xs, ys []float64) {
	of := map[int]float64{}
	for _, o := range b {
		of[o.Block] = o.Value
	}
	for _, o := range a {
		if y, both := of[o.Block]; both {
			xs, ys = append(xs, o.Value), append(ys, y)
		}
	}
	return xs, ys
}
