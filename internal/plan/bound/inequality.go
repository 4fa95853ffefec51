package bound

import (
	"cmp"
	"math"
	"math/big"
	"slices"
)

// inequality is what every plan fulfils: items weigh what f makes of their size in a
// dimension, all together total, and what a VM of the m-th offer holds weighs at most
// most[m].
type inequality struct {
	dimension int
	f         func(int64) int64
	total     int64
	most      []int64
}

// combine returns the best bound that follows from any mixture of inequalities: the
// optimum of min Σ price(m)·x(m) subject to Σ most(m)·x(m) ≥ total for each of them.
// Its dual has a row for each offer, and a column for each inequality. The solution
// in floating point is only taken for the weights of Farley's bound. It also returns
// what each item costs then, in units of the highest price.
func (p *relaxation) combine(from []inequality) (int64, []float64) {
	each := make([]float64, len(p.demands))
	dearest := float64(p.dearest())
	if dearest == 0 {
		return 0, each
	}
	prices := make([]float64, len(p.offers))
	slack := make([]column, len(p.offers))
	for m, o := range p.offers {
		prices[m] = float64(o.price) / dearest
		slack[m] = column{entries: []entry{{m, 1}}}
	}
	lp := newSimplex(prices, slack)
	for _, q := range from {
		lp.add(q.column())
	}
	lp.solve(200 * (len(p.offers) + 1))

	sum := newMixture(len(p.offers))
	for row, j := range lp.basis {
		if j < len(slack) || lp.level[row] <= 0 {
			continue
		}
		q := from[j-len(slack)]
		sum.add(q, lp.level[row]/-lp.value())
		for i, d := range p.demands {
			each[i] += lp.level[row] * float64(q.f(d.size[q.dimension])) / float64(q.total)
		}
	}
	return p.farley(sum.total, sum.most), each
}

// mixture is a sum of inequalities with weights. It is exact.
type mixture struct {
	total *big.Int
	most  []*big.Int
}

func newMixture(offers int) *mixture {
	s := &mixture{total: new(big.Int), most: make([]*big.Int, offers)}
	for m := range s.most {
		s.most[m] = new(big.Int)
	}
	return s
}

// add adds an inequality with a weight that makes its total about a share, which is
// at most 1, of 2¹¹⁴.
func (s *mixture) add(q inequality, share float64) {
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

// sums returns the inequalities of the continuous bound: in each dimension, VMs are
// as large as what is on them. That of the pods is fulfilled by one VM of a model
// without a limit, so no bound is less than the cheapest VM.
func (p *relaxation) sums() []inequality {
	var all []inequality
	for d := range dimensions {
		all = p.appendInequality(all, d, p.lengths(d), func(x int64) int64 { return x })
	}
	return all
}

// inequalities returns those of the large-item bound, which include sums: for
// superadditive functions f of the sizes in one dimension, where f(x) + f(y) ≤
// f(x+y), the f of a VM's size is at least the sum of the f of its items' sizes.
// With f(capacity) = 1 these are dual feasible functions (Clautiaux, Alves and
// Valério de Carvalho, A survey of dual-feasible and superadditive functions, Annals
// of Operations Research 179, 2010; for vectors, Caprara and Toth 2001, §3); without,
// they serve models of all sizes at once. Two families are used:
//
//   - rounded: Chvátal-Gomory and mixed integer rounding. Rounding down to multiples
//     of just more than the k-th part of a model counts items of which k do not fit.
//   - polarized: Martello and Toth's L2 (Knapsack Problems, §8.3.2; Fekete and
//     Schepers, New classes of fast lower bounds for bin packing problems,
//     Mathematical Programming 91, 2001): what leaves less than a threshold free
//     fills the VM, and what is less than the threshold counts nothing.
//
// Parameters are all sizes there are, up to a limit, so that effort is near linear.
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

// rounded is the superadditive function x ↦ ⌊x/t⌋ + max(0, frac(x/t) - α)/(1 - α) with
// α = a/t, times t-a: identity for a = 0, rounding down to multiples for a = t-1.
// It needs 0 ≤ a < t.
func rounded(x, t, a int64) int64 { return x/t*(t-a) + max(0, x%t-a) }

// polarized is c for x above c - least, nothing below least, and x in between; above
// c it is the most that parts of x can come to. It needs 0 < 2·least ≤ c.
func polarized(x, c, least int64) int64 {
	large := c - least + 1
	sum, rest := x/large*c, x%large
	if rest >= least {
		sum += rest
	}
	return sum
}

// length is how many items have a size in one dimension.
type length struct {
	size, count int64
}

// lengths returns the sizes in a dimension that are not 0, ascending.
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

// appendInequality appends what f says in a dimension, if it says anything. A VM
// never holds more than there is: this counts VMs that are larger than a user needs
// as no more than enough.
func (p *relaxation) appendInequality(all []inequality, dimension int, lengths []length, f func(int64) int64) []inequality {
	q := inequality{dimension: dimension, f: f, most: make([]int64, len(p.offers))}
	for _, l := range lengths {
		weight := f(l.size)
		if weight > 0 && l.count > (math.MaxInt64/4-q.total)/weight {
			return all // more than can be counted
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

// parameters returns the sizes of models and of items to make functions of: the
// largest of the one, and of the other a spread, fewer where there are many items.
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

// rounds returns what to round sizes to: just more than the first fractions of each
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

// remainders returns what to cut off remainders modulo t: those that models leave,
// and all.
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

// thresholds returns where to polarize for a capacity: at items that are at most
// half of it, and at what larger ones leave free.
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
