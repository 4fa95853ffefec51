package bound

import (
	"cmp"
	"math"
	"math/big"
	"slices"
)

// inequality holds for every plan: f of the sizes of items in a dimension is their weight, all
// items weigh total, and the items on a VM of the m-th offer weigh at most most[m].
type inequality struct {
	dimension int
	f         func(int64) int64 // nil: the weights are no function of a size
	total     int64
	most      []int64
}

// combine returns the best bound from any combination of inequalities: the optimum of
// min Σ price(m)·x(m) subject to Σ most(m)·x(m) ≥ total for each of them. It solves the dual,
// with a row for each offer and a column for each inequality. The floating-point solution
// only gives the weights of Farley's bound. combine also returns the price of each item in
// that solution, in units of the highest price, without what inequalities with no f add.
func (p *relaxation) combine(from []inequality) (int64, []float64) {
	each := make([]float64, len(p.demands))
	highestPrice := float64(p.highestPrice())
	if highestPrice == 0 {
		return 0, each
	}
	prices := make([]float64, len(p.offers))
	slack := make([]column, len(p.offers))
	for m, o := range p.offers {
		prices[m] = float64(o.price) / highestPrice
		slack[m] = column{entries: []entry{{m, 1}}}
	}
	lp := newSimplex(prices, slack)
	for _, q := range from {
		lp.add(q.column())
	}
	lp.solve(200 * (len(p.offers) + 1))

	sum := newCombination(len(p.offers))
	for row, j := range lp.basis {
		if j < len(slack) || lp.x[row] <= 0 {
			continue
		}
		q := from[j-len(slack)]
		sum.add(q, lp.x[row]/-lp.value())
		for i, d := range p.demands {
			if q.f == nil {
				break
			}
			each[i] += lp.x[row] * float64(q.f(d.size[q.dimension])) / float64(q.total)
		}
	}
	return p.farley(sum.total, sum.most), each
}

// combination is an exact weighted sum of inequalities.
type combination struct {
	total *big.Int
	most  []*big.Int
}

func newCombination(offers int) *combination {
	s := &combination{total: new(big.Int), most: make([]*big.Int, offers)}
	for m := range s.most {
		s.most[m] = new(big.Int)
	}
	return s
}

// add adds an inequality with a weight that makes its total about share·2¹¹⁴, where share is
// at most 1.
func (s *combination) add(q inequality, share float64) {
	weight := big.NewInt(int64(math.Ldexp(share, 50)))
	weight.Lsh(weight, 64).Div(weight, big.NewInt(q.total))
	s.total.Add(s.total, new(big.Int).Mul(weight, big.NewInt(q.total)))
	for m, k := range q.most {
		s.most[m].Add(s.most[m], new(big.Int).Mul(weight, big.NewInt(k)))
	}
}

// column returns the inequality as a column of combine's dual, in units of its total.
func (q inequality) column() column {
	c := column{cost: -1}
	for m, k := range q.most {
		if k > 0 {
			c.entries = append(c.entries, entry{m, float64(k) / float64(q.total)})
		}
	}
	return c
}

// sums returns the inequalities of the continuous bound: in each dimension, the size of a VM is
// at least the sum of its items. For pods, one VM of a model without a limit satisfies it, so
// every bound is at least the cheapest VM.
func (p *relaxation) sums() []inequality {
	var all []inequality
	for d := range dimensions {
		all = p.appendInequality(all, d, p.lengths(d), func(x int64) int64 { return x })
	}
	return all
}

// inequalities returns those of the large-item bound, which include sums. They follow from
// superadditive functions f of the sizes in one dimension: as f(x) + f(y) ≤ f(x+y), f of a VM's
// size is at least the sum of f of its items' sizes. With f(capacity) = 1 these are dual
// feasible functions (Clautiaux, Alves and Valério de Carvalho, A survey of dual-feasible and
// superadditive functions, Annals of Operations Research 179, 2010; for vectors, Caprara and
// Toth 2001, §3); without it, they serve models of all sizes at once. There are two families:
//
//   - rounded: Chvátal-Gomory and mixed integer rounding. Rounding down to multiples of just
//     more than the k-th part of a model counts items of which fewer than k fit.
//   - polarized: Martello and Toth's L2 (Knapsack Problems, §8.3.2; Fekete and Schepers, New
//     classes of fast lower bounds for bin packing problems, Mathematical Programming 91,
//     2001). An item that leaves less than a threshold free fills the VM; an item below the
//     threshold counts as 0.
//
// The parameters are all sizes, up to a limit that keeps the effort near linear.
func (p *relaxation) inequalities() []inequality {
	all := p.sums()
	for d := range podExtent {
		lengths := p.lengths(d)
		capacities, sizes := p.parameters(d, lengths)
		for _, t := range rounds(capacities, sizes) {
			for _, a := range remainders(capacities, t) {
				all = p.appendInequality(all, d, lengths, func(x int64) int64 { return rounded(x, t, a) })
			}
		}
		for _, c := range capacities {
			for _, least := range thresholds(c, sizes) {
				all = p.appendInequality(all, d, lengths, func(x int64) int64 { return polarized(x, c, least) })
			}
		}
	}
	return all
}

// rounded is the superadditive function x ↦ ⌊x/t⌋ + max(0, frac(x/t) - α)/(1 - α) with α = a/t,
// times t-a: identity for a = 0, rounding down to multiples of t for a = t-1. It needs
// 0 ≤ a < t.
func rounded(x, t, a int64) int64 { return x/t*(t-a) + max(0, x%t-a) }

// polarized is c for x above c - least, 0 below least, and x in between; above c it is the
// largest sum over parts of x. It needs 0 < 2·least ≤ c.
func polarized(x, c, least int64) int64 {
	large := c - least + 1
	sum, rest := x/large*c, x%large
	if rest >= least {
		sum += rest
	}
	return sum
}

// length is the number of items with a size in one dimension.
type length struct {
	size, count int64
}

// lengths returns the sizes above 0 in a dimension, ascending.
func (p *relaxation) lengths(dimension int) []length {
	counts := map[int64]int64{}
	for _, d := range p.demands {
		counts[d.size[dimension]] += d.count
	}
	delete(counts, 0)
	var all []length
	for size, count := range counts {
		all = append(all, length{size, count})
	}
	slices.SortFunc(all, func(a, b length) int { return cmp.Compare(a.size, b.size) })
	return all
}

// appendInequality appends the inequality of f in a dimension, unless all weights are 0. A VM
// holds at most all items, which matters for VMs larger than a user needs.
func (p *relaxation) appendInequality(all []inequality, dimension int, lengths []length, f func(int64) int64) []inequality {
	q := inequality{dimension: dimension, f: f, most: make([]int64, len(p.offers))}
	for _, l := range lengths {
		weight := f(l.size)
		if weight > 0 && l.count > (math.MaxInt64/4-q.total)/weight {
			return all // it would overflow
		}
		q.total += l.count * weight
	}
	if q.total == 0 {
		return all
	}
	for m, o := range p.offers {
		q.most[m] = min(q.total, f(o.size[dimension]))
	}
	return append(all, q)
}

// parameters returns the sizes that functions are made of: the largest models, and items at
// even distances, fewer of both if there are many items.
func (p *relaxation) parameters(dimension int, lengths []length) (capacities, sizes []int64) {
	models, items := 16, 64
	switch n := len(lengths); {
	case n > 10_000:
		models, items = 4, 8
	case n > 1_000:
		models, items = 8, 16
	}
	for _, o := range p.offers {
		capacities = append(capacities, o.size[dimension])
	}
	slices.Sort(capacities)
	capacities = slices.Compact(capacities)
	capacities = capacities[max(0, len(capacities)-models):]
	step := max(1, (len(lengths)+items-1)/items)
	for i := len(lengths) - 1; i >= 0; i -= step {
		sizes = append(sizes, lengths[i].size)
	}
	return capacities, sizes
}

// rounds returns the parameters t of rounded: just more than the first fractions of each
// model, and the sizes of items.
func rounds(capacities, sizes []int64) []int64 {
	to := slices.Clone(sizes)
	for _, c := range capacities {
		for k := range int64(4) {
			to = append(to, c/(k+1)+1)
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// remainders returns the parameters a of rounded for t: the remainders of models, and t-1.
func remainders(capacities []int64, t int64) []int64 {
	cut := []int64{t - 1}
	for _, c := range capacities {
		if c%t > 0 {
			cut = append(cut, c%t)
		}
	}
	slices.Sort(cut)
	return slices.Compact(cut)
}

// thresholds returns the thresholds of polarized for a capacity: fractions of it, the sizes
// of items up to half of it, and the space that larger items leave.
func thresholds(c int64, sizes []int64) []int64 {
	var at []int64
	for _, k := range []int64{2, 3, 4} {
		at = append(at, c/k)
	}
	for _, s := range sizes {
		at = append(at, s, c-s+1)
	}
	at = slices.DeleteFunc(at, func(least int64) bool { return least <= 0 || 2*least > c })
	slices.Sort(at)
	return slices.Compact(at)
}
