package bound

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// knapsack finds the heaviest items that fit on a VM together in all dimensions, by depth-first
// branch and bound: items that are heavy for their size first, as many as fit first. The
// bound is Dantzig's for the surrogate problem with one dimension, a combination of all
// (Martello and Toth, Knapsack Problems, §3.2.1; for the surrogate, Caprara and Toth 2001, §2).
// Arithmetic is in integers; sizes are rounded down and room up, so that bounds hold.
type knapsack struct {
	candidates []*candidate
	full       extent
	shares     shares
	nodes      int // left
	taken      []int64

	best    int64   // weight of pattern
	pattern []int64 // how many of each demand
	open    int64   // upper bound of what was not searched

	keep    int       // number of earlier patterns to keep
	earlier [][]int64 // the last ones before pattern, in the order found
}

type candidate struct {
	demand  int
	size    extent
	parts   extent  // its size in each dimension of the surrogate
	most    int64   // number that fits
	weight  int64   // of one, at most maxWeight
	scalar  int64   // its size in the surrogate, of which a VM has resolution
	density float64 // about weight/scalar
}

// shares are the weights of the dimensions in the surrogate. They sum to 8.
type shares [dimensions]int64

// surrogates are the shares to try.
var surrogates = []shares{
	{8, 0, 0}, {7, 1, 0}, {6, 2, 0}, {5, 3, 0}, {4, 4, 0}, {3, 5, 0}, {2, 6, 0}, {1, 7, 0}, {0, 8, 0},
	{0, 0, 8}, {2, 2, 4}, {4, 0, 4}, {0, 4, 4}, {3, 3, 2},
}

// resolution is the size of a VM in each dimension of the surrogate.
const resolution = 1 << 24

// newKnapsack prepares to fill a VM of a size with at most so many nodes. It takes the
// surrogate with the lowest bound at the root.
func newKnapsack(demands []demand, weights []int64, full extent, nodes int) *knapsack {
	k := &knapsack{full: full, nodes: nodes, pattern: make([]int64, len(demands))}
	for i, d := range demands {
		if n := d.copies(full); n > 0 && weights[i] > 0 {
			k.candidates = append(k.candidates, &candidate{demand: i, size: d.size, parts: k.parts(d.size), most: n, weight: weights[i]})
		}
	}
	k.taken = make([]int64, len(k.candidates))
	counted := slices.ContainsFunc(k.candidates, func(g *candidate) bool { return g.size[podExtent] > 0 })
	best, least := shares{}, int64(-1)
	for _, s := range surrogates {
		if s[podExtent] > 0 && !counted {
			continue
		}
		k.mix(s)
		if bound := k.bound(0, full); least < 0 || bound < least {
			best, least = s, bound
		}
	}
	k.mix(best)
	return k
}

// mix sets the surrogate, and sorts the candidates for it.
func (k *knapsack) mix(s shares) {
	k.shares = s
	for _, g := range k.candidates {
		g.scalar = k.mixed(g.parts)
		g.density = float64(g.weight) / float64(g.scalar)
	}
	slices.SortFunc(k.candidates, func(a, b *candidate) int {
		if d := b.density - a.density; math.Abs(d) > 1e-9*b.density {
			return cmp.Compare(d, 0)
		}
		if c := compareProducts(b.weight, a.scalar, a.weight, b.scalar); c != 0 {
			return c
		}
		return a.demand - b.demand
	})
}

// parts returns the size of e in each dimension of the surrogate, rounded down, so that it is
// superadditive.
func (k *knapsack) parts(e extent) (parts extent) {
	for d, full := range k.full {
		if full > 0 {
			parts[d] = proportion(e[d], resolution, full)
		}
	}
	return parts
}

// mixed returns the size in the surrogate of what has these parts.
func (k *knapsack) mixed(parts extent) (sum int64) {
	for d, share := range k.shares {
		sum += share * parts[d]
	}
	return sum
}

// solve searches until the best is proved or no nodes are left.
func (k *knapsack) solve() { k.search(0, k.full, 0, k.bound(0, k.full)) }

// search tries all numbers of the i-th candidate and those after it in the remaining room. The
// total weight is at most ceiling.
func (k *knapsack) search(i int, room extent, weight, ceiling int64) {
	if weight > k.best {
		k.keepPattern()
		k.best = weight
		clear(k.pattern)
		for j, g := range k.candidates[:i] {
			k.pattern[g.demand] = k.taken[j]
		}
	}
	for i < len(k.candidates) && !k.candidates[i].size.fits(room) {
		k.taken[i] = 0
		i++
	}
	if i == len(k.candidates) {
		return
	}
	g := k.candidates[i]
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

func (k *knapsack) keepPattern() {
	if k.keep == 0 {
		return
	}
	if len(k.earlier) == k.keep {
		k.earlier = slices.Delete(k.earlier, 0, 1)
	}
	k.earlier = append(k.earlier, slices.Clone(k.pattern))
}

// bound returns an upper bound of the weight of candidates from the i-th on in room: those that
// fit, the heaviest for their scalar size first, the last in part.
func (k *knapsack) bound(i int, room extent) int64 {
	sum, left := int64(0), k.mixed(k.parts(room))
	for _, g := range k.candidates[i:] {
		switch scalar := g.most * g.scalar; {
		case !g.size.fits(room):
		case scalar > left:
			return sum + proportion(g.weight, left, g.scalar)
		default:
			sum += g.most * g.weight
			left -= scalar
		}
	}
	return sum
}

func (e extent) without(size extent, n int64) extent {
	for d := range e {
		e[d] -= n * size[d]
	}
	return e
}

// proportion returns ⌊a·b/of⌋, which must be less than 2⁶³. No argument is negative.
func proportion(a, b, of int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	quotient, _ := bits.Div64(high, low, uint64(of))
	return int64(quotient)
}

// compareProducts compares a·b with c·d. No argument is negative.
func compareProducts(a, b, c, d int64) int {
	high, low := bits.Mul64(uint64(a), uint64(b))
	otherHigh, otherLow := bits.Mul64(uint64(c), uint64(d))
	return cmp.Or(cmp.Compare(high, otherHigh), cmp.Compare(low, otherLow))
}
