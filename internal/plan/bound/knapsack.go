package bound

import (
	"math/bits"
	"slices"
)

// knapsack finds the heaviest items that fit into a VM together, in all dimensions,
// by depth-first branch and bound: heavy for their size first, as many as fit first.
// The bound is Dantzig's for the surrogate with one dimension, a mixture of all
// (Martello and Toth, Knapsack Problems, §3.2.1; for the surrogate, Caprara and Toth
// 2001, §2). All arithmetic is in whole numbers, and sizes are rounded down and room
// up, so that bounds are bounds.
type knapsack struct {
	goods  []good
	full   extent
	shares shares
	nodes  int // left
	taken  []int64

	best    int64   // weight of pattern
	pattern []int64 // how many of each demand
	open    int64   // what was not looked at may weigh that much
}

// good is a demand that is worth to be taken.
type good struct {
	demand int
	size   extent
	most   int64 // that can be taken
	weight int64 // of one, at most heaviest
	bulk   int64 // its size in the surrogate, in grains
}

// shares are how much each dimension counts in the surrogate, 8 in all.
type shares [dimensions]int64

// surrogates are those that are tried.
var surrogates = []shares{
	{8, 0, 0}, {7, 1, 0}, {6, 2, 0}, {5, 3, 0}, {4, 4, 0}, {3, 5, 0}, {2, 6, 0}, {1, 7, 0}, {0, 8, 0},
	{0, 0, 8}, {2, 2, 4}, {4, 0, 4}, {0, 4, 4}, {3, 3, 2},
}

// grains is how many grains a VM has in each dimension.
const grains = 1 << 24

// newKnapsack prepares to fill a VM of a size, with at most so many nodes. It takes
// the surrogate that has the lowest bound at the root.
func newKnapsack(demands []demand, weights []int64, full extent, nodes int) *knapsack {
	k := &knapsack{full: full, nodes: nodes, pattern: make([]int64, len(demands))}
	for i, d := range demands {
		if n := d.copies(full); n > 0 && weights[i] > 0 {
			k.goods = append(k.goods, good{demand: i, size: d.size, most: n, weight: weights[i]})
		}
	}
	k.taken = make([]int64, len(k.goods))
	best, least := shares{}, int64(-1)
	for _, s := range surrogates {
		k.mix(s)
		if bound := k.bound(0, full); least < 0 || bound < least {
			best, least = s, bound
		}
	}
	k.mix(best)
	return k
}

// mix sets the surrogate and puts goods in its order.
func (k *knapsack) mix(s shares) {
	k.shares = s
	for i := range k.goods {
		k.goods[i].bulk = k.bulk(k.goods[i].size)
	}
	slices.SortFunc(k.goods, func(a, b good) int {
		if c := compareProducts(b.weight, a.bulk, a.weight, b.bulk); c != 0 {
			return c
		}
		return a.demand - b.demand
	})
}

// bulk returns the size of e in the surrogate, rounded down in each dimension: sums of
// it are never more than that of the sum.
func (k *knapsack) bulk(e extent) int64 {
	sum := int64(0)
	for d, share := range k.shares {
		if share > 0 && k.full[d] > 0 {
			sum += share * proportion(e[d], grains, k.full[d])
		}
	}
	return sum
}

// solve searches until the best is proved or there are no nodes left.
func (k *knapsack) solve() { k.search(0, k.full, 0, k.bound(0, k.full)) }

// search tries all numbers of the i-th good and those after it in what room is left.
// What it can come to in all is at most ceiling.
func (k *knapsack) search(i int, room extent, weight, ceiling int64) {
	if weight > k.best {
		k.best = weight
		clear(k.pattern)
		for j, g := range k.goods[:i] {
			k.pattern[g.demand] = k.taken[j]
		}
	}
	for i < len(k.goods) && !k.goods[i].size.fits(room) {
		k.taken[i] = 0
		i++
	}
	if i == len(k.goods) {
		return
	}
	g := k.goods[i]
	for n := (demand{g.size, g.most}).copies(room); n >= 0; n-- {
		if k.nodes == 0 {
			k.open = max(k.open, ceiling)
			return
		}
		k.nodes--
		rest, reached := room.without(g.size, n), weight+n*g.weight
		if bound := reached + k.bound(i+1, rest); bound > k.best {
			k.taken[i] = n
			k.search(i+1, rest, reached, bound)
		}
	}
}

// bound returns what the goods from the i-th on can weigh at most in room: those that
// fit at all, the heaviest for their bulk first, the last in part.
func (k *knapsack) bound(i int, room extent) int64 {
	sum, left := int64(0), k.bulk(room)
	for _, g := range k.goods[i:] {
		switch bulk := g.most * g.bulk; {
		case !g.size.fits(room):
		case bulk > left:
			return sum + proportion(g.weight, left, g.bulk)
		default:
			sum += g.most * g.weight
			left -= bulk
		}
	}
	return sum
}

// without returns e without n of size.
func (e extent) without(size extent, n int64) extent {
	for d := range e {
		e[d] -= n * size[d]
	}
	return e
}

// proportion returns ⌊a·b/of⌋, which must be less than 2⁶³; nothing is negative.
func proportion(a, b, of int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	quotient, _ := bits.Div64(high, low, uint64(of))
	return int64(quotient)
}

// compareProducts compares a·b with c·d, none of which is negative.
func compareProducts(a, b, c, d int64) int {
	high, low := bits.Mul64(uint64(a), uint64(b))
	otherHigh, otherLow := bits.Mul64(uint64(c), uint64(d))
	switch {
	case high < otherHigh || high == otherHigh && low < otherLow:
		return -1
	case high == otherHigh && low == otherLow:
		return 0
	}
	return 1
}
